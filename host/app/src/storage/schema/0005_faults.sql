-- For what is asked again and again: what a process holds, and what is over for long.

CREATE INDEX runs_by_holder ON runs (holder);
CREATE INDEX runs_by_end ON runs (ended_ms);
CREATE INDEX idempotency_by_age ON idempotency (created_ms);

-- The process that begins the run of a request. When it is gone before there is such a run, there will be none.
ALTER TABLE idempotency ADD COLUMN holder TEXT;
