-- The audit log in fewer trees of pages, of which each row changes a page: its number is SQLite's own key of the row, and
-- not one more index, and the index of events has the rows of runs alone. An index ends with the key of the row, so all
-- of them have the number.
--
-- A log may be larger than the memory. So its indexes are made before it is copied: one that is made afterwards sorts all
-- rows in memory. And SQLite must not keep the former pages in memory to take a statement back: it does so for a
-- statement with constraints that may fail alone, unless it is `OR FAIL`, and for `DROP TABLE`. The transaction is undone as
-- a whole if anything fails.
ALTER TABLE audit RENAME TO older_audit;

CREATE TABLE audit (
    -- 1, 2, 3… without gaps.
    number INTEGER PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    -- Name of the API key, or the user of this machine.
    owner TEXT NOT NULL,
    action TEXT NOT NULL,
    run TEXT,
    -- Number of the event that the row follows from; each event has at most one row.
    seq BIGINT,
    tool TEXT,
    -- The whole entry as canonical JSON: no spaces, members sorted by name.
    entry TEXT NOT NULL,
    -- SHA-256 over the previous row's hash and the entry, in hex.
    hash TEXT NOT NULL
);

CREATE INDEX audit_of_owner ON audit (owner);
CREATE INDEX audit_of_tool ON audit (tool);
CREATE INDEX audit_of_time ON audit (at_ms);
CREATE UNIQUE INDEX audit_of_event ON audit (run, seq) WHERE run IS NOT NULL;

INSERT OR FAIL INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash)
    SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM older_audit ORDER BY number;

DELETE FROM older_audit;
DROP TABLE older_audit;
