//! Calls that belong to no run, an MCP client's or a person's: in the audit log and in traces as the calls
//! of runs are.
//!
//! A call's row is in the log before anybody gets what the call came to. One that was cancelled has its row,
//! too; one whose process is killed meanwhile has none, for nobody got anything of it.

use crate::redaction::Redaction;
use crate::storage::{CallRecord, Draft, Store};
use crate::telemetry::{CallSpan, Telemetry};
use serde_json::{Map, Value};
use std::io;
use std::time::{Duration, Instant};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolhold_agent::{ToolFailure, ToolResult, ToolUsage};
use toolhold_sandbox::Registry;

/// Where such calls leave their records. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Recorder {
    audit: Option<Audit>,
    telemetry: Telemetry,
    /// Calls whose row is not written yet.
    open: TaskTracker,
}

/// The log, and what a row must survive before a result is given out.
#[derive(Debug, Clone)]
struct Audit {
    store: Store,
    is_durable: bool,
}

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

/// How long the rows of cancelled calls are waited for when a process ends.
const LINGER: Duration = Duration::from_secs(2);

impl Recorder {
    /// Without a store nothing is in the audit log. `is_durable`: rows survive the machine, and not only
    /// this process, before a result is given out.
    pub fn new(store: Option<Store>, is_durable: bool, telemetry: Telemetry) -> Self {
        let audit = store.map(|store| Audit { store, is_durable });
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
        self.telemetry.watch_cache(move || cached.cache_lookups());
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

    pub fn begin(&self, begun: Begun<'_>) -> Recording {
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
            arguments: redaction.kept(arguments),
            policy: policy.to_owned(),
            owner: owner.to_owned(),
            way,
        });
        Recording {
            recorder: self.clone(),
            record,
            span: Some(self.telemetry.call(tool, id, trace, arguments)),
            began: Instant::now(),
            _open: self.open.token(),
        }
    }

    /// Waits for what is still to be written, and sends what is still to be sent.
    pub async fn close(&self) {
        self.open.close();
        if tokio::time::timeout(LINGER, self.open.wait())
            .await
            .is_err()
        {
            tracing::warn!("calls that were cancelled may be missing in the audit log");
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
    _open: TaskTrackerToken,
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

    /// When this returns, the call is in the log.
    ///
    /// # Errors
    /// It is not, and nobody may be given what it came to.
    pub async fn end(mut self, ended: &Ended) -> io::Result<()> {
        if let Some(span) = self.span.take() {
            span.end(&ended.outcome, &ended.usage, ended.module.as_deref());
        }
        match (self.record.take(), self.recorder.audit.clone()) {
            (Some(record), Some(audit)) => {
                audit
                    .write(record.ended(
                        &ended.outcome,
                        ended.usage.duration_us,
                        ended.module.as_deref(),
                    ))
                    .await
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.record.is_none() && self.span.is_none() {
            return;
        }
        let message = "whoever made the call did not wait for its end";
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
        let (Some(record), Some(audit)) = (self.record.take(), self.recorder.audit.clone()) else {
            return;
        };
        let draft = record.ended(&outcome, took, None);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let open = self.recorder.open.token();
            runtime.spawn(async move {
                if let Err(error) = audit.write(draft).await {
                    tracing::error!(%error, "a cancelled call is not in the audit log");
                }
                drop(open);
            });
        }
    }
}

impl Audit {
    async fn write(&self, draft: Draft) -> io::Result<()> {
        self.store.audit_call(draft, self.is_durable).await
    }
}
