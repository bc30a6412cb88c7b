//! One tool call: what a caller asks for ([`Invocation`]), what comes back ([`CallReport`]), and the seams
//! that a running call uses ([`Listener`] for its logs and progress, [`NestedCalls`] for calls of other tools,
//! [`KnowledgeAccess`] for documents and facts). A call may continue as a job ([`JobState`]), about which the host asks later.

mod begin;
mod caller;
mod denial;
mod job;
mod knowledge;
mod listener;
mod nested;
mod profile;
mod redact;
mod report;

pub use begin::BeginCheck;
pub use caller::{Caller, OwnedCaller};
pub use denial::{AllowingRule, Denial, Denials};
pub use job::{BegunJob, JobQuestion, JobState, MAX_JOB_ID, is_job_id};
pub use knowledge::{
    FactQuery, FactToRemember, FoundPassages, KnowledgeAccess, KnowledgeCall, KnowledgeDocument,
    KnowledgeError, KnowledgePassage, KnowledgeResult, PassageQuery, ReadPlace, RememberedFact,
    SearchBy,
};
pub use listener::{Listener, Progress};
pub use nested::{CallClock, ClockPause, MAX_CALL_DEPTH, NestedCall, NestedCalls, NestedResult};
pub use profile::{CallProfile, ProfileSlot, ProfileSummary, ProfiledFunction};
pub use report::{CallReport, CallUsage, Output};

use crate::restrictions::GrantRestrictions;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// One tool call as a caller asks for it. [`Invocation::new`] sets the required part:
///
/// ```
/// # use toolhold_policy::Invocation;
/// # use std::time::Duration;
/// # let arguments = serde_json::json!({"expression": "1 + 1"});
/// let invocation = Invocation {
///     timeout: Some(Duration::from_secs(1)),
///     ..Invocation::new("call-1", "calculator.evaluate", &arguments)
/// };
/// ```
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    /// Unique in the run; the module sees it and logs carry it.
    pub id: &'a str,
    /// The tool's full name, `module.tool`.
    pub tool: &'a str,
    /// A JSON object.
    pub arguments: &'a Value,
    /// The context values that the call's scopes let in: path and value.
    pub context: &'a [(String, Value)],
    /// The call's reserved properties by their names on the wire (`docs/protocol.md`, 3), for a module that
    /// asks. They count as arguments do. `_tool` need not be among them.
    pub reserved: Option<&'a Map<String, Value>>,
    /// The tool as the caller knows it (`docs/protocol.md`, 3), for a module that asks. Absent: as the
    /// module itself describes it.
    pub tool_schema: Option<Arc<Value>>,
    /// A deadline tighter than the module's own.
    pub timeout: Option<Duration>,
    pub caller: Caller<'a>,
    /// The agent whose run makes the call. Empty: no agent does.
    pub agent: &'a str,
    /// What restricts the grants of the module, and of every module that it calls. Absent: nothing does.
    pub restrictions: Option<Arc<GrantRestrictions>>,
    /// Asked before the guest begins. Absent: it begins in any case.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// Receives what the guest logs and how far it is, while it runs.
    pub listener: Option<Arc<dyn Listener>>,
    /// Executes the calls that the module makes of other modules' tools. Absent: they are denied, whatever
    /// the module was granted.
    pub nested: Option<Arc<dyn NestedCalls>>,
    /// How many calls this one is nested in: 0 for a call that no module makes. See [`NestedCall::depth`].
    pub depth: u8,
    /// Takes a profile of the call. Absent: none is made.
    pub profile: Option<Arc<ProfileSlot>>,
    /// Asks about a job of an earlier call, under the limits and grants of a call of the same tool. Absent: the tool is
    /// called.
    pub job: Option<&'a JobQuestion>,
}

impl<'a> Invocation<'a> {
    /// A call without context, for the anonymous caller, with the module's own deadline.
    pub fn new(id: &'a str, tool: &'a str, arguments: &'a Value) -> Self {
        Self {
            id,
            tool,
            arguments,
            context: &[],
            reserved: None,
            tool_schema: None,
            timeout: None,
            caller: Caller::default(),
            agent: "",
            restrictions: None,
            begin: None,
            listener: None,
            nested: None,
            depth: 0,
            profile: None,
            job: None,
        }
    }
}
