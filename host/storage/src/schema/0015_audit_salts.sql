-- Salts of the digests that stand in the audit log in the place of texts. A salt is kept as long as the record of the
-- run that has the texts; calls of no run have none.
CREATE TABLE audit_salts (
    -- Number of the audit log's row.
    number BIGINT PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- Random, in hex.
    salt TEXT NOT NULL
);

CREATE INDEX audit_salts_by_run ON audit_salts (run);

-- How far the audit log was looked through for rows of older versions, whose texts are redacted.
CREATE TABLE audit_redactions (
    tool TEXT PRIMARY KEY,
    -- The last row of this tool that was looked at.
    number BIGINT NOT NULL
);
