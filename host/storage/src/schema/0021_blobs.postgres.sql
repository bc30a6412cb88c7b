-- Bytes that runs are shown. The tables are described in SQLite's file.

-- Dropping a table locks those that it refers to as well. Servers that write have locked this one before any of the others,
-- so nobody is in a deadlock with the migration.
LOCK TABLE runs IN ACCESS EXCLUSIVE MODE;

CREATE TABLE blobs (
    id BIGSERIAL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    bytes BIGINT NOT NULL,
    data TEXT NOT NULL
);

CREATE TABLE run_blobs (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    blob BIGINT NOT NULL REFERENCES blobs (id),
    PRIMARY KEY (run, blob)
);

CREATE INDEX run_blobs_by_blob ON run_blobs (blob);

-- In one pass: to group the rows would sort the bytes of all images.
INSERT INTO blobs (digest, bytes, data)
    SELECT digest, LENGTH(data) / 4 * 3, data FROM run_images WHERE true ON CONFLICT (digest) DO NOTHING;

INSERT INTO run_blobs (run, blob)
    SELECT run_images.run, blobs.id FROM run_images JOIN blobs ON blobs.digest = run_images.digest;

DROP TABLE run_images;
