-- Leases with a deadline, on PostgreSQL: the process renews its row, and its runs may be taken over once the deadline has
-- passed. SQLite has no rows here: there a lock of the operating system shows which processes live.
CREATE TABLE process_leases (
    process TEXT PRIMARY KEY,
    -- Milliseconds since 1970, in the clock of the database.
    deadline_ms BIGINT NOT NULL
);

-- Grows by one each time that a process takes the lease of the run. A write that names an older number is refused.
ALTER TABLE runs ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;

-- A run that begins looks up the request that promised it.
CREATE INDEX idempotency_by_run ON idempotency (run);
