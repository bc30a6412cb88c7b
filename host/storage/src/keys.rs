//! API keys: what each may do. A key itself is shown once and never kept.

use crate::storage::Store;
use crate::storage::audit::{self, Draft};
use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::runs::unsigned;
use crate::storage::sessions::{now_ms, signed};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use toolhold_sandbox::Permit;

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
    /// What of the grants of modules may be used in its name. Absent: all that the agent has. Kept in a column
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Permit>>,
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
                audit::append(&mut transaction, &[&draft]).await?;
            }
            transaction.commit().await?;
            Ok(is_added)
        };
        self.database.within(work).await
    }

    /// Every key there ever was: names are not given twice, for runs are theirs.
    pub async fn keys(&self) -> Result<Vec<Key>, StoreError> {
        let rows = sqlx::query(
            "SELECT name, permits, grants, created_ms, expires_ms, revoked_ms FROM keys ORDER BY name",
        )
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let keys: Result<_, sqlx::Error> = rows.iter().map(key).collect();
        Ok(keys?)
    }

    /// The key of that hash, if it is valid.
    pub async fn key(&self, hash: &str) -> Result<Option<Key>, StoreError> {
        let row = sqlx::query(
            "SELECT name, permits, grants, created_ms, expires_ms, revoked_ms FROM keys WHERE hash = $1",
        )
        .bind(hash)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let key = row.as_ref().map(key).transpose()?;
        Ok(key.filter(Key::is_valid))
    }

    /// What of the grants of modules may be used in the name of `owner`: of a key that was revoked, what it
    /// could use. Absent: all, as for whoever has this machine's terminal.
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

    /// Whether there ever was a key: revoking the last one must not open what it closed.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM keys")
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(count > 0)
    }

    /// Returns whether there was such a key, not revoked before.
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
                audit::append(&mut transaction, &[&Draft::key_revoked(name)]).await?;
            }
            transaction.commit().await?;
            Ok(is_revoked)
        };
        self.database.within(work).await
    }
}

fn key(row: &AnyRow) -> Result<Key, sqlx::Error> {
    let (permits, grants): (String, Option<String>) =
        (row.try_get("permits")?, row.try_get("grants")?);
    let decoded = |error: serde_json::Error| sqlx::Error::Decode(error.into());
    let grants = grants.map(|grants| serde_json::from_str(&grants));
    let grants = grants.transpose().map_err(decoded)?;
    let permits: Permits = serde_json::from_str(&permits).map_err(decoded)?;
    let time = |column| -> Result<Option<u64>, sqlx::Error> {
        let time: Option<i64> = row.try_get(column)?;
        Ok(time.and_then(|time| u64::try_from(time).ok()))
    };
    Ok(Key {
        name: row.try_get("name")?,
        permits: Permits { grants, ..permits },
        created_ms: unsigned(row, "created_ms")?,
        expires_ms: time("expires_ms")?,
        revoked_ms: time("revoked_ms")?,
    })
}
