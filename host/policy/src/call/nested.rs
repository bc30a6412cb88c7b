//! Calls that a running module makes of other modules' tools.
//!
//! The sandbox checks what only it knows (the module's grant names the tool, the depth is within
//! [`MAX_CALL_DEPTH`], the arguments are JSON) and hands everything else to [`NestedCalls`]. So one pipeline
//! screens, approves, counts and records a nested call like any other call.

use super::{BeginCheck, Output, OwnedCaller};
use crate::error::CallError;
use crate::restrictions::GrantRestrictions;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Maximum depth of calls within calls. Each level holds a permit of the engine while the next one runs, so the engine has
/// some for each level.
pub const MAX_CALL_DEPTH: u8 = 4;

/// What comes of a nested call; the calling module gets the output as JSON, or the error as a `tool-error`.
pub type NestedResult = Result<Output, CallError>;

/// One call that a running module makes of another module's tool.
#[derive(Debug, Clone)]
pub struct NestedCall {
    /// The id of the call that makes this one.
    pub parent: String,
    /// The full name of the tool that makes this call.
    pub parent_tool: String,
    /// The full name of the tool that is called, `module.tool` or `module@version.tool`. The grant of the
    /// calling module names it.
    pub tool: String,
    /// JSON that the calling module wrote: untrusted, and not validated against the tool's schema yet.
    pub arguments: Value,
    /// On whose behalf the calling call is made. A nested call is made on the same one's.
    pub caller: OwnedCaller,
    /// The restrictions of the calling call. An implementation may add layers and never removes one.
    pub restrictions: Option<Arc<GrantRestrictions>>,
    /// The check of the calling call.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// 1 to [`MAX_CALL_DEPTH`]: how many calls this one is nested in. The [`Invocation`](super::Invocation)
    /// that executes it carries the same number, so that the bound holds over all levels.
    pub depth: u8,
    /// The time of the calling call. When it is over, this one ends, too.
    pub clock: Arc<dyn CallClock>,
}

/// The time of a running call.
pub trait CallClock: Debug + Send + Sync {
    /// The time that is left.
    fn remaining(&self) -> Duration;

    /// Stops the clock until the guard is dropped: while a person is asked about a call that this one makes. The
    /// implementation bounds how many clocks stand still at a time, and the guard of one more does nothing.
    fn pause(self: Arc<Self>) -> ClockPause;
}

/// Keeps a [`CallClock`] from running until it is dropped.
pub type ClockPause = Box<dyn Send + Sync>;

/// Executes nested calls.
///
/// The sandbox polls the future inside the calling call. It **drops the future** when that call ends first (its
/// deadline, a cancelled run): dropping must cancel the nested call and everything that it started. Errors
/// are values for the calling module; an implementation puts every refusal (a shield, a person, a budget) into
/// a [`CallError`] whose [`class`](CallError::class) says whose move it is.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use std::sync::Arc;
/// use toolhold_policy::{CallError, NestedCall, NestedCalls, NestedResult};
///
/// #[derive(Debug)]
/// struct NoNestedCalls;
///
/// impl NestedCalls for NoNestedCalls {
///     fn call(self: Arc<Self>, call: NestedCall) -> BoxFuture<'static, NestedResult> {
///         Box::pin(async move {
///             Err(CallError::Denied {
///                 reason: format!("{} calls no other tools here", call.parent_tool),
///             })
///         })
///     }
/// }
/// ```
pub trait NestedCalls: Debug + Send + Sync {
    /// Executes one call. The calling guest waits for it.
    fn call(self: Arc<Self>, call: NestedCall) -> BoxFuture<'static, NestedResult>;
}
