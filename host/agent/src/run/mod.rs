//! A run: from a task to an output, or to a reason why there is none.
//!
//! [`Machine`] decides and does no I/O; [`Driver`] performs what it asks for, tells it the outcomes,
//! and journals every event before anyone sees it.

pub mod bind;
mod budget_tracker;
mod cancel;
mod counting;
pub mod decider;
mod driver;
mod machine;
mod open_calls;
mod outcomes;
mod recorded_jobs;
mod recorded_modules;
pub mod replay;
mod rules;
mod schedule;
mod sub_agent;

pub use budget_tracker::{Budget, Budgets, RunUsage};
pub use cancel::RunCancel;
pub use driver::{Driver, OperatorTexts, Run};
pub use machine::{Action, Effects, Input, Machine, Work};
pub use outcomes::{CandidateAttempt, CandidateOutcomes};
pub use recorded_modules::RecordedModules;
pub use sub_agent::SubAgentEnd;
