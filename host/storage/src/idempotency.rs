//! Requests that came before: whoever repeats one under the same key gets the run that it began.

use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::sessions::{now_ms, signed};
use crate::storage::{Mine, Store, runs};
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
    /// One came and was forgotten meanwhile: ask again.
    Unsettled,
}

/// A run that this process begins, unless this is dropped before.
#[derive(Debug)]
pub struct Promise {
    run: Uuid,
    promised: Mine,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.promised.runs().remove(&self.run);
    }
}

impl Store {
    /// Says that `run` will be begun, for whoever repeats its request meanwhile.
    pub fn promise(&self, run: Uuid) -> Promise {
        self.promised.runs().insert(run);
        Promise {
            run,
            promised: self.promised.clone(),
        }
    }

    /// Takes note that `run` is begun for the request of that digest.
    pub async fn first_or_repeat(
        &self,
        owner: &str,
        key: &str,
        digest: &str,
        run: Uuid,
    ) -> Result<Repeat, StoreError> {
        let added = sqlx::query(
            "INSERT INTO idempotency (owner, key, digest, run, created_ms, holder) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (owner, key) DO NOTHING",
        )
        .bind(owner)
        .bind(key)
        .bind(digest)
        .bind(run.to_string())
        .bind(signed(now_ms()))
        .bind(self.process.name())
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        if added.rows_affected() > 0 {
            return Ok(Repeat::First);
        }
        let row = sqlx::query("SELECT digest, run FROM idempotency WHERE owner = $1 AND key = $2")
            .bind(owner)
            .bind(key)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        // It went away in between: its run could not be begun.
        let Some(row) = row else {
            return Ok(Repeat::Unsettled);
        };
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
                .in_time(&self.database)
                .await?;
        Ok(count > 0)
    }

    /// Forgets a request whose `run` is not there and will not be: the process that promised it is gone, or
    /// could not keep its word. Returns whether it was so.
    pub async fn forget_broken(
        &self,
        owner: &str,
        key: &str,
        run: Uuid,
    ) -> Result<bool, StoreError> {
        let holder: Option<Option<String>> = sqlx::query_scalar(
            "SELECT holder FROM idempotency WHERE owner = $1 AND key = $2 AND run = $3",
        )
        .bind(owner)
        .bind(key)
        .bind(run.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let is_promised = match holder.flatten() {
            Some(name) if name == self.process.name() => self.promised.has(run),
            Some(name) => self.process.is_alive(&name, &self.pool).await?,
            None => false,
        };
        if is_promised {
            return Ok(false);
        }
        // It may have begun, and even ended, since somebody looked.
        self.forget_unbegun(owner, key, run).await
    }

    /// Forgets that the request was to begin `run`, so that it may come again; unless the run is there all the
    /// same, or the key means another one by now. Returns whether it was so.
    pub async fn forget_unbegun(
        &self,
        owner: &str,
        key: &str,
        run: Uuid,
    ) -> Result<bool, StoreError> {
        let gone = sqlx::query(
            "DELETE FROM idempotency WHERE owner = $1 AND key = $2 AND run = $3 \
             AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = $3)",
        )
        .bind(owner)
        .bind(key)
        .bind(run.to_string())
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(gone.rows_affected() > 0)
    }
}
