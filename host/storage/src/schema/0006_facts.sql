-- Memory: facts that agents and people wrote down. A fact that takes the place of another is of the same chain; what it
-- replaced is kept as its history, until it is forgotten.

CREATE TABLE facts (
    id TEXT PRIMARY KEY,
    -- Name of the API key; empty for the user of this machine's terminal.
    owner TEXT NOT NULL,
    -- 'session', 'user' or 'agent', and the session's id, nothing, or the agent's name.
    scope TEXT NOT NULL,
    subject TEXT NOT NULL,
    -- The first fact that this one, by way of others, takes the place of; its own id without one.
    chain TEXT NOT NULL,
    -- Empty when it was forgotten.
    text TEXT NOT NULL,
    -- Who wrote it: a call, a run or a person.
    source TEXT NOT NULL,
    -- In thousandths.
    confidence BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    -- When it was superseded or forgotten: it is found no more. The fact that took its place, if one did.
    ended_ms BIGINT,
    superseded_by TEXT,
    -- When its text was deleted.
    forgotten_ms BIGINT
);

CREATE INDEX facts_found ON facts (owner, scope, subject, id) WHERE ended_ms IS NULL;
CREATE INDEX facts_by_owner ON facts (owner, id);
CREATE INDEX facts_by_chain ON facts (chain, id);
CREATE INDEX facts_by_subject ON facts (subject) WHERE scope = 'session';

-- Facts of each owner that have a text. Who changes an owner's facts changes this row first, so that two writers of one
-- owner follow each other.
CREATE TABLE fact_owners (
    owner TEXT PRIMARY KEY,
    facts BIGINT NOT NULL
);
