-- Passages of documents, with PostgreSQL's index of words. The columns are described in SQLite's file.

CREATE TABLE passages (
    id BIGSERIAL PRIMARY KEY,
    document TEXT NOT NULL REFERENCES documents (id),
    collection TEXT NOT NULL,
    number BIGINT NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    starts BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    words TEXT NOT NULL,
    vector BYTEA,
    index TSVECTOR GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED
);

CREATE UNIQUE INDEX passages_by_document ON passages (document, number);
CREATE INDEX passages_by_collection ON passages (collection, id);
CREATE INDEX passages_by_words ON passages USING gin (index);
