-- What the server keeps beside runs.

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
    -- SHA-256 of the key, in hex: a key is random, so nobody can guess one from this.
    hash TEXT NOT NULL UNIQUE,
    -- JSON: what it may do, and which agents and tools it may use (null: all).
    permits TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT
);

-- Requests that may come twice, and the runs that they began.
CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    -- SHA-256 of the request's body, in hex.
    digest TEXT NOT NULL,
    run TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);
