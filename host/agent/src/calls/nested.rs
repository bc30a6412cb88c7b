//! Nested calls: a running call calls other tools. They pass the same stages as every call, with the outer
//! call's id as their parent, for the same caller, under at least the same restrictions.

use crate::calls::pipeline::{CallPipeline, CallRequest, NotCalled};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use toolhold_policy::ErrorClass;
use toolhold_policy::{self as policy, CallError, NestedCall, NestedCalls, NestedResult, Output};
use toolhold_protocol::failure::ToolFailure;

/// Makes the calls that one call makes.
///
/// Waiting (for a person, or for anything else) counts in the outer call's time: when that ends, the nested
/// call ends too.
#[derive(Debug)]
pub struct NestedCaller {
    pipeline: CallPipeline,
    parent: String,
    /// The tools that call, the outermost first; the last one is the parent's.
    callers: Vec<String>,
    /// How many were made.
    made: AtomicU32,
}

impl NestedCaller {
    /// Creates the caller for the nested calls of `parent`. `callers`: the tools that `parent` is nested in,
    /// and its own.
    pub fn new(pipeline: CallPipeline, parent: &str, callers: Vec<String>) -> Self {
        Self {
            pipeline,
            parent: parent.to_owned(),
            callers,
            made: AtomicU32::new(0),
        }
    }

    async fn made(&self, call: NestedCall) -> Result<Output, ToolFailure> {
        let pipeline = self.pipeline.within(&self.parent);
        let tool = pipeline.tools.find(&*pipeline.toolbox, &call.tool)?;
        let number = self.made.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let id = format!("{}.{number}", self.parent);
        let timeout = Some(call.remaining());
        let request = CallRequest {
            asked_as: id.clone(),
            id,
            tool,
            name: call.tool,
            arguments: call.arguments,
            callers: self.callers.clone(),
            timeout,
            restrictions: call.restrictions,
            listener: None,
        };
        match pipeline.call(request).await {
            Ok(end) => end.result.outcome.map(|output| Output::Value(output.value)),
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
