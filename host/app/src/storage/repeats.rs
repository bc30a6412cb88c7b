//! Requests that came before: whoever repeats one under the same key gets the run that it began.

use crate::storage::error::StoreError;
use crate::storage::sessions::{now_ms, signed};
use crate::storage::{Store, runs};
use sqlx::Row as _;
use uuid::Uuid;

/// What is known of a request's key.
#[derive(Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It is new, and from now on means this run.
    First,
    /// The same request began this run.
    Same(Uuid),
    /// Another request came under this key.
    Other,
}

impl Store {
    /// Takes note that `run` is begun for the request of that digest.
    pub async fn first_or_repeat(
        &self,
        owner: &str,
        key: &str,
        digest: &str,
        run: Uuid,
    ) -> Result<Repeat, StoreError> {
        let added = sqlx::query(
            "INSERT INTO idempotency (owner, key, digest, run, created_ms) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (owner, key) DO NOTHING",
        )
        .bind(owner)
        .bind(key)
        .bind(digest)
        .bind(run.to_string())
        .bind(signed(now_ms()))
        .execute(&self.pool)
        .await?;
        if added.rows_affected() > 0 {
            return Ok(Repeat::First);
        }
        let row = sqlx::query("SELECT digest, run FROM idempotency WHERE owner = $1 AND key = $2")
            .bind(owner)
            .bind(key)
            .fetch_one(&self.pool)
            .await?;
        let known: String = row.try_get("digest")?;
        Ok(if known == digest {
            Repeat::Same(runs::id(&row, "run")?)
        } else {
            Repeat::Other
        })
    }

    /// Whether a request came under this key before.
    pub async fn knows_request(&self, owner: &str, key: &str) -> Result<bool, StoreError> {
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM idempotency WHERE owner = $1 AND key = $2")
                .bind(owner)
                .bind(key)
                .fetch_one(&self.pool)
                .await?;
        Ok(count > 0)
    }

    /// The process ended before it had begun the run of a request that is older than that, in milliseconds
    /// since 1970. Returns whether it was so old.
    pub async fn forget_old_request(
        &self,
        owner: &str,
        key: &str,
        before_ms: u64,
    ) -> Result<bool, StoreError> {
        let gone = sqlx::query(
            "DELETE FROM idempotency WHERE owner = $1 AND key = $2 AND created_ms < $3",
        )
        .bind(owner)
        .bind(key)
        .bind(signed(before_ms))
        .execute(&self.pool)
        .await?;
        Ok(gone.rows_affected() > 0)
    }

    /// The run could not be begun: the request may come again.
    pub async fn forget_request(&self, owner: &str, key: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM idempotency WHERE owner = $1 AND key = $2")
            .bind(owner)
            .bind(key)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
