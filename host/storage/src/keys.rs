//! API keys and their permits. Only a key's hash is stored: the key itself is shown once.

use crate::audit_rows::{self, Draft};
use crate::column::{signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use crate::time::now_ms;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::HashMap;
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
}

impl StoredKey {
    /// Whether it is neither revoked nor expired.
    pub fn is_valid(&self) -> bool {
        KeyState::at(now_ms(), self.expires_ms, self.revoked_ms) == KeyState::Valid
    }
}

/// Tells whether requests with a key are admitted. A key that was not valid once never is again.
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

/// The query on PostgreSQL, and that on SQLite.
const STATES: [&str; 2] = [
    "SELECT name, expires_ms, revoked_ms FROM keys WHERE name IN (SELECT json_array_elements_text($1::json))",
    "SELECT name, expires_ms, revoked_ms FROM keys WHERE name IN (SELECT value FROM json_each($1))",
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
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let added = sqlx::query(
                "INSERT INTO keys (name, hash, permits, created_ms, expires_ms, grants) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO NOTHING",
            )
            .bind(name)
            .bind(hash)
            .bind(permits)
            .bind(signed(now_ms()))
            .bind(expires_ms.map(signed))
            .bind(grants)
            .execute(&mut *transaction)
            .await?;
            let is_added = added.rows_affected() > 0;
            if is_added {
                let draft = Draft::key_created(name, told);
                audit_rows::append(&mut transaction, &[&draft]).await?;
            }
            transaction.commit().await?;
            Ok(is_added)
        };
        self.database.within(work).await
    }

    /// All keys, revoked ones included: a name is never given to a second key, because runs belong to names.
    pub async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows = sqlx::query(
            "SELECT name, permits, grants, created_ms, expires_ms, revoked_ms FROM keys",
        )
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let keys: Result<Vec<StoredKey>, sqlx::Error> = rows.iter().map(key).collect();
        let mut keys = keys?;
        // PostgreSQL may sort texts by the rules of a language.
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(keys)
    }

    /// The valid key with this hash.
    pub async fn key(&self, hash: &str) -> Result<Option<StoredKey>, StoreError> {
        let row = sqlx::query(
            "SELECT name, permits, grants, created_ms, expires_ms, revoked_ms FROM keys WHERE hash = $1",
        )
        .bind(hash)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let key = row.as_ref().map(key).transpose()?;
        Ok(key.filter(StoredKey::is_valid))
    }

    /// The hashes of all valid keys.
    pub async fn digests_of_valid_keys(&self) -> Result<Vec<String>, StoreError> {
        let digests = sqlx::query_scalar(
            "SELECT hash FROM keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $1)",
        )
        .bind(signed(now_ms()))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(digests)
    }

    /// The states of the keys with these names, without those that there never were: one query for all work in progress.
    /// Other keys are not read, because keys are never deleted.
    pub async fn key_states(
        &self,
        names: &[&str],
    ) -> Result<HashMap<String, KeyState>, StoreError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let [on_server, in_file] = STATES;
        let statement = if self.database.is_file() {
            in_file
        } else {
            on_server
        };
        let names =
            serde_json::to_string(names).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let rows = sqlx::query(statement)
            .bind(names)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let now_ms = now_ms();
        let states: Result<_, sqlx::Error> = rows
            .iter()
            .map(|row| Ok((row.try_get("name")?, state(row, now_ms)?)))
            .collect();
        Ok(states?)
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
        let row = sqlx::query(
            "SELECT name, permits, grants, created_ms, expires_ms, revoked_ms FROM keys WHERE name = $1",
        )
        .bind(owner)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let key = row.as_ref().map(key).transpose()?;
        Ok(key.and_then(|key| key.permits.grants))
    }

    /// Whether a key was ever created. A revoked key counts, because revoking the last one must not open the server.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        let any = sqlx::query("SELECT name FROM keys LIMIT 1")
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(any.is_some())
    }

    /// Revokes a key. Returns whether there was a key of this name that was not revoked.
    pub async fn revoke_key(&self, name: &str) -> Result<bool, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let revoked = sqlx::query(
                "UPDATE keys SET revoked_ms = $2 WHERE name = $1 AND revoked_ms IS NULL",
            )
            .bind(name)
            .bind(signed(now_ms()))
            .execute(&mut *transaction)
            .await?;
            let is_revoked = revoked.rows_affected() > 0;
            if is_revoked {
                audit_rows::append(&mut transaction, &[&Draft::key_revoked(name)]).await?;
            }
            transaction.commit().await?;
            Ok(is_revoked)
        };
        self.database.within(work).await
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
    })
}

fn state(row: &AnyRow, now_ms: u64) -> Result<KeyState, sqlx::Error> {
    let (expires_ms, revoked_ms) = (time(row, "expires_ms")?, time(row, "revoked_ms")?);
    Ok(KeyState::at(now_ms, expires_ms, revoked_ms))
}

fn time(row: &AnyRow, column: &str) -> Result<Option<u64>, sqlx::Error> {
    let time: Option<i64> = row.try_get(column)?;
    Ok(time.and_then(|time| u64::try_from(time).ok()))
}
