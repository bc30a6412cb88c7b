//! Nested calls: a running call calls other tools. They pass the same stages as every call, with the outer
//! call's id as their parent, for the same caller, under at least the same restrictions.

use crate::calls::NestedEffects;
use crate::calls::pipeline::{CallPipeline, CallRequest, CallingTool, NotCalled};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use toolhold_json::bounded;
use toolhold_policy::ErrorClass;
use toolhold_policy::{self as policy, CallError, NestedCall, NestedCalls, NestedResult, Output};
use toolhold_protocol::failure::ToolFailure;

/// Refused calls that one call may make. They take nothing of the budget of calls, and each is recorded.
const MAX_REFUSED: u32 = 1_000;

/// Maximum bytes of the arguments of refused calls of one call, before the last one. A person who refused them, or a host
/// without one that refused them in a person's place, was asked with the whole of them, and the record has the questions.
const MAX_REFUSED_BYTES: u64 = 16 << 20;

/// Makes the calls that one call makes.
///
/// They run in the outer call's time: when that ends, they end too. It stands still only while a person is asked.
#[derive(Debug)]
pub struct NestedCaller {
    pipeline: CallPipeline,
    parent: String,
    parent_tool: String,
    /// The calls that the parent is nested in, the outermost first.
    callers: Vec<CallingTool>,
    /// Whether the parent may be made again after the calls that it made.
    effects: NestedEffects,
    /// How many were made.
    made: AtomicU32,
    /// How many were refused.
    refused: AtomicU32,
    /// Bytes of the arguments of those.
    refused_bytes: AtomicU64,
}

impl NestedCaller {
    /// Creates the caller for the nested calls of `parent`, a call of `parent_tool` that is nested in `callers`.
    pub fn new(
        pipeline: CallPipeline,
        parent: &str,
        parent_tool: &str,
        callers: Vec<CallingTool>,
    ) -> Self {
        Self {
            pipeline,
            parent: parent.to_owned(),
            parent_tool: parent_tool.to_owned(),
            callers,
            effects: NestedEffects::default(),
            made: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            refused_bytes: AtomicU64::new(0),
        }
    }

    /// What the calls that the parent makes do to whether it may be made again.
    pub(crate) fn effects(&self) -> NestedEffects {
        self.effects.clone()
    }

    async fn made(&self, call: NestedCall) -> Result<Output, ToolFailure> {
        self.effects.asked();
        if self.refused.load(Ordering::Relaxed) >= MAX_REFUSED {
            let message = format!(
                "{MAX_REFUSED} calls of this call were refused: it can make no more; make it again with fewer"
            );
            return Err(ToolFailure::correctable("refused_calls", message));
        }
        if self.refused_bytes.load(Ordering::Relaxed) >= MAX_REFUSED_BYTES {
            let message = format!(
                "calls of this call with {MAX_REFUSED_BYTES} bytes of arguments were refused: it can make no more; make \
                 it again with fewer, or with smaller arguments"
            );
            return Err(ToolFailure::correctable("refused_calls", message));
        }
        let bytes = bounded::text_bytes(&call.arguments);
        let pipeline = self.pipeline.within(&self.parent);
        let tool = pipeline.tools.find(&*pipeline.toolbox.source, &call.tool)?;
        let number = self.made.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let id = format!("{}.{number}", self.parent);
        let timeout = Some(call.clock.remaining());
        let mut callers = self.callers.clone();
        callers.push(CallingTool {
            name: self.parent_tool.clone(),
            clock: call.clock,
            effects: self.effects.clone(),
        });
        let request = CallRequest {
            asked_as: id.clone(),
            id,
            tool,
            name: call.tool,
            arguments: call.arguments,
            callers,
            timeout,
            restrictions: call.restrictions,
            begin: call.begin,
            listener: None,
        };
        match pipeline.call(request).await {
            Ok(end) => {
                if end.by_host && end.result.outcome.is_err() {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    self.refused_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                end.result.outcome.map(|output| Output::Value(output.value))
            }
            Err(NotCalled::NotRecorded(failure)) => Err(failure),
            Err(NotCalled::Busy(message)) => Err(retryable("busy", message)),
            Err(NotCalled::HandedBack) => {
                let message =
                    "the call waits for a person, who cannot be asked while another call goes on";
                Err(ToolFailure::correctable("not_approved", message))
            }
            Err(NotCalled::Lost { .. }) => {
                let message = "what came of the call could not be recorded, so it is not given out";
                Err(retryable("not_recorded", message.into()))
            }
        }
    }
}

impl NestedCalls for NestedCaller {
    fn call(self: Arc<Self>, call: NestedCall) -> BoxFuture<'static, NestedResult> {
        Box::pin(async move { self.made(call).await.map_err(error) })
    }
}

fn retryable(kind: &str, message: String) -> ToolFailure {
    ToolFailure {
        kind: kind.into(),
        class: ErrorClass::Retryable,
        message,
    }
}

/// A failure in the form for the module that made the call.
fn error(failure: ToolFailure) -> CallError {
    CallError::Tool {
        class: match failure.class {
            ErrorClass::Retryable => policy::ErrorClass::Retryable,
            ErrorClass::Correctable => policy::ErrorClass::Correctable,
            ErrorClass::Fatal => policy::ErrorClass::Fatal,
        },
        message: failure.message,
        data: None,
    }
}
