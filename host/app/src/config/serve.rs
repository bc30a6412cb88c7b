//! `[serve]` and `[agents.NAME]`: the server, and what it offers.

use crate::config::layers::{ConfigError, Flags};
use crate::config::types::Config;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toolhold_sandbox::is_name;

/// What `[agents.NAME]` holds, beside settings of `run`, `approval` and `fallback` that differ.
pub(super) const AGENT: [&str; 5] = [
    "description",
    "instructions",
    "endpoint",
    "tools",
    "output_schema",
];
/// The tables of the configuration of which an agent may have its own values.
pub(super) const OVERRIDES: [&str; 3] = ["run", "approval", "fallback"];

/// The agent that is there without a table: what `toolhold run` does.
pub const DEFAULT_AGENT: &str = "default";

/// When requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// When there is one, or others than this machine can reach the server.
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ServeTable {
    pub listen: SocketAddr,
    pub keys: Keys,
    pub concurrent_runs: usize,
    pub waiting_runs: usize,
    pub key_concurrent_runs: usize,
    pub key_requests_per_minute: u32,
    pub queue_timeout_ms: u64,
    pub connections: usize,
    pub body_bytes: usize,
    pub drain_ms: u64,
    pub origins: Vec<String>,
    pub module_upload: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AgentTable {
    pub description: String,
    pub instructions: Option<String>,
    pub endpoint: Option<String>,
    pub tools: Option<Vec<String>>,
    pub output_schema: Option<PathBuf>,
    #[serde(flatten)]
    overrides: toml::Table,
}

impl ServeTable {
    pub fn queue_timeout(&self) -> Duration {
        Duration::from_millis(self.queue_timeout_ms)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    /// # Errors
    /// The key and what is wrong with it.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        for (key, is_zero) in [
            ("concurrent_runs", self.concurrent_runs == 0),
            ("key_concurrent_runs", self.key_concurrent_runs == 0),
            ("queue_timeout_ms", self.queue_timeout_ms == 0),
            ("connections", self.connections == 0),
            ("body_bytes", self.body_bytes == 0),
        ] {
            if is_zero {
                return Some((key, "must be at least 1".into()));
            }
        }
        let wrong = |origin: &&String| {
            let url = url::Url::parse(origin).ok();
            url.is_none_or(|url| url.origin().ascii_serialization() != **origin)
        };
        if let Some(origin) = self.origins.iter().find(wrong) {
            let reason =
                format!("{origin:?} is no origin, such as \"https://console.example.com\"");
            return Some(("origins", reason));
        }
        if self.keys == Keys::Never && !self.listen.ip().is_loopback() {
            let reason =
                "\"never\" is for an address of this machine alone, such as 127.0.0.1:8700";
            return Some(("keys", reason.into()));
        }
        None
    }
}

impl Config {
    /// The configured agents, and the one that is always there.
    pub fn agents(&self) -> impl Iterator<Item = (&str, AgentTable)> {
        let own = self.agents.iter();
        let has_default = self.agents.contains_key(DEFAULT_AGENT);
        let default = (!has_default).then(|| (DEFAULT_AGENT, AgentTable::default()));
        default
            .into_iter()
            .chain(own.map(|(name, table)| (name.as_str(), table.clone())))
    }

    /// The configuration as it is for an agent.
    ///
    /// # Errors
    /// What it sets has no meaning, or is wrong.
    pub fn of_agent(&self, name: &str, table: &AgentTable) -> Result<Self, ConfigError> {
        let own = format!("[agents.{name}]");
        let mut flags = Flags::default();
        flags.set(&own, "endpoint", table.endpoint.clone());
        for (section, value) in &table.overrides {
            flags.set_table(&own, section, value);
        }
        self.again_with(&flags)
    }

    pub(super) fn agents_fault(&self) -> Option<(String, String)> {
        self.agents.iter().find_map(|(name, table)| {
            let key = |leaf: &str| format!("agents.{name}.{leaf}");
            if !is_name(name) {
                let reason = "an agent's name is lower case letters, digits and _, at most 48, starting with a letter";
                return Some((key("description"), reason.to_owned()));
            }
            let wrong = table.overrides.iter().find(|(_, value)| !value.is_table());
            wrong.map(|(leaf, _)| (key(leaf), "is no table".to_owned()))
        })
    }
}
