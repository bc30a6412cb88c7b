-- Bytes that runs are shown, such as images: once for all runs that name them. The two tables take the place of
-- `run_images`, which had the bytes once for each run.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    -- `sha256:` and the digest of the bytes, in hex.
    digest TEXT NOT NULL UNIQUE,
    -- Their number, which is counted in the bounds of a server.
    bytes BIGINT NOT NULL,
    -- The bytes as base64.
    data TEXT NOT NULL
);

-- No blob is deleted that a run names.
CREATE TABLE run_blobs (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    blob BIGINT NOT NULL REFERENCES blobs (id),
    PRIMARY KEY (run, blob)
) WITHOUT ROWID;

CREATE INDEX run_blobs_by_blob ON run_blobs (blob);

-- In one pass: to group the rows would sort the bytes of all images.
INSERT INTO blobs (digest, bytes, data)
    SELECT digest, LENGTH(data) / 4 * 3, data FROM run_images WHERE true ON CONFLICT (digest) DO NOTHING;

INSERT INTO run_blobs (run, blob)
    SELECT run_images.run, blobs.id FROM run_images JOIN blobs ON blobs.digest = run_images.digest;

DROP TABLE run_images;
