//! One tool of a server, as an activity.

use crate::error::Failure;
use crate::server::McpServer;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use toolhold_agent::{Activity, ToolCall};
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::tool::Annotations;

/// A tool under the operator's name for it. A server gets a call's arguments and nothing else: neither the caller's name for
/// the tool nor its context.
#[derive(Debug, Clone)]
pub struct McpTool {
    pub server: Arc<McpServer>,
    pub name: String,
    /// The key that the call is made for does not permit it.
    pub is_withheld: bool,
}

impl Activity for McpTool {
    /// None: what a server says about its tool is used only where the server offers the tool itself. A message must not
    /// make a tool look harmless.
    fn annotations(&self) -> Option<Annotations> {
        Some(Annotations::default())
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        if self.is_withheld {
            let failure = Failure::Withheld.told(&self.server.settings.name);
            return Box::pin(std::future::ready(ToolResult::failed(failure)));
        }
        Box::pin(async move {
            let started = Instant::now();
            let called = self.server.call(&self.name, &call.arguments, call.timeout);
            let outcome = called.await;
            let duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            ToolResult {
                outcome: outcome
                    .map(ToolOutput::from)
                    .map_err(|failure| self.server.told(&failure)),
                usage: ToolUsage {
                    duration_us,
                    ..ToolUsage::default()
                },
                printed: self.server.printed(),
                module: None,
                cached: None,
            }
        })
    }
}
