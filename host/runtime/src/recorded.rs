//! Calls outside of runs, by an MCP client or a person, recorded in the audit log and in traces like calls of
//! runs.
//!
//! That a call begins is written before its tool is called, and its row is in the log before its result is returned.
//! A cancelled call has a row, too; that of a call whose process was killed is written by the next process that
//! reads the log. With [`Durability::Queued`] the row follows at once, and a killed process loses the last rows and
//! those of running calls.

use crate::telemetry::watch_sandbox;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolhold_agent::calls::{CallEnd, CallRecorder, CallRecording, NewCall};
pub use toolhold_mcp::serve::AuditMode;
use toolhold_mcp::serve::{CallRecords, RecordedCaller};
use toolhold_policy::ErrorClass;
use toolhold_protocol::decision::{Decision, Verdict};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolResult;
use toolhold_sandbox::Registry;
use toolhold_storage::{AuditContent, CallRecord, Draft, Durability, Store};
use toolhold_telemetry::{CallSpan, Telemetry};

/// The recorder of calls outside of runs. Clones share it: each call has some.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    audit: Option<Audit>,
    telemetry: Telemetry,
    /// Counts calls whose row is not written or refused yet.
    open: TaskTracker,
    /// Number of calls whose row could not be written.
    failed: AtomicUsize,
}

/// The log, and the durability that a result waits for.
#[derive(Debug)]
struct Audit {
    store: Store,
    until: Durability,
    /// One permit for each call that runs or whose row is not written yet.
    room: Arc<Semaphore>,
}

/// Most calls that run or whose row is not written yet. Further calls wait to begin, which happens only when
/// the database is slow: far fewer run at a time (`mcp_server.calls`). Each row holds its arguments in
/// memory.
const MAX_OPEN_CALLS: usize = 4_096;

/// Time to write the remaining rows when a process ends.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

impl Recorder {
    /// `log`: the audit log, and the durability that a result waits for; absent: nothing is logged.
    pub fn new(log: Option<(Store, Durability)>, telemetry: Telemetry) -> Self {
        let audit = log.map(|(store, until)| Audit {
            store,
            until,
            room: Arc::new(Semaphore::new(MAX_OPEN_CALLS)),
        });
        Self(Arc::new(RecorderState {
            audit,
            telemetry,
            open: TaskTracker::new(),
            failed: AtomicUsize::default(),
        }))
    }

    /// Replaces the secrets that are removed from all records.
    pub fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        self.0.telemetry.renew_secrets(secrets.clone());
        if let Some(content) = self.content() {
            content.redaction.renew(secrets);
        }
    }

    pub fn watch(&self, registry: &Registry) {
        watch_sandbox(&self.0.telemetry, registry);
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    /// The audit log, if there is one.
    pub fn store(&self) -> Option<&Store> {
        self.0.audit.as_ref().map(|audit| &audit.store)
    }

    /// While the guard exists, [`Recorder::close`] waits for a write.
    pub fn open(&self) -> TaskTrackerToken {
        self.0.open.token()
    }

    async fn begin(
        &self,
        caller: &RecordedCaller,
        parent: Option<&str>,
        call: NewCall<'_>,
    ) -> Recording {
        let record = self.content().map(|content| {
            let mut way = caller.members();
            if let Some(parent) = parent {
                way.insert("parent".into(), parent.into());
            }
            CallRecord {
                id: call.id.to_owned(),
                tool: call.tool.to_owned(),
                arguments: content.kept(call.arguments),
                policy: caller.policy.to_string(),
                owner: caller.owner.clone(),
                way,
            }
        });
        let room = match &self.0.audit {
            // The semaphore is never closed.
            Some(audit) => audit.room.clone().acquire_owned().await.ok(),
            None => None,
        };
        let span = self
            .0
            .telemetry
            .call(call.tool, call.id, &caller.trace, call.arguments);
        Recording {
            recorder: self.clone(),
            record,
            span: Some(span),
            began: Instant::now(),
            was_begun: false,
            open: Some((self.0.open.token(), room)),
        }
    }

    /// Waits until all rows are written and all spans sent.
    pub async fn close(&self) {
        self.0.open.close();
        let written = tokio::time::timeout(CLOSE_GRACE, self.0.open.wait()).await;
        if written.is_err() {
            let calls = self.0.open.len();
            tracing::error!(
                calls,
                "the last calls are not in the audit log: it could not be written in time"
            );
        }
        self.0.telemetry.close().await;
    }

    /// Number of calls whose row is not written or refused yet. Calls whose tool is not called yet count, too.
    pub fn unwritten(&self) -> usize {
        self.0.open.len()
    }

    /// Number of calls whose row could not be written when they ended. The log lacks the row until it is written later.
    pub fn failed(&self) -> usize {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Logs and counts a row that could not be written.
    fn note(&self, written: &io::Result<()>) {
        if let Err(error) = written {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "a call is not in the audit log");
        }
    }

    fn content(&self) -> Option<&AuditContent> {
        self.0.audit.as_ref().map(|audit| audit.store.content())
    }
}

/// A call in progress. Dropping it records a cancelled call.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    record: Option<CallRecord>,
    span: Option<CallSpan>,
    began: Instant,
    /// Whether its tool was called.
    was_begun: bool,
    /// How durable the row must be before the result is returned.
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

/// Records the calls of one caller, or those nested in one call.
#[derive(Debug)]
struct CallerRecorder {
    recorder: Recorder,
    caller: Arc<RecordedCaller>,
    /// The outer call.
    parent: Option<String>,
}

impl CallRecorder for CallerRecorder {
    fn ready(&self) -> Result<(), ToolFailure> {
        let writable = self.recorder.store().map_or(Ok(()), Store::writable);
        writable.map_err(|error| not_recorded(&error))
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
            (EventKind::ToolRetry { retry, .. }, _) => {
                tracing::warn!(?retry, "a call failed for now and is made again");
            }
            // The costs of a guard model belong to no budget here.
            _ => {}
        }
        Box::pin(std::future::ready(()))
    }

    fn started<'a>(
        &'a mut self,
        others: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async move {
            self.was_begun = true;
            let Some(record) = &mut self.record else {
                return Ok(());
            };
            if let (Some(others), Some(content)) = (others, self.recorder.content()) {
                record.arguments = content.kept(others);
            }
            let Some(audit) = &self.recorder.0.audit else {
                return Ok(());
            };
            let begun = audit.store.audit_begin(record, audit.until).await;
            begun.map_err(|error| {
                tracing::error!(%error, "the begin of a call cannot be recorded");
                self.was_begun = false;
                not_recorded(&error)
            })
        })
    }

    fn ended(mut self: Box<Self>, end: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
        let writing = self.close(end).and_then(|row| self.writing(row));
        Box::pin(async move {
            match writing {
                Some(written) => written.await,
                None => Ok(()),
            }
        })
    }

    fn forget(mut self: Box<Self>) {
        if self.was_begun {
            return;
        }
        self.record = None;
        if let Some(span) = self.span.take() {
            span.forget();
        }
    }
}

fn not_recorded(error: &dyn Display) -> ToolFailure {
    ToolFailure {
        kind: "not_recorded".into(),
        class: ErrorClass::Retryable,
        message: format!(
            "nothing was called: the audit log cannot be written just now ({error}); try again later"
        ),
    }
}

fn is_refusal(decision: &Decision) -> bool {
    matches!(decision.verdict, Verdict::Refuse { .. })
}

impl Recording {
    /// Ends the span, and returns the call's id and row.
    fn close(&mut self, end: &CallEnd) -> Option<(String, Draft)> {
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
        let id = record.id.clone();
        let row = record.ended(
            self.recorder.content()?,
            outcome,
            usage,
            module.as_deref(),
            end.by_host,
        );
        Some((id, row))
    }

    /// Begins to write the row. The guard that counts the call as open is dropped when the row is written or refused.
    fn writing(&mut self, (call, row): (String, Draft)) -> Option<RowWrite> {
        let audit = self.recorder.0.audit.as_ref()?;
        let open = Box::new(self.open.take());
        let write = audit.store.audit_call(&call, row, audit.until, open);
        Some(RowWrite {
            write: Some(write.into_future()),
            recorder: self.recorder.clone(),
        })
    }
}

/// Write of a call's row. A write that is dropped too early continues in a task of its own: the tool was called, so its row
/// must be written, or its failure counted, also if the caller goes away.
struct RowWrite {
    /// Absent once the row is written or refused.
    write: Option<BoxFuture<'static, io::Result<()>>>,
    recorder: Recorder,
}

impl Future for RowWrite {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(write) = &mut self.write else {
            return Poll::Ready(Ok(()));
        };
        let written = ready!(write.as_mut().poll(context));
        self.write = None;
        self.recorder.note(&written);
        Poll::Ready(written)
    }
}

impl Drop for RowWrite {
    fn drop(&mut self) {
        let Some(write) = self.write.take() else {
            return;
        };
        // Without a runtime nobody asks for failures any more. A row in the queue is written without a task.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let recorder = self.recorder.clone();
            // Taken here, so that a recorder that is closed now waits for the failure.
            let open = recorder.open();
            runtime.spawn(async move {
                recorder.note(&write.await);
                drop(open);
            });
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.record.is_none() && self.span.is_none() {
            return;
        }
        let mut end = CallEnd::dropped(self.was_begun);
        let took = self.began.elapsed().as_micros();
        end.result.usage.duration_us = u64::try_from(took).unwrap_or(u64::MAX);
        if let Some(row) = self.close(&end) {
            drop(self.writing(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sqlx::Connection as _;
    use toolhold_storage::{AuditFilter, AuditOrder, Location};

    /// More rows than the queue holds wait for the database, and the caller of the next call goes away.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_is_audited_even_if_its_caller_leaves_while_the_queue_is_full() {
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
                    may_be_repeated: false,
                    gives_bytes: true,
                };
                let recording = recorder.begin(call).await;
                recording.ended(&CallEnd::answered(json!(number))).await
            })
        });
        let calls: Vec<_> = calls.collect();
        let begun = async {
            while recorder.0.open.len() < CALLS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(patience, begun).await.unwrap();
        for call in calls {
            call.abort();
        }
        sqlx::query("ROLLBACK").execute(&mut busy).await.unwrap();
        recorder.0.open.close();
        recorder.0.open.wait().await;
        let most = u32::try_from(CALLS).unwrap() + 1;
        let entries = store
            .audited(&AuditFilter::default(), AuditOrder::After(0), most)
            .await
            .unwrap();
        assert_eq!(entries.len(), CALLS);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_that_has_begun_cannot_be_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_mins(1))
            .await
            .unwrap();
        let log = Some((store.clone(), Durability::Written));
        let recorder = Recorder::new(log, Telemetry::off());
        let calls = recorder.of(RecordedCaller::default());
        for (id, is_begun) in [("new", false), ("begun", true)] {
            let arguments = json!({});
            let call = NewCall {
                id,
                tool: "m.f",
                arguments: &arguments,
                may_be_repeated: false,
                gives_bytes: true,
            };
            let mut recording = calls.begin(call).await;
            if is_begun {
                recording.started(None).await.unwrap();
            }
            recording.forget();
        }
        recorder.0.open.close();
        recorder.0.open.wait().await;
        let entries = store
            .audited(&AuditFilter::default(), AuditOrder::After(0), 9)
            .await
            .unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        let text = format!("{entries:?}");
        assert!(
            text.contains("begun") && text.contains("interrupted"),
            "{text}"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_refused_row_of_a_stopped_call_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolhold.db");
        let store = Store::open(&Location::File(file.clone()), Duration::from_mins(1))
            .await
            .unwrap();
        let log = Some((store.clone(), Durability::OnDisk));
        let recorder = Recorder::new(log, Telemetry::off());
        let calls = recorder.of(RecordedCaller::default());
        let arguments = json!({});
        let call = |id| NewCall {
            id,
            tool: "m.f",
            arguments: &arguments,
            may_be_repeated: false,
            gives_bytes: true,
        };
        let mut written = calls.begin(call("written")).await;
        written.started(None).await.unwrap();
        let mut refused = calls.begin(call("refused")).await;
        refused.started(None).await.unwrap();
        let ended = written.ended(&CallEnd::answered(json!(1))).await;
        assert!(ended.is_ok() && recorder.failed() == 0, "{ended:?}");
        let url = format!("sqlite://{}", file.display());
        let mut other = sqlx::AnyConnection::connect(&url).await.unwrap();
        let trigger = "CREATE TRIGGER refusal BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no row'); END";
        sqlx::query(trigger).execute(&mut other).await.unwrap();
        drop(refused);
        recorder.close().await;
        assert_eq!((recorder.unwritten(), recorder.failed()), (0, 1));
    }
}
