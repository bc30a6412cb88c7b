//! What the program that serves brings along: its modules, what runs saved Requests, and where calls are recorded.

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::sync::Arc;
use toolhold_agent::Toolbox;
use toolhold_agent::calls::CallRecorder;
use toolhold_agent::run::approval::Approver;
use toolhold_policy::{Listener, ToolSpec};
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::saved::Saved;
use uuid::Uuid;

/// The modules whose tools clients call.
pub trait ModuleHost: Send + Sync + Debug {
    /// The tools that may be called now.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Whether a module of this name is there and may not run.
    fn disabled(&self, module: &str) -> Option<Disabled>;

    /// What runs the calls of a session: what a module keeps for a session is that one's.
    fn toolbox(&self, session: &str) -> Arc<dyn Toolbox>;
}

/// A module that a person has to approve first.
#[derive(Debug)]
pub struct Disabled {
    /// The name by which it is approved.
    pub slot: String,
    pub reason: String,
}

/// Runs saved Requests.
pub trait RequestRunner: Send + Sync + Debug {
    /// Runs one to its end. Dropped, the run is cancelled.
    fn run<'a>(&'a self, call: RequestCall<'a>) -> BoxFuture<'a, ToolResult>;
}

/// A call of a saved Request.
#[derive(Debug)]
pub struct RequestCall<'a> {
    /// The run's.
    pub id: Uuid,
    /// The Request's.
    pub name: &'a str,
    pub saved: &'a Saved,
    /// Absent: the file's own.
    pub input: Option<Value>,
    pub session: &'a str,
    /// For the record; empty for the user of this machine.
    pub owner: &'a str,
    /// The trace that the run goes on with.
    pub trace: &'a opentelemetry::Context,
    pub listener: Option<Arc<dyn Listener>>,
    /// The client's user. Whoever decides first counts.
    pub approver: Arc<dyn Approver>,
}

/// Records calls.
pub trait CallRecords: Send + Sync + Debug {
    /// The recorder of the calls of one caller.
    fn of(&self, caller: RecordedCaller) -> Arc<dyn CallRecorder>;
}

/// Whose calls are recorded.
#[derive(Debug, Clone, Default)]
pub struct RecordedCaller {
    /// The hash of the policy that they are under.
    pub policy: Arc<str>,
    /// Empty for the user of this machine.
    pub owner: String,
    /// By which way they come, and what the caller says of itself.
    pub way: Map<String, Value>,
    /// The trace that they go on with.
    pub trace: opentelemetry::Context,
}
