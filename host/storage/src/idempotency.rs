//! Idempotency keys: a request that is repeated under the same key gets the run that the first one started.

use crate::claims::ClaimedRuns;
use crate::column::{id, signed};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
use uuid::Uuid;

/// What an idempotency key means so far.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It is new, and from now on means this request's run.
    First,
    /// An equal request started this run.
    Same(Uuid),
    /// A different request came under this key.
    Other,
    /// A request came and was forgotten meanwhile: look up again.
    Unsettled,
}

/// A run that this process is about to start; dropping it takes the promise back.
#[derive(Debug)]
pub struct PendingStart {
    run: Uuid,
    promised: ClaimedRuns,
}

impl Drop for PendingStart {
    fn drop(&mut self) {
        self.promised.release(self.run);
    }
}

impl Store {
    /// Announces that `run` will start, so that a repeated request waits for it.
    pub fn promise(&self, run: Uuid) -> PendingStart {
        self.promised.insert(run);
        PendingStart {
            run,
            promised: self.promised.clone(),
        }
    }

    /// Records that the request with this key and digest starts `run`, unless the key is known.
    pub async fn first_or_repeat(
        &self,
        owner: &str,
        key: &str,
        digest: &str,
        run: Uuid,
    ) -> Result<KeyUse, StoreError> {
        let values = vec![
            owner.to_owned().into(),
            key.to_owned().into(),
            digest.to_owned().into(),
            run.into(),
            signed(now_ms()).into(),
            self.process.name().to_owned().into(),
        ];
        if self.execute(ADD_PROMISE, values).await? > 0 {
            return Ok(KeyUse::First);
        }
        let row = sqlx::query("SELECT digest, run FROM idempotency WHERE owner = $1 AND key = $2")
            .bind(owner)
            .bind(key)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        // Deleted in between: the run could not be started.
        let Some(row) = row else {
            return Ok(KeyUse::Unsettled);
        };
        let known: String = row.try_get("digest")?;
        Ok(if known == digest {
            KeyUse::Same(id(&row, "run")?)
        } else {
            KeyUse::Other
        })
    }

    /// The run that a request with this key began, or is about to begin.
    pub async fn run_of_request(&self, owner: &str, key: &str) -> Result<Option<Uuid>, StoreError> {
        let row = sqlx::query("SELECT run FROM idempotency WHERE owner = $1 AND key = $2")
            .bind(owner)
            .bind(key)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(row.map(|row| id(&row, "run")).transpose()?)
    }

    /// Forgets a request whose `run` does not exist and will not start: the process that promised it is dead or frozen, or
    /// took the promise back. Returns whether the request was forgotten.
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
        let holder = holder.flatten();
        let is_promised = match holder.as_deref() {
            Some(name) if name == self.process.name() => self.promised.contains(run),
            Some(name) => self.process.keeps_leases(name, &self.pool).await?,
            None => false,
        };
        if is_promised {
            return Ok(false);
        }
        // The run may have started, and even ended, since the promise was checked.
        self.forget_promise(owner, key, run, holder).await
    }

    /// Forgets that the request was to start `run`, so that it can be repeated; unless the run exists after all, or the
    /// key means another run by now. Returns whether the request was forgotten.
    pub async fn forget_unbegun(
        &self,
        owner: &str,
        key: &str,
        run: Uuid,
    ) -> Result<bool, StoreError> {
        let holder = Some(self.process.name().to_owned());
        self.forget_promise(owner, key, run, holder).await
    }

    /// Forgets a request whose run does not exist, if `holder` is still the process that promised the run. A process that
    /// begins the run at the same time is no longer that holder.
    async fn forget_promise(
        &self,
        owner: &str,
        key: &str,
        run: Uuid,
        holder: Option<String>,
    ) -> Result<bool, StoreError> {
        let values = vec![
            owner.to_owned().into(),
            key.to_owned().into(),
            run.into(),
            holder.into(),
        ];
        Ok(self.execute(FORGET_PROMISE, values).await? > 0)
    }
}

const ADD_PROMISE: &str = "INSERT INTO idempotency (owner, key, digest, run, created_ms, holder) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (owner, key) DO NOTHING";
const FORGET_PROMISE: &str = "DELETE FROM idempotency WHERE owner = $1 AND key = $2 AND run = $3 \
     AND (holder = $4 OR (holder IS NULL AND $4 IS NULL)) \
     AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = $3)";
