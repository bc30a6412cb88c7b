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
use toolhold_policy::{GrantRestrictions, Restriction, Share, is_name};

/// Keys of `[agents.NAME]` besides the settings of [`OVERRIDES`].
pub const AGENT_KEYS: [&str; 5] = [
    "description",
    "instructions",
    "endpoint",
    "tools",
    "output_schema",
];
/// The key of an agent's restrictions of grants, one table a module.
pub const SHARES: &str = "grants";
/// Tables of the configuration that an agent may override; of `knowledge` the keys of
/// [`RETRIEVAL_KEYS`](super::RETRIEVAL_KEYS).
pub const OVERRIDES: [&str; 4] = ["run", "decisions", "fallback", "knowledge"];

/// The agent that exists without a table. `toolhold run` runs as it does.
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

impl AgentConfiguration {
    /// An agent of which the configuration says nothing.
    pub fn without_table(configuration: Configuration) -> Self {
        Self {
            description: String::new(),
            instructions: None,
            tools: None,
            output_schema: None,
            configuration: Arc::new(configuration),
        }
    }
}

impl Configuration {
    /// The part of the modules' grants that an agent with this configuration may use.
    pub fn bounds(&self) -> GrantRestrictions {
        let shares = self.shares();
        if shares.is_empty() {
            return GrantRestrictions::default();
        }
        GrantRestrictions::default().with("this agent", Restriction::Shares(shares.clone()))
    }

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
        let own = |fault: ConfigFault| fault.below(&format!("agents.{name}"));
        let shields = table.shields(&self).map_err(own)?;
        self.narrow(table.grants.clone(), shields).map_err(own)?;
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

    pub(super) fn check_agents(&self) -> Result<(), ConfigFault> {
        let mut agents = self.tables.agents.iter();
        agents.try_for_each(|(name, table)| {
            let checked = table.check(name, self);
            checked.map_err(|fault| fault.below(&format!("agents.{name}")))
        })
    }
}

impl AgentTable {
    /// The endpoints of the guard models that the agent's own shields ask.
    pub(super) fn guards(&self) -> impl Iterator<Item = &str> {
        self.shields.values().filter_map(ShieldTable::guard)
    }

    /// The endpoint or pool that sums up the agent's conversations, if its table names one.
    pub(super) fn summarizer(&self) -> Option<&str> {
        let name = self.overrides.get("run")?.get("summarizer")?.as_str();
        name.filter(|name| !name.is_empty())
    }

    fn check(&self, name: &str, config: &Configuration) -> Result<(), ConfigFault> {
        if !is_name(name) {
            let reason = "an agent's name is lower case letters, digits and _, at most 48, starting with a letter";
            return Err(ConfigFault::new("description", reason));
        }
        self.shields(config)?;
        if let Some(module) = self.grants.keys().find(|module| !is_name(module)) {
            let key = format!("{SHARES}.{module}");
            return Err(ConfigFault::new(key, "cannot name a module"));
        }
        let wrong = self.overrides.iter().find(|(_, value)| !value.is_object());
        wrong.map_or(Ok(()), |(key, _)| Err(ConfigFault::new(key, "is no table")))
    }

    /// Reads the agent's own shields.
    ///
    /// # Errors
    /// The key below the agent's, and what is wrong with its value.
    fn shields(&self, config: &Configuration) -> Result<Vec<ShieldSettings>, ConfigFault> {
        let own = |(name, table): (&String, &ShieldTable)| {
            if config.shields().iter().any(|shield| shield.name == *name) {
                let reason = format!(
                    "there is a [shields.{name}] already, and an agent's own shields are beside those of everybody and \
                     never in their place; give it another name"
                );
                return Err(ConfigFault::new(format!("shields.{name}.kind"), reason));
            }
            let settings = table.settings(name);
            let settings = settings.map_err(|fault| fault.below(&format!("shields.{name}")))?;
            config.check_endpoint(&settings)?;
            Ok(settings)
        };
        self.shields.iter().map(own).collect()
    }
}
