//! Calls that wait for a person, and what people decided about them. A decision is there until the run's
//! journal has it.

use crate::storage::error::StoreError;
use crate::storage::{Store, runs};
use sqlx::Row as _;
use tokio::sync::futures::Notified;
use toolhold_agent::run::approval::{Decision, Pending};
use uuid::Uuid;

/// A call that waits.
#[derive(Debug)]
pub struct Waiting {
    /// The run that has a record.
    pub run: Uuid,
    pub owner: String,
    /// The run whose call it is: that one, or a sub-agent's inside of it.
    pub within: Uuid,
    pub pending: Pending,
    /// Somebody decided, and the run has not taken it up.
    pub is_decided: bool,
}

impl Store {
    /// Every call that waits, of all runs, the oldest first.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, StoreError> {
        let rows = sqlx::query(
            "SELECT approvals.run AS run, runs.owner AS owner, within, pending, CAST(CASE WHEN decision IS NULL THEN 0 ELSE 1 END AS BIGINT) AS decided \
             FROM approvals JOIN runs ON runs.id = approvals.run ORDER BY asked_ms, call",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let pending: String = row.try_get("pending")?;
                Ok(Waiting {
                    run: runs::id(row, "run")?,
                    owner: row.try_get("owner")?,
                    within: runs::id(row, "within")?,
                    pending: serde_json::from_str(&pending)
                        .map_err(|error| sqlx::Error::Decode(error.into()))?,
                    is_decided: row.try_get::<i64, _>("decided")? != 0,
                })
            })
            .collect()
    }

    /// Leaves a decision for whoever runs the call. The last one before it is taken up counts. Returns
    /// whether the call waits at all.
    pub async fn decide(
        &self,
        within: Uuid,
        call: &str,
        decision: &Decision,
    ) -> Result<bool, StoreError> {
        let text =
            serde_json::to_string(decision).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let result =
            sqlx::query("UPDATE approvals SET decision = $3 WHERE within = $1 AND call = $2")
                .bind(within.to_string())
                .bind(call)
                .bind(text)
                .execute(&self.pool)
                .await?;
        self.decided.notify_waiters();
        Ok(result.rows_affected() > 0)
    }

    /// Waits until this process takes note of a decision about any call, from now on.
    pub fn decides(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// The decision about a call, if there is one. One that nobody can read is as good as none.
    pub async fn decision(&self, within: Uuid, call: &str) -> Result<Option<Decision>, StoreError> {
        let text: Option<Option<String>> =
            sqlx::query_scalar("SELECT decision FROM approvals WHERE within = $1 AND call = $2")
                .bind(within.to_string())
                .bind(call)
                .fetch_optional(&self.pool)
                .await?;
        Ok(text
            .flatten()
            .and_then(|text| serde_json::from_str(&text).ok()))
    }
}
