//! `[serve]` and `[agents.NAME]`: the server, and what it offers.

use crate::config::layers::{ConfigError, Flags};
use crate::config::origin;
use crate::config::shields::{ShieldSettings, ShieldTable};
use crate::config::types::Config;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toolhold_sandbox::{Share, is_name};

/// What `[agents.NAME]` holds, beside settings of `run`, `approval` and `fallback` that differ.
pub(super) const AGENT: [&str; 5] = [
    "description",
    "instructions",
    "endpoint",
    "tools",
    "output_schema",
];
/// What an agent leaves of what modules are granted, a table for each module.
pub(super) const SHARES: &str = "grants";
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
    pub lame_duck_ms: u64,
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
    /// By module: what is left of its grant. A module that is not named keeps what it has.
    grants: BTreeMap<String, Share>,
    /// Beside those of everybody, never in their place.
    shields: BTreeMap<String, ShieldTable>,
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

    pub fn lame_duck(&self) -> Duration {
        Duration::from_millis(self.lame_duck_ms)
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
        if let Some(reason) = origin::fault(&self.origins) {
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
        let mut config = self.again_with(&flags)?;
        let wrong = |(leaf, reason): (String, String)| ConfigError::Value {
            key: format!("agents.{name}.{leaf}"),
            origin: own.clone(),
            reason,
        };
        let shields = table.shields(&config).map_err(wrong)?;
        config
            .narrow(table.grants.clone(), shields)
            .map_err(wrong)?;
        Ok(config)
    }

    pub(super) fn agents_fault(&self) -> Option<(String, String)> {
        self.agents.iter().find_map(|(name, table)| {
            let key = |leaf: &str| format!("agents.{name}.{leaf}");
            if !is_name(name) {
                let reason = "an agent's name is lower case letters, digits and _, at most 48, starting with a letter";
                return Some((key("description"), reason.to_owned()));
            }
            if let Err((leaf, reason)) = table.shields(self) {
                return Some((key(&leaf), reason));
            }
            if let Some(module) = table.grants.keys().find(|module| !is_name(module)) {
                let reason = "cannot name a module".to_owned();
                return Some((key(&format!("{SHARES}.{module}")), reason));
            }
            let wrong = table.overrides.iter().find(|(_, value)| !value.is_table());
            wrong.map(|(leaf, _)| (key(leaf), "is no table".to_owned()))
        })
    }
}

impl AgentTable {
    /// The agent's own shields.
    ///
    /// # Errors
    /// The key below the agent's and what is wrong with it.
    fn shields(&self, config: &Config) -> Result<Vec<ShieldSettings>, (String, String)> {
        let own = self.shields.iter().map(|(name, table)| {
            let key = |leaf: &str| format!("shields.{name}.{leaf}");
            if config.shields().iter().any(|shield| shield.name == *name) {
                let reason = format!(
                    "there is a [shields.{name}] already, and an agent's own shields are beside those of everybody and \
                     never in their place; give it another name"
                );
                return Err((key("kind"), reason));
            }
            let settings = table.settings(name);
            let settings = settings.map_err(|(leaf, reason)| (key(leaf), reason))?;
            match config.missing_endpoint(&settings) {
                Some(reason) => Err((key("endpoint"), reason)),
                None => Ok(settings),
            }
        });
        own.collect()
    }
}
