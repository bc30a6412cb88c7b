//! A call that belongs to no run: one span, and the same metrics.

use crate::telemetry::spans::{self, Open, Spans};
use crate::telemetry::{Inner, Telemetry, conventions as names};
use opentelemetry::Context;
use serde_json::Value;
use std::sync::Arc;
use toolhold_agent::{ToolFailure, ToolUsage};

/// Its span, until it ends.
#[derive(Debug)]
pub struct CallSpan {
    inner: Option<Arc<Inner>>,
    spans: Spans,
    span: Open,
    tool: String,
}

impl Telemetry {
    /// A call begins, in the trace of whoever makes it.
    pub fn call(&self, tool: &str, call: &str, parent: &Context, arguments: &Value) -> CallSpan {
        let spans = self.spans();
        let span = spans.tool(tool, call, parent, crate::storage::now_ms());
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
        self.span.end(crate::storage::now_ms(), error);
    }

    /// There was no call after all.
    pub fn forget(self) {
        self.span.end(crate::storage::now_ms(), Some("not_made"));
    }
}
