-- Long texts that the lines of many events have: the tools with which runs begin, their settings, and the begin of the first
-- Request. They are here once, and the lines of events have their digest. The two tables take the place of
-- `tool_catalogues` and `event_catalogues`, which had lists of tools alone and named them by 64 characters in each row and
-- twice in its indexes. The rows of those are as many as the runs that were written with them, and short.
CREATE TABLE shared_texts (
    id INTEGER PRIMARY KEY,
    -- SHA-256 of the text, in hex.
    digest TEXT NOT NULL UNIQUE,
    -- The text as the seals of the events are made of it.
    content TEXT NOT NULL
);

-- Events whose lines have the digest of a text and not the text. No text is deleted that one of them names.
CREATE TABLE event_texts (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    text BIGINT NOT NULL REFERENCES shared_texts (id),
    -- Bytes of the text beyond those of its name in the line.
    added BIGINT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE INDEX event_texts_by_text ON event_texts (text);

INSERT INTO shared_texts (digest, content) SELECT digest, tools FROM tool_catalogues;

INSERT INTO event_texts (run, seq, text, added)
    SELECT run, seq, shared_texts.id, added FROM event_catalogues
    JOIN shared_texts ON shared_texts.digest = event_catalogues.digest;

DROP TABLE event_catalogues;
DROP TABLE tool_catalogues;
