-- Both SQLite and PostgreSQL read this. Times are milliseconds since 1970 (UTC); ids are UUIDs as text,
-- and those of runs begin with their time.

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    -- Whose it is: the API key's name; empty for whoever has this machine's terminal.
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    -- What began it and goes on with it after a crash: 'cli' a person, 'serve' the server.
    origin TEXT NOT NULL,
    -- If it is a turn: of which session, and the how manieth.
    session TEXT,
    turn BIGINT,
    task TEXT NOT NULL,
    model TEXT NOT NULL,
    began_ms BIGINT NOT NULL,
    -- The process that goes on with it.
    holder TEXT,
    -- Set when somebody wants it stopped who is not that process.
    cancel_ms BIGINT,
    -- Set when it is over.
    ended_ms BIGINT,
    reason TEXT,
    steps BIGINT,
    calls BIGINT,
    tokens BIGINT
);

CREATE INDEX runs_by_owner ON runs (owner, id);
CREATE UNIQUE INDEX runs_by_session ON runs (session, turn);

CREATE TABLE events (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    -- The event's JSON text, as it was sealed.
    line TEXT NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Calls that wait for a person.
CREATE TABLE approvals (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- The run whose call it is: that one, or a sub-agent's inside of it.
    within TEXT NOT NULL,
    call TEXT NOT NULL,
    digest TEXT NOT NULL,
    pending TEXT NOT NULL,
    asked_ms BIGINT NOT NULL,
    -- Set when a person decided; the row goes away when the run has taken the decision up.
    decision TEXT,
    PRIMARY KEY (run, within, call)
);

CREATE INDEX approvals_within ON approvals (within, call);
