//! What can go wrong, by audience: [`LoadError`] is read by whoever runs the host, [`CallError`] by
//! the model, which acts on it.

use crate::egress::HttpLimit;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use thiserror::Error;

/// Whose move it is after a failed call (PROTOCOL.md, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The same call may work later.
    Retryable,
    /// The caller should change the call; the message says how.
    Correctable,
    /// Neither helps: configuration or authorisation is missing.
    Fatal,
}

/// Why a call gave no result. Every limit has its own variant and names its bound.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    #[error("there is no tool named {tool:?}; {available}")]
    UnknownTool { tool: String, available: String },
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
    /// A directory that the module may write to is full.
    #[error("the directory holds all it may: {reason}; delete something or write less")]
    Quota { reason: String },
    #[error("the module may be called {limit} times a minute; try again in {} s", retry_after.as_secs() + 1)]
    Rate { limit: u64, retry_after: Duration },
    /// The module asked for something it was not granted.
    #[error("denied: {reason}")]
    Denied { reason: String },
    /// Nobody has approved the module as it is now.
    #[error(
        "{module} is disabled until a person approves it: {reason} (toolhold modules approve {module})"
    )]
    NotApproved { module: String, reason: String },
    #[error(
        "the call returned more than its output limit of {limit} bytes; ask for a smaller part"
    )]
    Output { limit: u64 },
    /// A limit of outbound HTTP fired, and the call failed after that.
    #[error("the call went beyond its limit of {limit}; ask for less in one call")]
    HttpBody { limit: HttpLimit },
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
    #[error("all {permits} places for running calls were taken for {} ms; try again later", waited.as_millis())]
    Busy { permits: usize, waited: Duration },
    #[error("the tool could not be given what it was granted: {reason}")]
    Grant { reason: String },
    #[error("the host could not run the call: {reason}")]
    Host { reason: String },
}

impl CallError {
    /// The name of the error on the wire, in traces and in tests: `fuel`, `deadline`, `memory`, …
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UnknownTool { .. } => "unknown_tool",
            Self::Arguments { .. } => "arguments",
            Self::Fuel { .. } => "fuel",
            Self::Deadline { .. } => "deadline",
            Self::Memory { .. } => "memory",
            Self::Table { .. } => "table",
            Self::Stack { .. } => "stack",
            Self::Handles { .. } => "handles",
            Self::HostBytes { .. } => "host_bytes",
            Self::Quota { .. } => "quota",
            Self::Rate { .. } => "rate",
            Self::Denied { .. } => "denied",
            Self::NotApproved { .. } => "not_approved",
            Self::Output { .. } => "output",
            Self::HttpBody { .. } => "http-body",
            Self::Encoding { .. } => "encoding",
            Self::Trap { .. } => "trap",
            Self::Tool { .. } => "tool",
            Self::Busy { .. } => "busy",
            Self::Grant { .. } => "grant",
            Self::Host { .. } => "host",
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Tool { class, .. } => *class,
            Self::Deadline { .. } | Self::Busy { .. } | Self::Rate { .. } => ErrorClass::Retryable,
            Self::Grant { .. }
            | Self::Host { .. }
            | Self::Denied { .. }
            | Self::NotApproved { .. } => ErrorClass::Fatal,
            _ => ErrorClass::Correctable,
        }
    }
}

/// Why a file or folder is not a module. The message names what to do; the file's name is kept by
/// [`crate::FailedModule`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("it cannot be read: {source}")]
    Read {
        #[source]
        source: std::io::Error,
    },
    #[error("it changed while it was read; it will be read again when it is finished")]
    Changing,
    /// It is to come from elsewhere, and did not.
    #[error("it cannot be fetched: {reason}")]
    Fetch { reason: String },
    /// The component's file is absent. With a language it can be built from the source beside it.
    #[error("the component {file:?} is not there{}", if language.is_some() { "; `toolhold build` and the folder's name make it from its source" } else { "" })]
    Missing {
        file: String,
        language: Option<String>,
    },
    #[error(
        "it has {size} bytes, more than the {limit} that a component may have; raise component_bytes under [limits] or [module.NAME.limits] if it should be that large"
    )]
    TooLarge { size: u64, limit: u64 },
    #[error("it is not a WebAssembly component: {reason}")]
    NotAComponent { reason: String },
    #[error(
        "precompiled code is never loaded from a modules folder, because it would run unchecked; drop the .wasm component here instead"
    )]
    Precompiled,
    #[error("it does not compile: {reason}")]
    Compile { reason: String },
    /// The compiler was stopped at the module's limit `compile_ms`.
    #[error(
        "compiling it was stopped after {limit} ms; raise compile_ms under [limits] or [module.NAME.limits] if it is only large"
    )]
    CompileTime { limit: u64 },
    /// The compiler broke off at the module's limit `compile_memory_bytes`.
    #[error(
        "compiling it needed more than {limit} bytes of memory ({ended}); raise compile_memory_bytes under [limits] or [module.NAME.limits] if it is only large"
    )]
    CompileMemory {
        limit: u64,
        /// How the compiler's process ended.
        ended: String,
    },
    #[error("it needs something this host does not offer: {reason}")]
    Link { reason: String },
    #[error("it needs more than its limits allow at start: {reason}")]
    Limits { reason: String },
    #[error("its module.toml is wrong: {reason}")]
    Manifest { reason: String },
    #[error("it could not say what tools it has: {source}")]
    ListTools {
        #[source]
        source: CallError,
    },
    #[error("its tool {tool:?} is refused: {reason}")]
    Tool { tool: String, reason: String },
    #[error("it exports no function that can be a tool{detail}")]
    NoTools { detail: String },
    #[error("the name {name:?} is already taken by {holder}; rename one of them")]
    Duplicate { name: String, holder: String },
    #[error("the grant for it cannot be given: {reason}")]
    Grant { reason: String },
}
