//! The agent loop: it asks a model, runs the tools the model calls, and asks again until there is an
//! output.
//!
//! What this crate promises: the loop itself ([`run::Machine`]) is a state machine without I/O, so
//! that every rule of the protocol can be tested without a clock or a network; every step leaves
//! one [`Event`], journalled before anyone sees it; a tool's fault is a message to the model and
//! never the end of a run; and every run ends, with a reason.
//!
//! Read it in this order: [`protocol`] (the data), [`run`] (the machine, then the driver that
//! performs what it asks), [`contract`] (how a Request becomes a chat completion and back),
//! [`model`] (the client), [`guard`] (what stands between a model's wish and a call). It knows
//! nothing of WebAssembly: tools are behind [`Toolbox`].
#![forbid(unsafe_code)]

pub mod contract;
pub mod error;
pub mod event;
pub mod guard;
pub mod model;
pub mod protocol;
pub mod run;
pub mod toolbox;

pub use contract::Contract;
pub use error::{ErrorClass, RunError};
pub use event::{Event, EventKind, Journal, StopReason};
pub use protocol::{Message, Saved, Shape, Tool};
pub use run::{Driver, Run, RunRequest, Settings};
pub use toolbox::{
    Activities, Activity, Module, ToolCall, ToolFailure, ToolOutput, ToolResult, ToolUsage, Toolbox,
};
