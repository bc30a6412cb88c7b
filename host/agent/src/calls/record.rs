//! Recorders of calls that are made outside of a run's machine.

use futures_util::future::BoxFuture;
use serde_json::Value;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::{ToolFailure, UNFINISHED};
use toolhold_protocol::result::{ToolResult, ToolUsage};

/// A call that is about to be checked.
#[derive(Debug, Clone, Copy)]
pub struct NewCall<'a> {
    pub id: &'a str,
    pub tool: &'a str,
    /// As the caller means them.
    pub arguments: &'a Value,
    /// Whether the tool only reads or may be repeated.
    pub may_be_repeated: bool,
    /// True if names of bytes in its result are refused in the record of a run: the tool gives bytes (docs/protocol.md, 7.15).
    pub gives_bytes: bool,
}

/// How a call ended.
#[derive(Debug)]
pub struct CallEnd {
    pub result: ToolResult,
    /// The tool was not called: a check, a shield, a person or a budget refused it.
    pub by_host: bool,
}

impl CallEnd {
    /// The tool was not called.
    pub fn refused(failure: ToolFailure) -> Self {
        Self {
            result: ToolResult::failed(failure),
            by_host: true,
        }
    }

    /// The call was dropped before its end. `was_begun`: its tool was called.
    pub fn dropped(was_begun: bool) -> Self {
        let (kind, message) = if was_begun {
            let message =
                "the caller did not wait for its end; it is not known whether it took effect";
            (UNFINISHED, message)
        } else {
            (
                "cancelled",
                "the caller did not wait for it, and it was not made",
            )
        };
        Self {
            result: ToolResult::failed(ToolFailure::correctable(kind, message)),
            by_host: !was_begun,
        }
    }

    /// The tool was not called, and a person gave the result.
    pub fn answered(result: Value) -> Self {
        Self {
            result: ToolResult {
                outcome: Ok(result.into()),
                usage: ToolUsage::default(),
                printed: Vec::new(),
                module: None,
                cached: None,
            },
            by_host: true,
        }
    }
}

/// Records calls: into the audit log and traces, or into the record of the run that they are part of.
pub trait CallRecorder: Send + Sync + Debug {
    /// Asked before a call is looked at, and again before its tool is called: then a person may have taken long.
    ///
    /// # Errors
    /// A call made now could not be recorded. The tool is not called then.
    fn ready(&self) -> Result<(), ToolFailure>;

    /// Begins the record of a call.
    fn begin<'a>(&'a self, call: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>>;

    /// Records the calls that the call `id` makes.
    fn within(&self, id: &str) -> Arc<dyn CallRecorder>;
}

/// The record of one call: the value that is made where the call begins, and that its end consumes. A call whose begin was
/// recorded cannot be forgotten: dropped before it ended, it was cancelled, and that is recorded. A database that loses its
/// connection may have written a begin whose write ended in an error. Then the tool is not called, and the audit log may have
/// the call as `interrupted`.
#[must_use = "dropped, it records that the call was cancelled"]
pub trait CallRecording: Send {
    /// Takes what happens around the call: what shields say, and what they ask; the question to a person and the
    /// decision; notices. A question is recorded when this returns.
    fn event(&mut self, event: EventKind) -> BoxFuture<'_, ()>;

    /// The tool is about to be called, with these arguments if they are others than the caller means. When this
    /// returns, that is recorded: also if this process is killed during the call.
    ///
    /// # Errors
    /// It could not be recorded. The tool is not called then.
    fn started<'a>(
        &'a mut self,
        others: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ToolFailure>>;

    /// When this returns, the call is recorded, or will be.
    ///
    /// # Errors
    /// The call could not be recorded, and the caller must not receive its result.
    fn ended(self: Box<Self>, end: &CallEnd) -> BoxFuture<'_, io::Result<()>>;

    /// Discards the record of a call that has not begun: the question to a person went back to the caller, or there was no
    /// room. One that has begun ends as if it was dropped.
    fn forget(self: Box<Self>);
}
