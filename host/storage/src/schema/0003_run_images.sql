-- The images of a run's context. Events have their digests and sizes; their bytes are here once, and go with the run.
CREATE TABLE run_images (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- `sha256:` and the digest of the bytes.
    digest TEXT NOT NULL,
    -- The bytes as base64.
    data TEXT NOT NULL,
    PRIMARY KEY (run, digest)
);
