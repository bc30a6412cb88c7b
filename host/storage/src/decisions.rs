//! Calls that wait for a person, and the decisions. A decision is kept until the run's journal has it.

use crate::column::{id, is_storable};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::str::FromStr;
use tokio::sync::futures::Notified;
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::event::EventKind;
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
    /// Place in lists; the next page begins after that of the last call.
    pub place: WaitingPlace,
}

/// The place of a waiting call in lists, which have the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPlace {
    /// Time at which the call began to wait, in milliseconds since 1970 (UTC).
    pub asked_ms: i64,
    pub within: Uuid,
    pub call: String,
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

/// Maximum number of decisions that [`Store::decision_taken`] reads.
const LATEST_DECISIONS: i64 = 64;

/// The decision in an event about this call, of a run or of a sub-agent inside it.
fn decision_about(call: &str, kind: EventKind) -> Option<Decision> {
    match kind {
        EventKind::Decided { id, decision, .. } if id == call => Some(decision),
        EventKind::Sub { what, .. } => decision_about(call, *what),
        _ => None,
    }
}

/// Selects the waiting calls. They are few, and an owner's runs may be many: `CROSS JOIN` makes SQLite start with the
/// calls.
pub(crate) const WAITING: &str = "SELECT approvals.run AS run, runs.owner AS owner, within, call, asked_ms, pending, \
     CAST(CASE WHEN decision IS NULL THEN 0 ELSE 1 END AS BIGINT) AS decided \
     FROM approvals CROSS JOIN runs WHERE runs.id = approvals.run";

impl Store {
    /// The waiting calls of all runs, or of one owner's runs, oldest first: at most `most` after `after`.
    pub async fn waiting(
        &self,
        owner: Option<&str>,
        after: Option<&WaitingPlace>,
        most: u32,
    ) -> Result<Vec<WaitingDecision>, StoreError> {
        let query = sqlx::query(sqlx::AssertSqlSafe(page_statement(owner.is_some())));
        let after = after.cloned().unwrap_or_default();
        let query = query
            .bind(after.asked_ms)
            .bind(after.within.to_string())
            .bind(after.call)
            .bind(i64::from(most));
        let query = match owner {
            Some(owner) => query.bind(owner.to_owned()),
            None => query,
        };
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        let waiting: Result<_, sqlx::Error> = rows.iter().map(waiting).collect();
        Ok(waiting?)
    }

    /// Bytes of such a page, as text.
    pub async fn waiting_bytes(
        &self,
        owner: Option<&str>,
        after: Option<&WaitingPlace>,
        most: u32,
    ) -> Result<u64, StoreError> {
        let statement = format!(
            "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(pending)), 0) AS BIGINT) FROM ({}) AS page",
            page_statement(owner.is_some())
        );
        let after = after.cloned().unwrap_or_default();
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
            .bind(after.asked_ms)
            .bind(after.within.to_string())
            .bind(after.call)
            .bind(i64::from(most));
        let query = match owner {
            Some(owner) => query.bind(owner.to_owned()),
            None => query,
        };
        let bytes: i64 = query.fetch_one(&self.pool).in_time(&self.database).await?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// The waiting calls with the id `call`: of a run and its sub-agents, or of all runs.
    pub async fn waiting_as(
        &self,
        call: &str,
        run: Option<Uuid>,
    ) -> Result<Vec<WaitingDecision>, StoreError> {
        if !is_storable(call) {
            return Ok(Vec::new());
        }
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
        if !is_storable(call) || !is_storable(&decision.digest) {
            return Ok(DecideOutcome::Gone);
        }
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
            let values = vec![
                within.into(),
                call.to_owned().into(),
                decision.digest.clone().into(),
                text.clone().into(),
                before.unwrap_or_default().into(),
            ];
            if self.execute(STORE_DECISION, values).await? > 0 {
                self.decided.notify_waiters();
                return Ok(DecideOutcome::Stored);
            }
            // Another decision came between the two statements, or the call was settled.
        }
    }

    /// The decision that the top-level run `run` took up about a call with this id and digest, from its record. The call
    /// may be one of a sub-agent. Looks at the newest 64 decisions of the run.
    ///
    /// # Errors
    /// What the database says.
    pub async fn decision_taken(
        &self,
        run: Uuid,
        call: &str,
        digest: &str,
    ) -> Result<Option<Decision>, StoreError> {
        let decided: Vec<i64> = sqlx::query_scalar(
            "SELECT seq FROM audit WHERE run = $1 AND action = 'approval_decided' ORDER BY seq DESC LIMIT $2",
        )
        .bind(run.to_string())
        .bind(LATEST_DECISIONS)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        // One at a time: a decision may have large arguments.
        for seq in decided {
            let event = self.event_at(run, seq).await?;
            let decision = event.and_then(|event| decision_about(call, event.kind));
            if let Some(decision) = decision.filter(|decision| decision.digest == digest) {
                return Ok(Some(decision));
            }
        }
        Ok(None)
    }

    /// Completes when this process stores the next decision, about any call.
    pub fn decides(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// The decision about a call; `None` without one, or if it cannot be decoded.
    pub async fn decision(&self, within: Uuid, call: &str) -> Result<Option<Decision>, StoreError> {
        if !is_storable(call) {
            return Ok(None);
        }
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

const STORE_DECISION: &str = "UPDATE approvals SET decision = $4 WHERE within = $1 AND call = $2 AND digest = $3 \
     AND COALESCE(decision, '') = $5";

/// The statement of a page: place from $1 to $3, number of calls $4, and the owner $5 where `is_of_one`.
pub(crate) fn page_statement(is_of_one: bool) -> String {
    let whose = if is_of_one {
        "AND runs.owner = $5 "
    } else {
        ""
    };
    format!(
        "{WAITING} AND (asked_ms, within, call) > ($1, $2, $3) {whose}ORDER BY asked_ms, within, call LIMIT $4"
    )
}

impl Default for WaitingPlace {
    /// Before all calls.
    fn default() -> Self {
        Self {
            asked_ms: i64::MIN,
            within: Uuid::nil(),
            call: String::new(),
        }
    }
}

impl std::fmt::Display for WaitingPlace {
    /// Writes the text that [`FromStr`] reads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.asked_ms, self.within, self.call)
    }
}

/// A text is no [`WaitingPlace`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `next` of the page before")]
pub struct NoWaitingPlace;

impl FromStr for WaitingPlace {
    type Err = NoWaitingPlace;

    fn from_str(text: &str) -> Result<Self, NoWaitingPlace> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(NoWaitingPlace);
        let place = Self {
            asked_ms: part()?.parse().map_err(|_| NoWaitingPlace)?,
            within: part()?.parse().map_err(|_| NoWaitingPlace)?,
            call: part()?.to_owned(),
        };
        is_storable(&place.call)
            .then_some(place)
            .ok_or(NoWaitingPlace)
    }
}

fn waiting(row: &AnyRow) -> Result<WaitingDecision, sqlx::Error> {
    let pending: String = row.try_get("pending")?;
    let within = id(row, "within")?;
    Ok(WaitingDecision {
        run: id(row, "run")?,
        owner: row.try_get("owner")?,
        within,
        place: WaitingPlace {
            asked_ms: row.try_get("asked_ms")?,
            within,
            call: row.try_get("call")?,
        },
        pending: serde_json::from_str(&pending)
            .map_err(|error| sqlx::Error::Decode(error.into()))?,
        is_decided: row.try_get::<i64, _>("decided")? != 0,
    })
}
