-- Indexes for queries that read whole tables before: the audit log by time, runs by begin (statistics), sessions by age
-- (pruning), collections that are being removed, and waiting calls in the order of their pages.

CREATE INDEX audit_by_time ON audit (at_ms, number);
CREATE INDEX runs_by_begin ON runs (began_ms, id);
CREATE INDEX sessions_by_age ON sessions (created_ms, id);
CREATE INDEX collections_gone ON collections (id) WHERE deleted_ms IS NOT NULL;
CREATE INDEX approvals_by_time ON approvals (asked_ms, within, call);
