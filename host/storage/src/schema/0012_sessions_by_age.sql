-- Sessions by age: pruning.
CREATE INDEX sessions_by_age ON sessions (created_ms, id);
