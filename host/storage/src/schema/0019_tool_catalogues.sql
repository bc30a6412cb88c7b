-- The tools with which runs begin, their sub-agents' among them. Many runs begin with the same ones, which are some hundred
-- thousand bytes: they are here once, and the lines of events have their digest.
CREATE TABLE tool_catalogues (
    -- SHA-256 of the text, in hex.
    digest TEXT PRIMARY KEY,
    -- The list of tools as JSON, as the seals of the events are made of it.
    tools TEXT NOT NULL
);

-- Events whose lines have the digest of their tools and not the tools. No list is deleted that one of them names.
CREATE TABLE event_catalogues (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    digest TEXT NOT NULL REFERENCES tool_catalogues (digest),
    -- Bytes of the tools beyond those of the digest that is in their place.
    added BIGINT NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE INDEX event_catalogues_by_digest ON event_catalogues (digest);
