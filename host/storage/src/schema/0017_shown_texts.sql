-- Which records of runs have texts of which documents and facts, and which of these were deleted: their texts are taken
-- out of the records of runs that have ended.

CREATE TABLE shown_texts (
    -- Id of the document, or of the fact; empty for a passage whose document was gone before the record had it.
    source TEXT NOT NULL,
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- Number of the passage; 0 for a fact.
    passage BIGINT NOT NULL,
    PRIMARY KEY (source, run, passage)
);

CREATE INDEX shown_texts_by_run ON shown_texts (run);

CREATE TABLE deleted_texts (
    -- As in shown_texts.
    source TEXT PRIMARY KEY,
    -- SHA-256 of the document's bytes, in hex; empty if it is not known any more, null for a fact.
    digest TEXT,
    deleted_ms BIGINT NOT NULL
);

-- What was gone before the record had it is always among what was deleted.
INSERT INTO deleted_texts (source, digest, deleted_ms) VALUES ('', '', 0);

-- Documents that another version took the place of, if records have texts of them or of earlier versions: who deletes the
-- last version deletes them, too.
CREATE TABLE replaced_documents (
    document TEXT PRIMARY KEY,
    successor TEXT NOT NULL
);

CREATE INDEX replaced_documents_by_successor ON replaced_documents (successor);
