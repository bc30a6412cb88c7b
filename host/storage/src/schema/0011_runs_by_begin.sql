-- Runs by begin: statistics.
CREATE INDEX runs_by_begin ON runs (began_ms, id);
