-- Collections that are being removed.
CREATE INDEX collections_gone ON collections (id) WHERE deleted_ms IS NOT NULL;
