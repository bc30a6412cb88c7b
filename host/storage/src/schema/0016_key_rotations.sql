-- The last rotation of each key: the secret that another one took the place of.
CREATE TABLE key_rotations (
    -- Name of the key.
    key TEXT PRIMARY KEY,
    -- SHA-256 of the replaced secret, in hex.
    former_hash TEXT NOT NULL UNIQUE,
    -- Until when the replaced secret is accepted.
    former_ends_ms BIGINT NOT NULL,
    -- When the present secret was made.
    rotated_ms BIGINT NOT NULL
);
