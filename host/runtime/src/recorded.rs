//! Calls that belong to no run, an MCP client's or a person's: in the audit log and in traces as the calls
//! of runs are.
//!
//! A call's row is in the log before anybody gets what the call came to, or follows at once where whoever
//! serves wants it so ([`Durability::Queued`]). One that was cancelled has its row, too; one whose process is killed
//! meanwhile has none.

use crate::telemetry::cache_lookups;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolhold_agent::calls::{CallEnd, CallRecorder, CallRecording, NewCall};
pub use toolhold_mcp::serve::AuditMode;
use toolhold_mcp::serve::{CallRecords, RecordedCaller};
use toolhold_policy::ErrorClass;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::approval::{Decision, Verdict};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolResult;
use toolhold_sandbox::Registry;
use toolhold_storage::{CallRecord, Draft, Durability, Store, kept_arguments};
use toolhold_telemetry::{CallSpan, Telemetry};

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

    async fn begin(
        &self,
        caller: &RecordedCaller,
        parent: Option<&str>,
        call: NewCall<'_>,
    ) -> Recording {
        let record = self.redaction().map(|redaction| {
            let mut way = caller.way.clone();
            if let Some(parent) = parent {
                way.insert("parent".into(), parent.into());
            }
            CallRecord {
                id: call.id.to_owned(),
                tool: call.tool.to_owned(),
                arguments: kept_arguments(redaction, call.arguments),
                policy: caller.policy.to_string(),
                owner: caller.owner.clone(),
                way,
            }
        });
        let room = match &self.audit {
            // Nobody closes it.
            Some(audit) => audit.room.clone().acquire_owned().await.ok(),
            None => None,
        };
        let span = self
            .telemetry
            .call(call.tool, call.id, &caller.trace, call.arguments);
        Recording {
            recorder: self.clone(),
            record,
            span: Some(span),
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

impl CallRecords for Recorder {
    fn of(&self, caller: RecordedCaller) -> Arc<dyn CallRecorder> {
        Arc::new(CallerRecorder {
            recorder: self.clone(),
            caller: Arc::new(caller),
            parent: None,
        })
    }
}

/// Records the calls of one caller, or those that one of them makes.
#[derive(Debug)]
struct CallerRecorder {
    recorder: Recorder,
    caller: Arc<RecordedCaller>,
    /// The call that makes them.
    parent: Option<String>,
}

impl CallRecorder for CallerRecorder {
    fn ready(&self) -> Result<(), ToolFailure> {
        let writable = self.recorder.store().map_or(Ok(()), Store::writable);
        writable.map_err(|error| ToolFailure {
            kind: "not_recorded".into(),
            class: ErrorClass::Retryable,
            message: format!(
                "nothing was called: the audit log cannot be written just now ({error}); try again later"
            ),
        })
    }

    fn begin<'a>(&'a self, call: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>> {
        Box::pin(async move {
            let parent = self.parent.as_deref();
            let recording = self.recorder.begin(&self.caller, parent, call).await;
            Box::new(recording) as Box<dyn CallRecording>
        })
    }

    fn within(&self, id: &str) -> Arc<dyn CallRecorder> {
        Arc::new(Self {
            recorder: self.recorder.clone(),
            caller: self.caller.clone(),
            parent: Some(id.to_owned()),
        })
    }
}

impl CallRecording for Recording {
    fn event(&mut self, event: EventKind) -> BoxFuture<'_, ()> {
        match (event, &mut self.record) {
            (EventKind::Decided { decision, .. }, Some(record)) => {
                if let (false, Some(whom)) = (is_refusal(&decision), decision.by) {
                    record.way.insert("approved_by".into(), whom.into());
                }
            }
            (EventKind::Shield(judgement), _) => {
                tracing::debug!(?judgement, "a shield judged");
            }
            // What a guard model costs is nobody's budget here.
            _ => {}
        }
        Box::pin(std::future::ready(()))
    }

    fn started<'a>(&'a mut self, others: Option<&'a Value>) -> BoxFuture<'a, ()> {
        if let (Some(others), Some(record), Some(redaction)) =
            (others, &mut self.record, self.recorder.redaction())
        {
            record.arguments = kept_arguments(redaction, others);
        }
        Box::pin(std::future::ready(()))
    }

    fn ended(mut self: Box<Self>, end: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
        let writing = self.close(end).and_then(|draft| self.writing(draft));
        Box::pin(async move {
            match writing {
                // A task of its own: a caller that goes away now was told nothing, and the call was made.
                Some(writing) => tokio::spawn(writing).await.map_err(io::Error::other)?,
                None => Ok(()),
            }
        })
    }

    fn forget(mut self: Box<Self>) {
        self.record = None;
        if let Some(span) = self.span.take() {
            span.forget();
        }
    }
}

fn is_refusal(decision: &Decision) -> bool {
    matches!(decision.verdict, Verdict::Refuse { .. })
}

impl Recording {
    /// Ends its span, and returns its row.
    fn close(&mut self, end: &CallEnd) -> Option<Draft> {
        let ToolResult {
            outcome,
            usage,
            module,
            ..
        } = &end.result;
        let outcome = outcome.as_ref().map(|output| &output.value);
        if let Some(span) = self.span.take() {
            span.end(outcome, usage, module.as_deref());
        }
        let record = self.record.take()?;
        Some(record.ended(outcome, usage.duration_us, module.as_deref(), end.by_host))
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
        let mut end = CallEnd::refused(cancelled);
        let took = self.began.elapsed().as_micros();
        end.result.usage.duration_us = u64::try_from(took).unwrap_or(u64::MAX);
        if let Some(draft) = self.close(&end)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
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
                let recorder = recorder.of(RecordedCaller {
                    owner: "ann".into(),
                    ..RecordedCaller::default()
                });
                let call = NewCall {
                    id: &number.to_string(),
                    tool: "m.f",
                    arguments: &json!({}),
                };
                let recording = recorder.begin(call).await;
                recording.ended(&CallEnd::answered(json!(number))).await
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
