//! `[agents.NAME]`: what the server offers, and the configuration that runs of each agent are under.

use crate::config::configuration::Configuration;
use crate::config::shields::{ShieldSettings, ShieldTable};
use crate::config::surroundings::Fault;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use toolhold_policy::{Share, is_name};

/// What `[agents.NAME]` holds, beside settings of `run`, `approval` and `fallback` that differ.
pub const AGENT_KEYS: [&str; 5] = [
    "description",
    "instructions",
    "endpoint",
    "tools",
    "output_schema",
];
/// What an agent leaves of what modules are granted, a table for each module.
pub const SHARES: &str = "grants";
/// The tables of the configuration of which an agent may have its own values.
pub const OVERRIDES: [&str; 3] = ["run", "approval", "fallback"];

/// The agent that is there without a table: what `toolhold run` does.
pub const DEFAULT_AGENT: &str = "default";

/// `[agents.NAME]` as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AgentTable {
    pub description: String,
    pub instructions: Option<String>,
    pub endpoint: Option<String>,
    pub tools: Option<Vec<String>>,
    /// A file with a JSON Schema.
    pub output_schema: Option<PathBuf>,
    /// By module: what is left of its grant. A module that is not named keeps what it has.
    grants: BTreeMap<String, Share>,
    /// Beside those of everybody, never in their place.
    shields: BTreeMap<String, ShieldTable>,
    /// Its own values of [`OVERRIDES`], which were merged into its configuration.
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
    /// Shared by its clones: it is as large as that of the whole.
    pub configuration: Arc<Configuration>,
}

/// Why an agent cannot be offered. The others can.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct InvalidAgent(pub String);

impl Configuration {
    /// The tables of the configured agents, and of the one that is always there.
    pub fn agent_tables(&self) -> BTreeMap<String, AgentTable> {
        let mut tables = self.tables.agents.clone();
        tables.entry(DEFAULT_AGENT.to_owned()).or_default();
        tables
    }

    /// What an agent runs under, where `self` is the configuration with the agent's own endpoint and
    /// [`OVERRIDES`] merged into it: narrowed by what the agent leaves of grants, and with its own shields.
    ///
    /// # Errors
    /// What is wrong with its shields.
    pub fn of_agent(
        mut self,
        name: &str,
        table: &AgentTable,
        output_schema: Option<Value>,
    ) -> Result<AgentConfiguration, Fault> {
        let wrong =
            |(leaf, reason): (String, String)| Fault::new(format!("agents.{name}.{leaf}"), reason);
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

    /// Adds an agent, or why it cannot be offered.
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
    /// The agent's own shields.
    ///
    /// # Errors
    /// The key below the agent's and what is wrong with it.
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
