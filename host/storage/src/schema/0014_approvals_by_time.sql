-- Waiting calls in the order of their pages.
CREATE INDEX approvals_by_time ON approvals (asked_ms, within, call);
