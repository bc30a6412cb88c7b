//! API keys: what each may do. A key itself is shown once and never kept.

use crate::storage::Store;
use crate::storage::audit::{self, Draft};
use crate::storage::error::StoreError;
use crate::storage::runs::unsigned;
use crate::storage::sessions::{now_ms, signed};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;

/// What a key may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    pub scopes: Vec<Scope>,
    /// Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Tools, or modules for all of their tools. Absent: all that the agent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Start runs and see its own.
    Run,
    /// Decide about calls of its own runs that wait for a person.
    Approve,
    /// See everything, of all keys; approve modules.
    Admin,
}

#[derive(Debug, Clone)]
pub struct Key {
    pub name: String,
    pub permits: Permits,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
    pub revoked_ms: Option<u64>,
}

impl Key {
    pub fn is_valid(&self) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|end| now_ms() < end)
    }
}

impl Store {
    /// Keeps a key that nobody has. Returns whether its name was free.
    pub async fn add_key(
        &self,
        name: &str,
        hash: &str,
        permits: &Permits,
        expires_ms: Option<u64>,
    ) -> Result<bool, StoreError> {
        let told = serde_json::to_value(permits);
        let permits =
            serde_json::to_string(permits).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let mut transaction = self.pool.begin().await?;
        let added = sqlx::query(
            "INSERT INTO keys (name, hash, permits, created_ms, expires_ms) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (name) DO NOTHING",
        )
        .bind(name)
        .bind(hash)
        .bind(permits)
        .bind(signed(now_ms()))
        .bind(expires_ms.map(signed))
        .execute(&mut *transaction)
        .await?;
        let is_added = added.rows_affected() > 0;
        if is_added {
            let draft = Draft::key_created(name, told.unwrap_or_default());
            audit::append(&mut transaction, &[&draft]).await?;
        }
        transaction.commit().await?;
        Ok(is_added)
    }

    /// Every key there ever was: names are not given twice, for runs are theirs.
    pub async fn keys(&self) -> Result<Vec<Key>, StoreError> {
        let rows = sqlx::query(
            "SELECT name, permits, created_ms, expires_ms, revoked_ms FROM keys ORDER BY name",
        )
        .fetch_all(&self.pool)
        .await?;
        let keys: Result<_, sqlx::Error> = rows.iter().map(key).collect();
        Ok(keys?)
    }

    /// The key of that hash, if it is valid.
    pub async fn key(&self, hash: &str) -> Result<Option<Key>, StoreError> {
        let row = sqlx::query(
            "SELECT name, permits, created_ms, expires_ms, revoked_ms FROM keys WHERE hash = $1",
        )
        .bind(hash)
        .fetch_optional(&self.pool)
        .await?;
        let key = row.as_ref().map(key).transpose()?;
        Ok(key.filter(Key::is_valid))
    }

    /// Whether there ever was a key: revoking the last one must not open what it closed.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM keys")
            .fetch_one(&self.pool)
            .await?;
        Ok(count > 0)
    }

    /// Returns whether there was such a key, not revoked before.
    pub async fn revoke_key(&self, name: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let revoked =
            sqlx::query("UPDATE keys SET revoked_ms = $2 WHERE name = $1 AND revoked_ms IS NULL")
                .bind(name)
                .bind(signed(now_ms()))
                .execute(&mut *transaction)
                .await?;
        let is_revoked = revoked.rows_affected() > 0;
        if is_revoked {
            audit::append(&mut transaction, &[&Draft::key_revoked(name)]).await?;
        }
        transaction.commit().await?;
        Ok(is_revoked)
    }
}

fn key(row: &AnyRow) -> Result<Key, sqlx::Error> {
    let permits: String = row.try_get("permits")?;
    let time = |column| -> Result<Option<u64>, sqlx::Error> {
        let time: Option<i64> = row.try_get(column)?;
        Ok(time.and_then(|time| u64::try_from(time).ok()))
    };
    Ok(Key {
        name: row.try_get("name")?,
        permits: serde_json::from_str(&permits).map_err(|e| sqlx::Error::Decode(e.into()))?,
        created_ms: unsigned(row, "created_ms")?,
        expires_ms: time("expires_ms")?,
        revoked_ms: time("revoked_ms")?,
    })
}
