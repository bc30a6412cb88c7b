//! The stages of a tool call. They are the same for a call of a model's reply, a plan's step, a module that
//! calls another module's tool, an MCP client, or a person at the terminal.
//!
//! ```text
//! the arguments are revealed, and hidden from the tool                     privacy
//!   → they fit the tool's parameters, and the call is no repetition        check, repeats
//!   → shields on the arguments; what they leave is checked again           screen
//!   → a person decides, about exactly what will run                       decide
//!   → it counts in a budget                                                budget
//!   → it is begun in the record                                            record
//!   → the toolbox runs it, again where it failed for now                   pipeline, retry
//!   → where it continues as a job, that is recorded and asked about        job
//!   → what it returned is revealed                                         privacy
//!   → the result fits the tool's output schema, shields on it              check, screen
//!   → its bytes are kept beside the record                                 blobs
//!   → it is hidden from the caller, and ended in the record                privacy, record
//! ```
//!
//! Each stage is implemented here, once. Two conductors call them in this order. The calls of a run's model and of
//! its plan are conducted by the run's [machine](crate::run::Machine), because a run can be played again from
//! its record: what shields and people say is an input of it. All others are conducted by a [`CallPipeline`],
//! which waits for them.
//!
//! The guard against repetition is about a model that asks the same thing again and again, so it remembers the
//! calls of one run's model. A call that no model makes has no such memory.

pub(crate) mod aside;
mod blobs;
mod budget;
mod cached;
mod check;
pub(crate) mod decide;
mod job;
mod nested;
pub(crate) mod pipeline;
pub(crate) mod privacy;
mod record;
mod repeats;
mod retry;
pub(crate) mod screen;
mod tools;

pub use crate::catalogue::{CallableTool, SchemaError, ToolCheck, validator};
pub use aside::checked;
pub use blobs::KeptBlobs;
pub use budget::{CallBudget, CallPermit, NoBudget, Unlimited};
pub(crate) use cached::ResultsOfRun;
pub use cached::{KeptResults, ResultCache};
pub use check::CallChecks;
pub use decide::{CallDecider, NoDecision};
pub(crate) use job::{FollowedJob, RecordedJob};
pub use job::{OpenJobs, call_to_end};
pub use nested::NestedCaller;
pub use pipeline::{CallPipeline, CallRequest, CallRules, CallingTool, NotCalled};
pub use privacy::{CalledTool, PartyPrivacy};
pub use record::{CallEnd, CallRecorder, CallRecording, NewCall};
pub use repeats::{CallMoment, Refusal, Refusals, Repeats, Repetition};
pub(crate) use retry::Attempts;
pub use retry::NestedEffects;
pub use tools::CallableTools;
