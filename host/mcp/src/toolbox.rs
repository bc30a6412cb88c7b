//! A run's toolbox that adds the tools of servers to those of modules.

use crate::tool::McpTool;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_agent::{Activity as _, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::tool::Tool;

/// The tools of `inner`, and tools of servers as `SERVER.tool`.
#[derive(Debug)]
pub struct McpToolbox<T> {
    inner: T,
    offered: Vec<Arc<Tool>>,
    /// All tools of the offering servers, also those that are not offered now: a resumed run may call one, and the call
    /// says why it fails.
    runners: BTreeMap<String, McpTool>,
}

impl<T> McpToolbox<T> {
    /// `inner` without tools of servers.
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            offered: Vec::new(),
            runners: BTreeMap::new(),
        }
    }

    /// Calls of the tool `name` go to `runner`.
    pub(super) fn route(&mut self, name: String, runner: McpTool) {
        self.runners.insert(name, runner);
    }

    /// Offers a tool of a server.
    pub(super) fn offer(&mut self, tool: Arc<Tool>) {
        self.offered.push(tool);
    }
}

impl<T: ToolSource> ToolSource for McpToolbox<T> {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tools = self.inner.tools();
        tools.extend(self.offered.iter().cloned());
        tools
    }

    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let own = self.offered.iter().find(|tool| tool.name == name);
        own.cloned().or_else(|| self.inner.tool(name))
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        match self.offered.iter().find(|tool| tool.name == name) {
            Some(tool) => Box::pin(std::future::ready(Ok(ResolvedModule::Tool(Box::new(
                Tool::clone(tool),
            ))))),
            None => self.inner.module(name),
        }
    }

    fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
        self.inner.take_fetch(name)
    }

    /// What a server's tool says depends on the server, whose state is its own: on the session with it.
    fn result_depends_on(&self, call: &ToolCall) -> Option<Value> {
        match self.runners.get(&call.tool) {
            Some(runner) => Some(json!({
                "server": runner.server.settings.name,
                "session": runner.server.working_session()?,
                "is_withheld": runner.is_withheld,
            })),
            None => self.inner.result_depends_on(call),
        }
    }
}

impl<T: ToolRunner> ToolRunner for McpToolbox<T> {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        match self.runners.get(&call.tool) {
            Some(runner) => runner.call(call),
            None => self.inner.call(call),
        }
    }
}
