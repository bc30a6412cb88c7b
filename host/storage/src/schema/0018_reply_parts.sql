-- The reply that a run's model is writing, for readers in other processes. It is no part of the run's record: it is written
-- twice a second at most, and goes when the reply is recorded.
CREATE TABLE reply_parts (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- JSON: number of the Request's event, step, time of the last piece, and the text so far.
    part TEXT NOT NULL
);
