//! Calls that wait for a person, and what people decided about them. A decision is there until the run's
//! journal has it.

use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::{Store, runs};
use sqlx::Row as _;
use sqlx::any::AnyRow;
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

/// What is known of calls that wait. They are few, and an owner's runs may be many: `CROSS JOIN` has SQLite
/// begin with the calls.
pub(super) const WAITING: &str = "SELECT approvals.run AS run, runs.owner AS owner, within, pending, \
     CAST(CASE WHEN decision IS NULL THEN 0 ELSE 1 END AS BIGINT) AS decided \
     FROM approvals CROSS JOIN runs WHERE runs.id = approvals.run";

impl Store {
    /// Every call that waits, of all runs or those of one owner, the oldest first.
    pub async fn waiting(&self, owner: Option<&str>) -> Result<Vec<Waiting>, StoreError> {
        match owner {
            None => self.those_waiting("", &[]).await,
            Some(owner) => self.those_waiting("AND runs.owner = $1", &[owner]).await,
        }
    }

    /// The calls of that id that wait: of a run and its sub-agents, or of all.
    pub async fn waiting_as(
        &self,
        call: &str,
        run: Option<Uuid>,
    ) -> Result<Vec<Waiting>, StoreError> {
        let which = "AND approvals.call = $1";
        match run {
            None => self.those_waiting(which, &[call]).await,
            Some(run) => {
                let which = format!("{which} AND approvals.run = $2");
                self.those_waiting(&which, &[call, &run.to_string()]).await
            }
        }
    }

    /// `which` is made of what is in this program only.
    async fn those_waiting(
        &self,
        which: &str,
        values: &[&str],
    ) -> Result<Vec<Waiting>, StoreError> {
        let statement = format!("{WAITING} {which} ORDER BY asked_ms, call");
        let query = sqlx::query(sqlx::AssertSqlSafe(statement));
        let query = values
            .iter()
            .fold(query, |query, value| query.bind((*value).to_owned()));
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        let waiting: Result<_, sqlx::Error> = rows.iter().map(waiting).collect();
        Ok(waiting?)
    }

    /// Leaves a decision for whoever runs the call. The last one before it is taken up counts. Returns
    /// whether the call still waits, and is the one that was decided about.
    pub async fn decide(&self, waiting: &Waiting, decision: &Decision) -> Result<bool, StoreError> {
        let text =
            serde_json::to_string(decision).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let result = sqlx::query(
            "UPDATE approvals SET decision = $5 WHERE run = $1 AND within = $2 AND call = $3 AND digest = $4",
        )
        .bind(waiting.run.to_string())
        .bind(waiting.within.to_string())
        .bind(&waiting.pending.call.id)
        .bind(&decision.digest)
        .bind(text)
        .execute(&self.pool)
        .in_time(&self.database)
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
                .in_time(&self.database)
                .await?;
        Ok(text
            .flatten()
            .and_then(|text| serde_json::from_str(&text).ok()))
    }
}

fn waiting(row: &AnyRow) -> Result<Waiting, sqlx::Error> {
    let pending: String = row.try_get("pending")?;
    Ok(Waiting {
        run: runs::id(row, "run")?,
        owner: row.try_get("owner")?,
        within: runs::id(row, "within")?,
        pending: serde_json::from_str(&pending)
            .map_err(|error| sqlx::Error::Decode(error.into()))?,
        is_decided: row.try_get::<i64, _>("decided")? != 0,
    })
}
