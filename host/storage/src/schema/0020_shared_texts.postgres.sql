-- Long texts that the lines of many events have. The tables are described in SQLite's file.

-- Dropping a table locks those that it refers to as well. Servers that write have locked this one before any of the others,
-- so nobody is in a deadlock with the migration.
LOCK TABLE runs IN ACCESS EXCLUSIVE MODE;

CREATE TABLE shared_texts (
    id BIGSERIAL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL
);

CREATE TABLE event_texts (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    text BIGINT NOT NULL REFERENCES shared_texts (id),
    added BIGINT NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE INDEX event_texts_by_text ON event_texts (text);

INSERT INTO shared_texts (digest, content) SELECT digest, tools FROM tool_catalogues;

INSERT INTO event_texts (run, seq, text, added)
    SELECT run, seq, shared_texts.id, added FROM event_catalogues
    JOIN shared_texts ON shared_texts.digest = event_catalogues.digest;

DROP TABLE event_catalogues;
DROP TABLE tool_catalogues;
