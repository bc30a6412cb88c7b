//! One tool of a server, as something that runs calls.

use super::error::Failure;
use super::server::Server;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use toolhold_agent::protocol::Annotations;
use toolhold_agent::{Activity, ToolCall, ToolOutput, ToolResult, ToolUsage};

/// A tool by the server's own name. The call's own name for it and its context stay here: a server is
/// told the arguments and nothing else.
#[derive(Debug, Clone)]
pub struct McpTool {
    pub server: Arc<Server>,
    pub name: String,
    /// Whether whoever the call is made for may not make it.
    pub is_withheld: bool,
}

impl Activity for McpTool {
    /// Nothing: what the server says of a tool is known where the server itself offers it, and no
    /// message makes another's tool harmless.
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
            }
        })
    }
}
