//! Why a call failed. The model reads [`CallError`] and acts on it; [`ErrorClass`] says whose move it is.

use crate::egress::HttpLimit;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use strum::IntoStaticStr;
use thiserror::Error;

/// Whose move it is after a failure (`docs/protocol.md`, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ErrorClass {
    /// Timeout, overload, transport: the same call may work later.
    Retryable,
    /// The caller (a model) should change the call; the message says how.
    Correctable,
    /// Configuration or authorisation is missing: neither time nor another call helps.
    Fatal,
}

impl ErrorClass {
    /// The class as records and the wire spell it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a call gave no result. Every limit has its own variant and names its bound.
#[derive(Debug, Error, IntoStaticStr)]
#[non_exhaustive]
#[strum(serialize_all = "snake_case")]
pub enum CallError {
    #[error("there is no tool named {tool:?}; {available}")]
    UnknownTool { tool: String, available: String },
    /// The component that began the job is not loaded any more.
    #[error(
        "the module of {tool} is another one now than when the job of this call began, so the result of the job is lost; \
         find out what the job did before you make the call again"
    )]
    JobExchanged { tool: String },
    #[error("the arguments do not fit: {reason}")]
    Arguments { reason: String },
    #[error(
        "the call computed for longer than its fuel limit of {limit} allows; ask for less work in one call"
    )]
    Fuel { limit: u64 },
    #[error("the call did not finish within its deadline of {} ms; ask for less work in one call", limit.as_millis())]
    Deadline { limit: Duration },
    #[error(
        "the call needed more than its memory limit of {limit} bytes; ask for less data in one call"
    )]
    Memory { limit: u64 },
    #[error("the call needed more than its limit of {limit} table elements")]
    Table { limit: u64 },
    #[error(
        "the call recursed deeper than the {limit} bytes of Wasm stack allow; give it less deeply nested input"
    )]
    Stack { limit: usize },
    #[error("the call opened more than its limit of {limit} handles")]
    Handles { limit: u64 },
    #[error(
        "the call moved more than its limit of {limit} bytes through files and streams; ask for less data in one call"
    )]
    HostBytes { limit: u64 },
    /// The host keeps as much for this call as it may, or would have to keep a result that is larger.
    #[error(
        "the call needed more than {limit} bytes of the host's memory, for what it holds open or for a result of very many small values; ask for less data in one call"
    )]
    KeptBytes { limit: u64 },
    /// The host keeps as much for all calls together as it may.
    #[error(
        "there is no memory of the host's left for the call: all calls and requests may keep {ceiling} bytes together, and \
         one key seven eighths of them (modules.kept_bytes); try again later"
    )]
    HostFull { ceiling: u64 },
    /// A file, directory or connection could not be opened, and the call failed after that.
    #[error(
        "the call, its module or all calls together have as many files and connections open as they may; open fewer at a \
         time, or try again later"
    )]
    Descriptors,
    /// A directory that the module may write to is full.
    #[error("the directory holds all it may: {reason}; delete something or write less")]
    Quota { reason: String },
    #[error("the module may be called {limit} times a minute; try again in {} s", retry_after.as_secs() + 1)]
    Rate { limit: u64, retry_after: Duration },
    /// The module asked for something it was not granted.
    #[error("denied: {reason}")]
    Denied { reason: String },
    /// The module as it is now is not approved.
    #[error(
        "{module} is disabled until a person approves it: {reason} (toolhold modules approve {module})"
    )]
    NotApproved { module: String, reason: String },
    /// The call ran while its pin or a part of its grant was taken back.
    #[error(
        "{module} was stopped in the middle of the call, because what it may use was taken back; what it did until then is done"
    )]
    Revoked { module: String },
    #[error(
        "the call returned more than its output limit of {limit} bytes; ask for a smaller part"
    )]
    Output { limit: u64 },
    /// A list or a text that the tool gave to the host in one of its calls was longer than a host call takes.
    #[error(
        "the tool gave the host more than {limit} bytes in one host call, such as a long list to wait for; give it less at a time"
    )]
    HostCall { limit: u64 },
    /// The tool asked for more random bytes at once than a host call returns.
    #[error("the tool asked for more than {limit} random bytes at once; ask for fewer at a time")]
    RandomBytes { limit: u64 },
    /// A limit of outbound HTTP fired, and the call failed after that.
    #[error("the call went beyond its limit of {limit}; ask for less in one call")]
    #[strum(serialize = "http-body")]
    HttpBody { limit: HttpLimit },
    /// A response held a secret that the operator lets nothing send back, and the call failed after that.
    #[error(
        "a response held a secret of the operator's that may not come back (reflect = \"deny\"), and was refused; another call that makes the server repeat it is refused, too"
    )]
    SecretReflected,
    #[error("the tool returned something that is not valid JSON: {reason}")]
    Encoding { reason: String },
    #[error("the tool crashed: {reason}")]
    Trap { reason: String },
    /// The tool itself said no.
    #[error("{message}")]
    Tool {
        class: ErrorClass,
        message: String,
        data: Option<Value>,
    },
    #[error("{places}; the call waited {} ms; try again later", waited.as_millis())]
    Busy {
        places: TakenPlaces,
        waited: Duration,
    },
    #[error("the tool could not be given what it was granted: {reason}")]
    Grant { reason: String },
    #[error("the host could not run the call: {reason}")]
    Host { reason: String },
}

/// Which places for running calls were taken when a call found none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TakenPlaces {
    /// All that the module itself may have.
    #[error(
        "this module already ran as many calls as it may for this caller, of {0} at a time (limits.concurrent_calls)"
    )]
    Module(usize),
    /// All of the host that this module and caller may have, by their own calls or those of others.
    #[error(
        "none of the {0} places for running calls was free for this module and caller (modules.concurrent_calls)"
    )]
    Host(usize),
    /// So many calls wait for a place already that no more may.
    #[error(
        "too many calls waited already for the {0} places for running calls that this host has (modules.concurrent_calls)"
    )]
    Queue(usize),
    /// All threads for work on files that this module and caller may have.
    #[error(
        "none of the {0} threads for work on files was free for this module and caller (modules.concurrent_calls)"
    )]
    Threads(usize),
    /// The pool of instances, though the call had a place: a fault of the host's, that of no tool.
    #[error("other calls held all that the host's pool of instances has")]
    Pool,
    /// A directory that calls of the module have to themselves, one at a time.
    #[error(
        "the module has the directory {guest} for one call at a time (exclusive), and {by} had it"
    )]
    Directory { guest: String, by: String },
}

impl CallError {
    /// The name of the error on the wire, in traces and in tests: `fuel`, `deadline`, `memory`, …
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Whether the call found no place, so that nothing of its module ran. Not so where the pool had no instance for it:
    /// parts of a component may have been started before.
    pub fn never_began(&self) -> bool {
        matches!(self, Self::Busy { places, .. } if *places != TakenPlaces::Pool)
    }

    /// Whose move it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Tool { class, .. } => *class,
            Self::Deadline { .. }
            | Self::Descriptors
            | Self::Busy { .. }
            | Self::Rate { .. }
            | Self::HostFull { .. } => ErrorClass::Retryable,
            Self::Grant { .. }
            | Self::Host { .. }
            | Self::Denied { .. }
            | Self::SecretReflected
            | Self::NotApproved { .. }
            | Self::Revoked { .. } => ErrorClass::Fatal,
            _ => ErrorClass::Correctable,
        }
    }
}
