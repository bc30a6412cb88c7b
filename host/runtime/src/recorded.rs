//! Calls that belong to no run, an MCP client's or a person's: in the audit log and in traces as the calls
//! of runs are.
//!
//! A call's row is in the log before anybody gets what the call came to, or follows at once where whoever
//! serves wants it so ([`Durability::Queued`]). One that was cancelled has its row, too; one whose process is killed
//! meanwhile has none.

use crate::telemetry::cache_lookups;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolhold_agent::{ToolFailure, ToolResult, ToolUsage};
use toolhold_policy::redaction::Redaction;
use toolhold_sandbox::Registry;
use toolhold_storage::{CallRecord, Draft, Durability, Store, StoreError, kept_arguments};
use toolhold_telemetry::{CallSpan, Telemetry};

/// Whether calls are in the audit log, and what a result waits for before it is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditMode {
    /// Durability the row is on the disk.
    Durable,
    /// Durability the row is written: a process that is killed loses none; a machine that fails may lose the last.
    Written,
    /// For nothing; the row follows soon. A process that is killed loses the rows that are still to be written.
    Behind,
    Off,
}

/// Where such calls leave their records. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Recorder {
    audit: Option<Audit>,
    telemetry: Telemetry,
    /// Calls whose row is not written yet.
    open: TaskTracker,
}

/// The log, and what a result waits for.
#[derive(Debug, Clone)]
struct Audit {
    store: Store,
    until: Durability,
    /// A permit for each call that is made, or whose row is still to be written.
    room: Arc<Semaphore>,
}

/// Calls that run or whose row is not written yet. More wait to begin, which happens only when the database is
/// slow: far fewer run (`mcp_server.calls`). Each row holds its arguments.
const MAX_OPEN_CALLS: usize = 4_096;

/// A call that is about to be made.
#[derive(Debug)]
pub struct Begun<'a> {
    pub id: &'a str,
    pub tool: &'a str,
    pub arguments: &'a Value,
    /// The policy's hash.
    pub policy: &'a str,
    /// Whose it is; empty for the user of this machine.
    pub owner: &'a str,
    /// By which way it came, and what whoever makes it says of itself.
    pub way: Map<String, Value>,
    /// The trace that it goes on with.
    pub trace: &'a opentelemetry::Context,
}

/// What a call came to.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Result<Value, ToolFailure>,
    pub usage: ToolUsage,
    /// SHA-256 of the module that ran, in hex, if one did.
    pub module: Option<String>,
}

impl Ended {
    /// The call was not made.
    pub fn refused(failure: ToolFailure) -> Self {
        Self {
            outcome: Err(failure),
            usage: ToolUsage::default(),
            module: None,
        }
    }
}

impl From<ToolResult> for Ended {
    fn from(result: ToolResult) -> Self {
        Self {
            outcome: result.outcome.map(|output| output.value),
            usage: result.usage,
            module: result.module,
        }
    }
}

/// How long rows are waited for when a process ends.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

impl Recorder {
    /// `log`: where the audit log is, and what a result waits for; without one nothing is in it.
    pub fn new(log: Option<(Store, Durability)>, telemetry: Telemetry) -> Self {
        let audit = log.map(|(store, until)| Audit {
            store,
            until,
            room: Arc::new(Semaphore::new(MAX_OPEN_CALLS)),
        });
        Self {
            audit,
            telemetry,
            open: TaskTracker::new(),
        }
    }

    /// The host has these secrets now: none of them is in any record.
    pub fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        self.telemetry.renew_secrets(secrets.clone());
        if let Some(redaction) = self.redaction() {
            redaction.renew(secrets);
        }
    }

    pub fn watch_cache(&self, registry: &Registry) {
        let cached = registry.clone();
        self.telemetry.watch_cache(move || cache_lookups(&cached));
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Where the audit log is; none without one.
    pub fn store(&self) -> Option<&Store> {
        self.audit.as_ref().map(|audit| &audit.store)
    }

    /// While it is held, something is still to be written that [`Recorder::close`] waits for.
    pub fn open(&self) -> TaskTrackerToken {
        self.open.token()
    }

    /// # Errors
    /// What is called now would be in no log, as is known without trying.
    pub fn writable(&self) -> Result<(), StoreError> {
        self.store().map_or(Ok(()), Store::writable)
    }

    pub async fn begin(&self, begun: Begun<'_>) -> Recording {
        let Begun {
            id,
            tool,
            arguments,
            policy,
            owner,
            way,
            trace,
        } = begun;
        let record = self.redaction().map(|redaction| CallRecord {
            id: id.to_owned(),
            tool: tool.to_owned(),
            arguments: kept_arguments(redaction, arguments),
            policy: policy.to_owned(),
            owner: owner.to_owned(),
            way,
        });
        let room = match &self.audit {
            // Nobody closes it.
            Some(audit) => audit.room.clone().acquire_owned().await.ok(),
            None => None,
        };
        Recording {
            recorder: self.clone(),
            record,
            span: Some(self.telemetry.call(tool, id, trace, arguments)),
            began: Instant::now(),
            open: Some((self.open.token(), room)),
        }
    }

    /// Waits for what is still to be written, and sends what is still to be sent.
    pub async fn close(&self) {
        self.open.close();
        let written = tokio::time::timeout(CLOSE_GRACE, self.open.wait()).await;
        if written.is_err() {
            let calls = self.open.len();
            tracing::error!(
                calls,
                "the last calls are not in the audit log: it could not be written in time"
            );
        }
        self.telemetry.close().await;
    }

    fn redaction(&self) -> Option<&Redaction> {
        self.audit.as_ref().map(|audit| audit.store.redaction())
    }
}

/// A call that is being made. Dropped before it ended, it was cancelled.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    record: Option<CallRecord>,
    span: Option<CallSpan>,
    began: Instant,
    /// Durability its row is written.
    open: Option<(TaskTrackerToken, Option<OwnedSemaphorePermit>)>,
}

impl Recording {
    /// A person let it be made.
    pub fn approved_by(&mut self, whom: &str) {
        if let Some(record) = &mut self.record {
            record.way.insert("approved_by".into(), whom.into());
        }
    }

    /// It was no call: somebody is asked first, or the request was none.
    pub fn forget(mut self) {
        self.record = None;
        if let Some(span) = self.span.take() {
            span.forget();
        }
    }

    /// When this returns, the call is in the log, or will be.
    ///
    /// # Errors
    /// It is not, and nobody may be given what it came to.
    pub async fn end(mut self, ended: &Ended) -> io::Result<()> {
        if let Some(span) = self.span.take() {
            span.end(&ended.outcome, &ended.usage, ended.module.as_deref());
        }
        let draft = self.record.take().map(|record| {
            let (took, module) = (ended.usage.duration_us, ended.module.as_deref());
            record.ended(&ended.outcome, took, module)
        });
        match draft.and_then(|draft| self.writing(draft)) {
            // A task of its own: a caller that goes away now was told nothing, and the call was made.
            Some(writing) => tokio::spawn(writing).await.map_err(io::Error::other)?,
            None => Ok(()),
        }
    }

    fn writing(
        &mut self,
        draft: Draft,
    ) -> Option<impl Future<Output = io::Result<()>> + Send + use<>> {
        let audit = self.recorder.audit.clone()?;
        let open = self.open.take();
        Some(async move {
            let written = audit.store.audit_call(draft, audit.until, Box::new(open));
            let written = written.await;
            if let Err(error) = &written {
                tracing::error!(%error, "a call is not in the audit log");
            }
            written
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.record.is_none() && self.span.is_none() {
            return;
        }
        let message = "the caller did not wait for its end";
        let cancelled = ToolFailure::correctable("cancelled", message);
        let took = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let outcome = Err(cancelled);
        if let Some(span) = self.span.take() {
            let usage = ToolUsage {
                duration_us: took,
                ..ToolUsage::default()
            };
            span.end(&outcome, &usage, None);
        }
        let Some(record) = self.record.take() else {
            return;
        };
        let draft = record.ended(&outcome, took, None);
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(writing) = self.writing(draft)
        {
            runtime.spawn(writing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sqlx::Connection as _;
    use toolhold_storage::{AuditFilter, AuditOrder, Location};

    /// More rows than fit into the queue wait for the database, and whoever made the call that comes after
    /// them goes away.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_has_its_row_though_whoever_made_it_goes_away_while_the_queue_is_full() {
        const CALLS: usize = 1_500;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolhold.db");
        let patience = Duration::from_mins(1);
        let store = Store::open(&Location::File(file.clone()), patience)
            .await
            .unwrap();
        let recorder = Recorder::new(Some((store.clone(), Durability::Written)), Telemetry::off());
        let url = format!("sqlite://{}", file.display());
        let mut busy = sqlx::AnyConnection::connect(&url).await.unwrap();
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut busy)
            .await
            .unwrap();
        let calls = (0..CALLS).map(|number| {
            let recorder = recorder.clone();
            tokio::spawn(async move {
                let begun = Begun {
                    id: &number.to_string(),
                    tool: "m.f",
                    arguments: &json!({}),
                    policy: "p",
                    owner: "ann",
                    way: Map::new(),
                    trace: &opentelemetry::Context::new(),
                };
                let recording = recorder.begin(begun).await;
                let ended = Ended {
                    outcome: Ok(json!(number)),
                    usage: ToolUsage::default(),
                    module: None,
                };
                recording.end(&ended).await
            })
        });
        let calls: Vec<_> = calls.collect();
        let begun = async {
            while recorder.open.len() < CALLS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(patience, begun).await.unwrap();
        for call in calls {
            call.abort();
        }
        sqlx::query("ROLLBACK").execute(&mut busy).await.unwrap();
        recorder.open.close();
        recorder.open.wait().await;
        let most = u32::try_from(CALLS).unwrap() + 1;
        let entries = store
            .audited(&AuditFilter::default(), AuditOrder::After(0), most)
            .await
            .unwrap();
        assert_eq!(entries.len(), CALLS);
    }
}
