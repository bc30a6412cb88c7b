-- Calls that belong to no run and have begun: written before the call is made, and deleted with its row of the audit
-- log. A row whose process is dead is of a call that was interrupted. Calls of runs are begun in their events.
CREATE TABLE open_calls (
    -- The call's id.
    call TEXT PRIMARY KEY,
    -- The process that makes the call.
    holder TEXT NOT NULL,
    -- JSON: the row that the audit log gets if the process dies before the call has ended.
    draft TEXT NOT NULL
);
