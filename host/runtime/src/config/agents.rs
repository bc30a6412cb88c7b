//! `[agents.NAME]`: the agents of the server, and the configuration of each agent's runs.

use crate::config::configuration::Configuration;
use crate::config::shields::{ShieldSettings, ShieldTable};
use crate::config::surroundings::ConfigFault;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use toolhold_policy::{Share, is_name};

/// Keys of `[agents.NAME]` besides the `run`, `approval` and `fallback` settings that it overrides.
pub const AGENT_KEYS: [&str; 5] = [
    "description",
    "instructions",
    "endpoint",
    "tools",
    "output_schema",
];
/// The key of an agent's restrictions of grants, one table a module.
pub const SHARES: &str = "grants";
/// Tables of the configuration that an agent may override.
pub const OVERRIDES: [&str; 3] = ["run", "approval", "fallback"];

/// The agent that exists without a table; it runs as `toolhold run` does.
pub const DEFAULT_AGENT: &str = "default";

/// `[agents.NAME]` as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AgentTable {
    pub description: String,
    pub instructions: Option<String>,
    pub endpoint: Option<String>,
    pub tools: Option<Vec<String>>,
    /// Path of a file with a JSON Schema.
    pub output_schema: Option<PathBuf>,
    /// By module: the part of its grant that the agent may use. A module that is not named keeps its whole
    /// grant.
    grants: BTreeMap<String, Share>,
    /// Additional shields; they never replace the shared ones.
    shields: BTreeMap<String, ShieldTable>,
    /// Overrides of [`OVERRIDES`], which are merged into the agent's configuration.
    #[serde(flatten)]
    overrides: BTreeMap<String, Value>,
}

/// An agent, and everything that its runs depend on.
#[derive(Debug, Clone)]
pub struct AgentConfiguration {
    pub description: String,
    pub instructions: Option<String>,
    /// The tools that it may use: MODULE.TOOL, or MODULE for all of its tools. Absent: all.
    pub tools: Option<Vec<String>>,
    pub output_schema: Option<Value>,
    /// Shared by clones, because it is as large as the whole configuration.
    pub configuration: Arc<Configuration>,
}

/// Why an agent cannot be offered. Other agents are not affected.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct InvalidAgent(pub String);

impl Configuration {
    /// The tables of the configured agents, and of the default agent.
    pub fn agent_tables(&self) -> BTreeMap<String, AgentTable> {
        let mut tables = self.tables.agents.clone();
        tables.entry(DEFAULT_AGENT.to_owned()).or_default();
        tables
    }

    /// The configuration of an agent. `self` is the configuration with the agent's endpoint and [`OVERRIDES`]
    /// merged into it; the result is also restricted in its grants and has the agent's own shields.
    ///
    /// # Errors
    /// The agent's shields are wrong.
    pub fn of_agent(
        mut self,
        name: &str,
        table: &AgentTable,
        output_schema: Option<Value>,
    ) -> Result<AgentConfiguration, ConfigFault> {
        let wrong = |(leaf, reason): (String, String)| {
            ConfigFault::new(format!("agents.{name}.{leaf}"), reason)
        };
        let shields = table.shields(&self).map_err(wrong)?;
        self.narrow(table.grants.clone(), shields).map_err(wrong)?;
        Ok(AgentConfiguration {
            description: table.description.clone(),
            instructions: table.instructions.clone(),
            tools: table.tools.clone(),
            output_schema,
            configuration: Arc::new(self),
        })
    }

    /// Adds an agent, or the reason why it cannot be offered.
    pub fn add_agent(
        &mut self,
        name: impl Into<String>,
        agent: Result<AgentConfiguration, InvalidAgent>,
    ) {
        self.agents.insert(name.into(), agent);
    }

    /// The agents that were added, by name.
    pub fn agents(&self) -> &BTreeMap<String, Result<AgentConfiguration, InvalidAgent>> {
        &self.agents
    }

    pub(super) fn agents_fault(&self) -> Option<(String, String)> {
        self.tables.agents.iter().find_map(|(name, table)| {
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
            let wrong = table.overrides.iter().find(|(_, value)| !value.is_object());
            wrong.map(|(leaf, _)| (key(leaf), "is no table".to_owned()))
        })
    }
}

impl AgentTable {
    /// Reads the agent's own shields.
    ///
    /// # Errors
    /// The key below the agent's, and what is wrong with its value.
    fn shields(&self, config: &Configuration) -> Result<Vec<ShieldSettings>, (String, String)> {
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
