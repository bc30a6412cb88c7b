-- Knowledge: collections of documents, which are cut into passages. The passages' table differs between the two
-- databases, because each has its own index of words; its migration is the next one.

CREATE TABLE collections (
    id TEXT PRIMARY KEY,
    -- Name of the API key; empty for the user of this machine's terminal.
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    -- What makes the vectors of its passages, and their length; null for none.
    embedding TEXT,
    dimensions BIGINT,
    -- Counts the changes of what can be found. Processes compare it with what they keep in memory.
    version BIGINT NOT NULL,
    -- Sums over the visible documents: their number, their passages, the words of these, and their bytes.
    documents BIGINT NOT NULL,
    passages BIGINT NOT NULL,
    words BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    -- Set when it was deleted: nobody finds it any more, and its documents are being removed.
    deleted_ms BIGINT
);

CREATE UNIQUE INDEX collections_by_name ON collections (owner, name) WHERE deleted_ms IS NULL;

-- Keys that may use a collection of another key.
CREATE TABLE collection_grants (
    collection TEXT NOT NULL REFERENCES collections (id) ON DELETE CASCADE,
    -- Name of the API key; empty for the user of this machine's terminal.
    grantee TEXT NOT NULL,
    -- 'read', or 'write', which includes it.
    access TEXT NOT NULL,
    PRIMARY KEY (collection, grantee)
);

CREATE INDEX collection_grants_by_grantee ON collection_grants (grantee);

CREATE TABLE documents (
    id TEXT PRIMARY KEY,
    collection TEXT NOT NULL REFERENCES collections (id),
    -- Where it came from: a path, a URL or a name. A collection has one visible document of a source.
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    media_type TEXT NOT NULL,
    -- SHA-256 of its bytes, in hex.
    digest TEXT NOT NULL,
    -- What made passages and vectors of it, with versions: the same bytes by the same recipe need not be read again.
    recipe TEXT NOT NULL,
    -- JSON: an object of strings.
    labels TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    -- Passages that are stored, and their words.
    passages BIGINT NOT NULL,
    words BIGINT NOT NULL,
    -- 'staged' while its passages are written, then 'visible'; 'gone' when it was deleted or replaced, until its
    -- passages are removed.
    state TEXT NOT NULL,
    -- The process that stages it; null when it has given up, so that another goes on.
    holder TEXT,
    created_ms BIGINT NOT NULL
);

CREATE UNIQUE INDEX documents_visible ON documents (collection, source) WHERE state = 'visible';
CREATE INDEX documents_by_collection ON documents (collection, state, id);
CREATE INDEX documents_by_state ON documents (state) WHERE state <> 'visible';
