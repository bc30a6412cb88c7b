-- The audit log by time.
CREATE INDEX audit_by_time ON audit (at_ms, number);
