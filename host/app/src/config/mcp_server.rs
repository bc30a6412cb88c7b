//! `[mcp_server]`: how modules and saved Requests are served as MCP tools.

use crate::config::origin;
use crate::mcp_server::{Offer, Settings};
use serde::Deserialize;
use std::time::Duration;

/// Whether calls of MCP clients are in the audit log, and before their result is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audit {
    /// And on the disk.
    Durable,
    /// A process that is killed loses none; a machine that fails may lose the last.
    Written,
    /// Soon after it: a process that is killed loses those that were still to be written.
    Behind,
    Off,
}

#[derive(Debug, Clone, Deserialize)]
pub struct McpServerTable {
    pub(super) token_env: String,
    hosts: Vec<String>,
    origins: Vec<String>,
    ask: bool,
    audit: Audit,
    answer_timeout_ms: u64,
    requests: Offer,
    message_bytes: usize,
    calls: usize,
    connections: usize,
    sessions: usize,
    session_idle_ms: u64,
}

impl McpServerTable {
    /// The first key that would serve nobody.
    pub fn zero(&self) -> Option<&'static str> {
        let zeros = [
            ("mcp_server.answer_timeout_ms", self.answer_timeout_ms == 0),
            ("mcp_server.message_bytes", self.message_bytes == 0),
            ("mcp_server.calls", self.calls == 0),
            ("mcp_server.connections", self.connections == 0),
            ("mcp_server.sessions", self.sessions == 0),
            ("mcp_server.session_idle_ms", self.session_idle_ms == 0),
        ];
        zeros.iter().find(|(_, is)| *is).map(|(key, _)| *key)
    }

    /// The first key with a value that has no meaning, and why.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let reason = origin::fault(&self.origins)?;
        Some(("mcp_server.origins", reason))
    }

    pub fn settings(&self) -> Settings {
        Settings {
            audit: self.audit,
            ask: self.ask,
            answer_timeout: Duration::from_millis(self.answer_timeout_ms),
            requests: self.requests.clone(),
            message_bytes: self.message_bytes,
            // No semaphore has more places.
            calls: self.calls.min(tokio::sync::Semaphore::MAX_PERMITS),
            connections: self.connections.min(tokio::sync::Semaphore::MAX_PERMITS),
            sessions: self.sessions,
            session_idle: Duration::from_millis(self.session_idle_ms),
            hosts: self.hosts.clone(),
            origins: self.origins.clone(),
            token_env: self.token_env.clone(),
        }
    }
}
