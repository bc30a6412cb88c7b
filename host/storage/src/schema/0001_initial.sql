-- The schema, read by both SQLite and PostgreSQL. Times are milliseconds since 1970 (UTC). Ids are UUIDs as text;
-- a run's id begins with its time. `schema.rs` says how the schema evolves.

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    -- Name of the API key; empty for the user of this machine's terminal.
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    -- What started the run, and resumes it after a crash: 'cli' a person, 'serve' the server.
    origin TEXT NOT NULL,
    -- Set for a turn of a session: the session, and the turn's number from 0 on.
    session TEXT,
    turn BIGINT,
    task TEXT NOT NULL,
    model TEXT NOT NULL,
    began_ms BIGINT NOT NULL,
    -- The process that holds the run's lease.
    holder TEXT,
    -- Set when another process asks the holder to cancel the run.
    cancel_ms BIGINT,
    -- Set when the run has ended, as are the following columns.
    ended_ms BIGINT,
    reason TEXT,
    steps BIGINT,
    calls BIGINT,
    tokens BIGINT,
    -- The run's span as `traceparent`, for the process that resumes the run.
    trace TEXT
);

CREATE INDEX runs_by_owner ON runs (owner, id);
CREATE UNIQUE INDEX runs_by_session ON runs (session, turn);
CREATE INDEX runs_by_holder ON runs (holder);
CREATE INDEX runs_by_end ON runs (ended_ms);

CREATE TABLE events (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    -- The event's JSON text, as it was sealed.
    line TEXT NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Calls that wait for a person's decision.
CREATE TABLE approvals (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- The run that makes the call: `run` itself, or a sub-agent's run inside it.
    within TEXT NOT NULL,
    call TEXT NOT NULL,
    digest TEXT NOT NULL,
    pending TEXT NOT NULL,
    asked_ms BIGINT NOT NULL,
    -- Set when a person has decided. The row is deleted when the run's journal holds the decision.
    decision TEXT,
    PRIMARY KEY (run, within, call)
);

CREATE INDEX approvals_within ON approvals (within, call);

-- Runs that were requested through OpenAI's Responses API: the part of the request that events do not hold.
CREATE TABLE responses (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- JSON: metadata, the previous response, and other fields that a response repeats from its request.
    asked TEXT NOT NULL
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    created_ms BIGINT NOT NULL
);

CREATE INDEX sessions_by_owner ON sessions (owner, id);

CREATE TABLE keys (
    name TEXT PRIMARY KEY,
    -- SHA-256 of the key, in hex. Keys are random, so the hash reveals nothing.
    hash TEXT NOT NULL UNIQUE,
    -- JSON: scopes, and the agents and tools that the key may use (null: all).
    permits TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    -- JSON: the module grants that the key may use (null: all).
    grants TEXT
);

-- Idempotency keys of requests, and the runs that the requests started.
CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    -- SHA-256 of the request's body, in hex.
    digest TEXT NOT NULL,
    run TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    -- The process that starts the run. If it dies before the run exists, the run will never exist.
    holder TEXT,
    PRIMARY KEY (owner, key)
);

CREATE INDEX idempotency_by_age ON idempotency (created_ms);

-- The audit log: who did what, and when. Rows are only added, and no foreign key refers to runs: those may be
-- deleted.
CREATE TABLE audit (
    -- 1, 2, 3… without gaps.
    number BIGINT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    -- Name of the API key, or the user of this machine.
    owner TEXT NOT NULL,
    action TEXT NOT NULL,
    run TEXT,
    -- Number of the event that the row follows from; each event has at most one row.
    seq BIGINT,
    tool TEXT,
    -- The whole entry as canonical JSON: no spaces, members sorted by name.
    entry TEXT NOT NULL,
    -- SHA-256 over the previous row's hash and the entry, in hex.
    hash TEXT NOT NULL,
    UNIQUE (run, seq)
);

CREATE INDEX audit_by_owner ON audit (owner, number);
CREATE INDEX audit_by_tool ON audit (tool, number);

-- One row: the last number and hash. A process that adds to the log locks this row until it commits, so that
-- processes take turns. It also shows if the last rows of the log are missing.
CREATE TABLE audit_head (
    number BIGINT NOT NULL,
    hash TEXT NOT NULL
);

INSERT INTO audit_head (number, hash) VALUES (0, '');
