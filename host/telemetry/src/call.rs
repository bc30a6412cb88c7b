//! Calls outside of a run: one span each, and the metrics of calls.

use crate::clock::now_ms;
use crate::conventions as names;
use crate::handle::{Exporters, Telemetry};
use crate::spans::{self, OpenSpan, Spans};
use opentelemetry::Context;
use serde_json::Value;
use std::sync::Arc;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolUsage;

/// The span of a call that has not ended.
#[derive(Debug)]
pub struct CallSpan {
    inner: Option<Arc<Exporters>>,
    spans: Spans,
    span: OpenSpan,
    tool: String,
}

impl Telemetry {
    /// Begins the span of a call, in the trace of its caller.
    pub fn call(&self, tool: &str, call: &str, parent: &Context, arguments: &Value) -> CallSpan {
        let spans = self.spans();
        let span = spans.tool(tool, call, parent, now_ms());
        spans.capture(&span, names::TOOL_ARGUMENTS, || arguments.clone());
        CallSpan {
            inner: self.inner.clone(),
            spans,
            span,
            tool: tool.to_owned(),
        }
    }
}

impl CallSpan {
    /// Ends the span, and records the call's metrics.
    pub fn end(
        self,
        outcome: Result<&Value, &ToolFailure>,
        usage: &ToolUsage,
        module: Option<&str>,
    ) {
        let error = match outcome {
            Ok(value) => {
                self.spans
                    .capture(&self.span, names::TOOL_RESULT, || value.clone());
                None
            }
            Err(failure) => Some(failure.kind.as_str()),
        };
        if let Some(inner) = &self.inner {
            inner.instruments.called(&self.tool, error, usage);
        }
        spans::called(&self.span, usage, module);
        self.span.end(now_ms(), error);
    }

    /// Ends the span of a call that was not made.
    pub fn forget(self) {
        self.span.end(now_ms(), Some("not_made"));
    }
}
