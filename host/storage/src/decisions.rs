//! Calls that wait for a person, and the decisions. A decision is kept until the run's journal has it.

use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use tokio::sync::futures::Notified;
use toolhold_protocol::decision::{Decision, Pending};
use uuid::Uuid;

/// A call that waits for a decision.
#[derive(Debug)]
pub struct WaitingDecision {
    /// The top-level run, which has the record.
    pub run: Uuid,
    /// Owner of the run.
    pub owner: String,
    /// The run that makes the call: `run`, or a sub-agent's run inside it.
    pub within: Uuid,
    /// The call, and what a person should know about it.
    pub pending: Pending,
    /// A decision was made, and the run has not read it yet.
    pub is_decided: bool,
}

/// Outcome of [`Store::decide`].
#[derive(Debug, PartialEq)]
pub enum DecideOutcome {
    /// The decision holds. A person who repeats a decision gets this, too.
    Stored,
    /// Another decision was stored before, and holds.
    Already(Decision),
    /// The call does not wait, or is another than the one that was shown.
    Gone,
}

/// Selects the waiting calls. They are few, and an owner's runs may be many: `CROSS JOIN` makes SQLite start with the
/// calls.
pub(crate) const WAITING: &str = "SELECT approvals.run AS run, runs.owner AS owner, within, pending, \
     CAST(CASE WHEN decision IS NULL THEN 0 ELSE 1 END AS BIGINT) AS decided \
     FROM approvals CROSS JOIN runs WHERE runs.id = approvals.run";

impl Store {
    /// The waiting calls of all runs, or of one owner's runs, oldest first.
    pub async fn waiting(&self, owner: Option<&str>) -> Result<Vec<WaitingDecision>, StoreError> {
        match owner {
            None => self.those_waiting("", &[]).await,
            Some(owner) => self.those_waiting("AND runs.owner = $1", &[owner]).await,
        }
    }

    /// Bytes of the waiting calls of all runs, or of one owner's, as text.
    pub async fn waiting_bytes(&self, owner: Option<&str>) -> Result<u64, StoreError> {
        let bytes: i64 = sqlx::query_scalar(
            "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(pending)), 0) AS BIGINT) FROM approvals CROSS JOIN runs \
             WHERE runs.id = approvals.run AND ($1 = 0 OR runs.owner = $2)",
        )
        .bind(i64::from(owner.is_some()))
        .bind(owner.unwrap_or_default().to_owned())
        .fetch_one(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// The waiting calls with the id `call`: of a run and its sub-agents, or of all runs.
    pub async fn waiting_as(
        &self,
        call: &str,
        run: Option<Uuid>,
    ) -> Result<Vec<WaitingDecision>, StoreError> {
        let which = "AND approvals.call = $1";
        match run {
            None => self.those_waiting(which, &[call]).await,
            Some(run) => {
                let which = format!("{which} AND approvals.run = $2");
                self.those_waiting(&which, &[call, &run.to_string()]).await
            }
        }
    }

    /// The waiting calls that match a condition, which must consist of constants.
    async fn those_waiting(
        &self,
        which: &str,
        values: &[&str],
    ) -> Result<Vec<WaitingDecision>, StoreError> {
        let statement = format!("{WAITING} {which} ORDER BY asked_ms, call");
        let query = sqlx::query(sqlx::AssertSqlSafe(statement));
        let query = values
            .iter()
            .fold(query, |query, value| query.bind((*value).to_owned()));
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        let waiting: Result<_, sqlx::Error> = rows.iter().map(waiting).collect();
        Ok(waiting?)
    }

    /// Stores a decision about the call `call` of the run `within`, if none was stored before: the first one holds, from
    /// whichever process. The decision names the call as it was shown by its digest.
    ///
    /// # Errors
    /// What the database says.
    pub async fn decide(
        &self,
        within: Uuid,
        call: &str,
        decision: &Decision,
    ) -> Result<DecideOutcome, StoreError> {
        let text =
            serde_json::to_string(decision).map_err(|error| sqlx::Error::Encode(error.into()))?;
        loop {
            let row: Option<Option<String>> = sqlx::query_scalar(
                "SELECT decision FROM approvals WHERE within = $1 AND call = $2 AND digest = $3",
            )
            .bind(within.to_string())
            .bind(call)
            .bind(&decision.digest)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
            let Some(before) = row else {
                return Ok(DecideOutcome::Gone);
            };
            let known: Option<Decision> = before
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok());
            // One about another digest decides nothing: the run ignores it.
            if let Some(known) = known.filter(|known| known.digest == decision.digest) {
                let is_repeated = known == *decision;
                return Ok(if is_repeated {
                    DecideOutcome::Stored
                } else {
                    DecideOutcome::Already(known)
                });
            }
            let stored = sqlx::query(
                "UPDATE approvals SET decision = $4 WHERE within = $1 AND call = $2 AND digest = $3 \
                 AND COALESCE(decision, '') = $5",
            )
            .bind(within.to_string())
            .bind(call)
            .bind(&decision.digest)
            .bind(&text)
            .bind(before.unwrap_or_default())
            .execute(&self.pool)
            .in_time(&self.database)
            .await?;
            if stored.rows_affected() > 0 {
                self.decided.notify_waiters();
                return Ok(DecideOutcome::Stored);
            }
            // Another decision came between the two statements, or the call was settled.
        }
    }

    /// Completes when this process stores the next decision, about any call.
    pub fn decides(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// The decision about a call; `None` without one, or if it cannot be decoded.
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

fn waiting(row: &AnyRow) -> Result<WaitingDecision, sqlx::Error> {
    let pending: String = row.try_get("pending")?;
    Ok(WaitingDecision {
        run: id(row, "run")?,
        owner: row.try_get("owner")?,
        within: id(row, "within")?,
        pending: serde_json::from_str(&pending)
            .map_err(|error| sqlx::Error::Decode(error.into()))?,
        is_decided: row.try_get::<i64, _>("decided")? != 0,
    })
}
