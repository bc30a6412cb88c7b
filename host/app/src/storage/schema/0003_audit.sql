-- Who did what, and when. Rows are only ever added, and none refers to a run: those may be deleted.

CREATE TABLE audit (
    -- 1, 2, 3… without gaps.
    number BIGINT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    -- The API key's name, or the user of this machine.
    owner TEXT NOT NULL,
    action TEXT NOT NULL,
    run TEXT,
    -- The number of the event that it follows from: one event is told once.
    seq BIGINT,
    tool TEXT,
    -- All of it as canonical JSON: no spaces, members in the order of their names.
    entry TEXT NOT NULL,
    -- SHA-256 over the hash of the row before and the entry, in hex.
    hash TEXT NOT NULL,
    UNIQUE (run, seq)
);

CREATE INDEX audit_by_owner ON audit (owner, number);
CREATE INDEX audit_by_tool ON audit (tool, number);

-- One row: the last number and hash. Whoever adds to the log holds this row until it is committed, so that
-- processes take turns; and without it nobody would miss the last rows.
CREATE TABLE audit_head (
    number BIGINT NOT NULL,
    hash TEXT NOT NULL
);

INSERT INTO audit_head (number, hash) VALUES (0, '');
