-- Days after which documents of a collection are deleted; null: they are kept.

ALTER TABLE collections ADD COLUMN keep_days BIGINT;
