-- When the grantee accepted a share, in milliseconds since 1970 (UTC); null: it is offered. Shares of older versions are
-- offers from now on, because nobody asked their grantees. Those of this machine's terminal count as accepted: its user
-- decides about all keys.

ALTER TABLE collection_grants ADD COLUMN accepted_ms BIGINT;

UPDATE collection_grants SET accepted_ms = 0 WHERE collection IN (SELECT id FROM collections WHERE owner = '');
