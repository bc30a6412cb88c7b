-- The sizes of blobs without their bytes: each run that brings new images compares them with a quota.
CREATE INDEX blobs_by_bytes ON blobs (bytes, id);
