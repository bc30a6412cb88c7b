//! API keys and their permits. Only a hash of a key's secret is stored: the secret itself is shown once. A secret can be
//! replaced by another, which makes no other owner.

use crate::audit_rows::{self, Draft};
use crate::column::{signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::statements::SqlValue;
use crate::store::Store;
use crate::time::now_ms;
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use std::collections::HashMap;
use std::time::Duration;
use toolhold_policy::Permit;

/// What a key may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    /// Groups of requests.
    pub scopes: Vec<Scope>,
    /// Names of agents; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Names of tools, or of modules for all of their tools; absent: all that the agent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The part of the modules' grants that its calls may use; absent: all. Stored in a column of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Permit>>,
}

/// A group of requests that a key may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Start runs, and see the key's own.
    Run,
    /// Decide about waiting calls of the key's own runs.
    Approve,
    /// See the runs of all keys; approve modules.
    Admin,
    /// Read the server's metrics, and nothing else.
    Metrics,
}

/// A stored key.
#[derive(Debug, Clone)]
pub struct StoredKey {
    /// Unique; runs of the key have it as their owner.
    pub name: String,
    /// What the key may do.
    pub permits: Permits,
    /// Milliseconds since 1970 (UTC), as the following times.
    pub created_ms: u64,
    /// Absent: it does not expire.
    pub expires_ms: Option<u64>,
    /// Set for a revoked key.
    pub revoked_ms: Option<u64>,
    /// The last rotation of its secret.
    pub rotation: Option<KeyRotation>,
}

/// The last replacement of a key's secret by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// When the present secret was made.
    pub rotated_ms: u64,
    /// Until when the secret before is accepted, too; 0 if it ended at once.
    pub former_ends_ms: u64,
    former_hash: String,
}

impl StoredKey {
    /// Whether it is neither revoked nor expired.
    pub fn is_valid(&self) -> bool {
        KeyState::at(now_ms(), self.expires_ms, self.revoked_ms) == KeyState::Valid
    }
}

/// Tells whether requests with a key are admitted. A revoked key never is valid again; one that has expired is when its
/// secret is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    Valid,
    Revoked,
    Expired,
}

impl KeyState {
    fn at(now_ms: u64, expires_ms: Option<u64>, revoked_ms: Option<u64>) -> Self {
        match (revoked_ms, expires_ms) {
            (Some(_), _) => Self::Revoked,
            (None, Some(end)) if end <= now_ms => Self::Expired,
            (None, _) => Self::Valid,
        }
    }
}

/// The state of a key, and the secrets that are accepted for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStanding {
    /// The state of the key, whichever secret a request comes with.
    pub state: KeyState,
    hash: String,
    /// The secret before, while it is accepted.
    former_hash: Option<String>,
}

impl KeyStanding {
    /// Whether requests may come with the secret of this hash.
    pub fn accepts(&self, hash: &str) -> bool {
        self.state == KeyState::Valid
            && (self.hash == hash || self.former_hash.as_deref() == Some(hash))
    }
}

/// A secret that takes the place of a key's present one.
#[derive(Debug, Clone, Copy)]
pub struct NewSecret<'a> {
    pub hash: &'a str,
    /// For how long the present secret is accepted, too, if neither expires before. Zero: no longer.
    pub overlap: Duration,
    /// Milliseconds since 1970 (UTC). Absent: it is valid for as long as the present secret was meant to be.
    pub expires_ms: Option<u64>,
}

/// The answer to a [`NewSecret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationAnswer {
    /// The secret is accepted from now on.
    Rotated {
        former_ends_ms: u64,
        expires_ms: Option<u64>,
    },
    /// No key has this name.
    Unknown,
    /// The key is revoked.
    Revoked,
    /// The secret before the present one is accepted still, and would end before its time.
    InOverlap { former_ends_ms: u64 },
}

/// Keys with their last rotations.
const KEYS: &str = "SELECT name, hash, permits, grants, created_ms, expires_ms, revoked_ms, \
     former_hash, former_ends_ms, rotated_ms FROM keys LEFT JOIN key_rotations ON key_rotations.key = keys.name";

const ADD_KEY: &str = "INSERT INTO keys (name, hash, permits, created_ms, expires_ms, grants) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO NOTHING";
const REVOKE_KEY: &str = "UPDATE keys SET revoked_ms = $2 WHERE name = $1 AND revoked_ms IS NULL";
/// Changes nothing and locks the key: of two rotations at once, the second sees what the first did.
const LOCK_KEY: &str = "UPDATE keys SET name = name WHERE name = $1";
const PRESENT_SECRET: &str = "SELECT hash, created_ms, expires_ms, revoked_ms, former_ends_ms, rotated_ms FROM keys \
     LEFT JOIN key_rotations ON key_rotations.key = keys.name WHERE name = $1";
const SET_SECRET: &str = "UPDATE keys SET hash = $2, expires_ms = $3 WHERE name = $1";
const SET_ROTATION: &str = "INSERT INTO key_rotations (key, former_hash, former_ends_ms, rotated_ms) \
     VALUES ($1, $2, $3, $4) \
     ON CONFLICT (key) DO UPDATE SET former_hash = $2, former_ends_ms = $3, rotated_ms = $4";

/// The condition on names in a JSON array, on PostgreSQL and on SQLite.
const AMONG_NAMES: [&str; 2] = [
    " WHERE name IN (SELECT json_array_elements_text($1::json))",
    " WHERE name IN (SELECT value FROM json_each($1))",
];

impl Store {
    /// Stores a new key. Returns whether its name was free.
    pub async fn add_key(
        &self,
        name: &str,
        hash: &str,
        permits: &Permits,
        expires_ms: Option<u64>,
    ) -> Result<bool, StoreError> {
        let encoded = |error: serde_json::Error| sqlx::Error::Encode(error.into());
        let told = serde_json::to_value(permits).map_err(encoded)?;
        let grants = permits.grants.as_ref().map(serde_json::to_string);
        let grants = grants.transpose().map_err(encoded)?;
        let rest = Permits {
            grants: None,
            ..permits.clone()
        };
        let permits = serde_json::to_string(&rest).map_err(encoded)?;
        let draft = Draft::key_created(name, told);
        let values = [
            SqlValue::from(name.to_owned()),
            hash.to_owned().into(),
            permits.into(),
            signed(now_ms()).into(),
            expires_ms.map(signed).into(),
            grants.into(),
        ];
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let is_added = transaction.execute(ADD_KEY, &values).await? > 0;
                if is_added {
                    audit_rows::append(transaction, &[&draft]).await?;
                }
                Ok(is_added)
            })
        });
        work.await
    }

    /// All keys, revoked ones included: a name is never given to a second key, because runs belong to names.
    pub async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows = sqlx::query(KEYS)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let keys: Result<Vec<StoredKey>, sqlx::Error> = rows.iter().map(key).collect();
        let mut keys = keys?;
        // PostgreSQL may sort texts by the rules of a language.
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(keys)
    }

    /// The valid key that accepts the secret of this hash.
    pub async fn key(&self, hash: &str) -> Result<Option<StoredKey>, StoreError> {
        // Two queries, because no index serves a condition on either of two tables. Most secrets are present ones.
        for condition in [" WHERE hash = $1", " WHERE former_hash = $1"] {
            let row = sqlx::query(AssertSqlSafe(format!("{KEYS}{condition}")))
                .bind(hash)
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
            if let Some(row) = row {
                let is_accepted = standing(&row, now_ms())?.accepts(hash);
                return Ok(is_accepted.then(|| key(&row)).transpose()?);
            }
        }
        Ok(None)
    }

    /// The hashes of all secrets that are accepted.
    pub async fn digests_of_valid_keys(&self) -> Result<Vec<String>, StoreError> {
        let digests = sqlx::query_scalar(
            "SELECT hash FROM keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $1) \
             UNION ALL SELECT former_hash FROM key_rotations JOIN keys ON keys.name = key_rotations.key \
             WHERE former_ends_ms > $1 AND revoked_ms IS NULL",
        )
        .bind(signed(now_ms()))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(digests)
    }

    /// The standings of the keys with these names, without those that there never were: one query for all work in
    /// progress. Other keys are not read, because keys are never deleted.
    pub async fn key_standings(
        &self,
        names: &[&str],
    ) -> Result<HashMap<String, KeyStanding>, StoreError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let [on_server, in_file] = AMONG_NAMES;
        let condition = if self.database.is_file() {
            in_file
        } else {
            on_server
        };
        let names =
            serde_json::to_string(names).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let rows = sqlx::query(AssertSqlSafe(format!("{KEYS}{condition}")))
            .bind(names)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let now_ms = now_ms();
        let standings: Result<_, sqlx::Error> = rows
            .iter()
            .map(|row| Ok((row.try_get("name")?, standing(row, now_ms)?)))
            .collect();
        Ok(standings?)
    }

    /// The state of the key with this name; `None` if there never was one.
    pub async fn key_state(&self, name: &str) -> Result<Option<KeyState>, StoreError> {
        let row = sqlx::query("SELECT expires_ms, revoked_ms FROM keys WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        let state = row.map(|row| state(&row, now_ms())).transpose()?;
        Ok(state)
    }

    /// The part of the modules' grants that calls of `owner` may use, also for a revoked key. `None`: all, as for the
    /// user of this machine's terminal.
    pub async fn grants_of(&self, owner: &str) -> Result<Option<Vec<Permit>>, StoreError> {
        let row = sqlx::query(AssertSqlSafe(format!("{KEYS} WHERE name = $1")))
            .bind(owner)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        let key = row.as_ref().map(key).transpose()?;
        Ok(key.and_then(|key| key.permits.grants))
    }

    /// Whether a key was ever created. A revoked key counts, because revoking the last one must not open the server.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        // Each request asks where a server needs no key yet. A crowd shares a query of SQLite, which always replies; an error
        // is each caller's own. One caller must not wait for the lost reply of another's PostgreSQL.
        if self.database.is_file() {
            let any = self.any_key.of(async { self.ask_any_key().await.ok() });
            if let Some(any) = any.await {
                return Ok(any);
            }
        }
        self.ask_any_key().await
    }

    async fn ask_any_key(&self) -> Result<bool, StoreError> {
        let any = sqlx::query("SELECT name FROM keys LIMIT 1")
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(any.is_some())
    }

    /// Gives a key another secret. Its owner, and all that is the owner's, stay what they are.
    pub async fn rotate_key(
        &self,
        name: &str,
        secret: NewSecret<'_>,
    ) -> Result<RotationAnswer, StoreError> {
        let (name, hash) = (name.to_owned(), secret.hash.to_owned());
        let (overlap, new_expiry) = (secret.overlap, secret.expires_ms);
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let named = [SqlValue::from(&name)];
                if transaction.execute(LOCK_KEY, &named).await? == 0 {
                    return Ok(RotationAnswer::Unknown);
                }
                let row: Option<PresentSecretRow> = transaction.row(PRESENT_SECRET, &named).await?;
                let Some(row) = row else {
                    return Ok(RotationAnswer::Unknown);
                };
                let present = PresentSecret::of(row);
                let now_ms = now_ms();
                if present.revoked_ms.is_some() {
                    return Ok(RotationAnswer::Revoked);
                }
                if let Some(former_ends_ms) = present.former_ends_ms
                    && former_ends_ms > now_ms
                    && !overlap.is_zero()
                {
                    return Ok(RotationAnswer::InOverlap { former_ends_ms });
                }
                let expires_ms = new_expiry.or_else(|| present.renewed_expiry(now_ms));
                let overlap_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
                let ends = [
                    Some(now_ms.saturating_add(overlap_ms)),
                    present.expires_ms,
                    expires_ms,
                ];
                let former_ends_ms = ends.into_iter().flatten().min().unwrap_or(now_ms);
                let values = [
                    SqlValue::from(&name),
                    hash.into(),
                    expires_ms.map(signed).into(),
                ];
                transaction.execute(SET_SECRET, &values).await?;
                // At once on all servers, however their clocks differ.
                let stored_end = if overlap.is_zero() {
                    0
                } else {
                    signed(former_ends_ms)
                };
                let values = [
                    SqlValue::from(&name),
                    present.hash.into(),
                    stored_end.into(),
                    signed(now_ms).into(),
                ];
                transaction.execute(SET_ROTATION, &values).await?;
                let draft = Draft::key_rotated(&name, former_ends_ms, expires_ms);
                audit_rows::append(transaction, &[&draft]).await?;
                Ok(RotationAnswer::Rotated {
                    former_ends_ms,
                    expires_ms,
                })
            })
        });
        work.await
    }

    /// Revokes a key. Returns whether there was a key of this name that was not revoked.
    pub async fn revoke_key(&self, name: &str) -> Result<bool, StoreError> {
        let draft = Draft::key_revoked(name);
        let values = [SqlValue::from(name.to_owned()), signed(now_ms()).into()];
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let is_revoked = transaction.execute(REVOKE_KEY, &values).await? > 0;
                if is_revoked {
                    audit_rows::append(transaction, &[&draft]).await?;
                }
                Ok(is_revoked)
            })
        });
        work.await
    }
}

/// The present secret of a key, which is to be replaced.
struct PresentSecret {
    hash: String,
    /// When it was made.
    made_ms: u64,
    expires_ms: Option<u64>,
    revoked_ms: Option<u64>,
    /// Until when the secret before is accepted, too; absent if there was none.
    former_ends_ms: Option<u64>,
}

/// The columns of [`PRESENT_SECRET`].
type PresentSecretRow = (
    String,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

impl PresentSecret {
    fn of(
        (hash, created_ms, expires_ms, revoked_ms, former_ends_ms, rotated_ms): PresentSecretRow,
    ) -> Self {
        let made_ms = rotated_ms.unwrap_or(created_ms);
        Self {
            hash,
            made_ms: u64::try_from(made_ms).unwrap_or_default(),
            expires_ms: milliseconds(expires_ms),
            revoked_ms: milliseconds(revoked_ms),
            former_ends_ms: milliseconds(former_ends_ms),
        }
    }

    /// When a secret expires that is made now and is valid for as long as this one was meant to be.
    fn renewed_expiry(&self, now_ms: u64) -> Option<u64> {
        let valid_ms = self.expires_ms?.saturating_sub(self.made_ms);
        Some(now_ms.saturating_add(valid_ms))
    }
}

fn key(row: &AnyRow) -> Result<StoredKey, sqlx::Error> {
    let (permits, grants): (String, Option<String>) =
        (row.try_get("permits")?, row.try_get("grants")?);
    let decoded = |error: serde_json::Error| sqlx::Error::Decode(error.into());
    let grants = grants.map(|grants| serde_json::from_str(&grants));
    let grants = grants.transpose().map_err(decoded)?;
    let permits: Permits = serde_json::from_str(&permits).map_err(decoded)?;
    Ok(StoredKey {
        name: row.try_get("name")?,
        permits: Permits { grants, ..permits },
        created_ms: unsigned(row, "created_ms")?,
        expires_ms: time(row, "expires_ms")?,
        revoked_ms: time(row, "revoked_ms")?,
        rotation: rotation(row)?,
    })
}

fn rotation(row: &AnyRow) -> Result<Option<KeyRotation>, sqlx::Error> {
    let times = (time(row, "rotated_ms")?, time(row, "former_ends_ms")?);
    let former_hash: Option<String> = row.try_get("former_hash")?;
    let ((Some(rotated_ms), Some(former_ends_ms)), Some(former_hash)) = (times, former_hash) else {
        return Ok(None);
    };
    Ok(Some(KeyRotation {
        rotated_ms,
        former_ends_ms,
        former_hash,
    }))
}

fn standing(row: &AnyRow, now_ms: u64) -> Result<KeyStanding, sqlx::Error> {
    let rotation = rotation(row)?.filter(|last| last.former_ends_ms > now_ms);
    Ok(KeyStanding {
        state: state(row, now_ms)?,
        hash: row.try_get("hash")?,
        former_hash: rotation.map(|last| last.former_hash),
    })
}

fn state(row: &AnyRow, now_ms: u64) -> Result<KeyState, sqlx::Error> {
    let (expires_ms, revoked_ms) = (time(row, "expires_ms")?, time(row, "revoked_ms")?);
    Ok(KeyState::at(now_ms, expires_ms, revoked_ms))
}

fn time(row: &AnyRow, column: &str) -> Result<Option<u64>, sqlx::Error> {
    Ok(milliseconds(row.try_get(column)?))
}

fn milliseconds(stored: Option<i64>) -> Option<u64> {
    stored.and_then(|stored| u64::try_from(stored).ok())
}
