//! The subject of a policy: the user of `toolhold run`, an agent of the server, or a key.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use toolhold_policy::{GrantRestrictions, NarrowedGrant, Permit, Restriction};
use toolhold_protocol::settings::DEFAULT_INSTRUCTIONS;
use toolhold_runtime::agents::intersect_names;
use toolhold_runtime::config::{Configuration, DEFAULT_AGENT};
use toolhold_runtime::host;
use toolhold_sandbox::same_directory;

/// The configuration and the restrictions of one subject.
#[derive(Debug)]
pub struct PolicySubject {
    pub config: Configuration,
    /// Absent: a run from this machine's terminal.
    pub agent: Option<String>,
    pub key: Option<String>,
    /// The tools that its runs may be offered. Absent: all.
    pub tools: Option<Vec<String>>,
    /// The same without the key's restriction, as the policy's hash has it.
    pub agents_tools: Option<Vec<String>>,
    /// What its runs are instructed to do, unless a client says something else.
    pub instructions: String,
    /// The agent's own shields.
    pub own_shields: BTreeSet<String>,
    pub permits: Option<Vec<Permit>>,
}

impl PolicySubject {
    /// # Errors
    /// The agent or the key does not exist, or the key may not use the agent.
    pub async fn of(
        config: &Configuration,
        agent: Option<&str>,
        key: Option<&str>,
        tools: Option<Vec<String>>,
    ) -> Result<Self> {
        let Some(name) = agent.or(key.map(|_| DEFAULT_AGENT)) else {
            return Ok(Self {
                config: config.clone(),
                agent: None,
                key: None,
                agents_tools: tools.clone(),
                tools,
                instructions: DEFAULT_INSTRUCTIONS.to_owned(),
                own_shields: BTreeSet::new(),
                permits: None,
            });
        };
        let Some(agent) = config.agents().get(name) else {
            let names: Vec<&str> = config.agents().keys().map(String::as_str).collect();
            bail!("there is no agent {name:?}; there are {}", names.join(", "));
        };
        let agent = agent.as_ref().map_err(Clone::clone)?;
        let own = &agent.configuration;
        let is_everybodys =
            |shield: &str| config.shields().iter().any(|other| other.name == shield);
        let own_shields = own.shields().iter().map(|shield| shield.name.clone());
        let whose = Self {
            own_shields: own_shields.filter(|it| !is_everybodys(it)).collect(),
            agent: Some(name.to_owned()),
            key: None,
            instructions: agent
                .instructions
                .clone()
                .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned()),
            tools: agent.tools.clone(),
            agents_tools: agent.tools.clone(),
            permits: None,
            config: Configuration::clone(own),
        };
        match key {
            Some(key) => whose.narrowed_to(key).await,
            None => Ok(whose),
        }
    }

    async fn narrowed_to(self, name: &str) -> Result<Self> {
        let keys = host::store(&self.config).await?.keys().await?;
        let Some(key) = keys.into_iter().find(|key| key.name == name) else {
            bail!("there is no key {name:?}; `toolhold keys list` shows them");
        };
        let agent = self.agent.as_deref().unwrap_or(DEFAULT_AGENT);
        if let Some(agents) = &key.permits.agents
            && !agents.iter().any(|own| own == agent)
        {
            let agents = agents.join(", ");
            bail!(
                "the key {name:?} may not use the agent {agent:?}, only {agents}; name one with --agent"
            );
        }
        if !key.is_valid() {
            bail!("the key {name:?} was revoked or has expired and cannot be used");
        }
        Ok(Self {
            key: Some(key.name),
            tools: intersect_names(self.tools.as_deref(), key.permits.tools.as_deref()),
            permits: key.permits.grants,
            ..self
        })
    }

    /// By module: the remaining part of its grant.
    pub fn granted(&self) -> BTreeMap<String, NarrowedGrant> {
        let bounds = self.bounds();
        let modules = self.config.policy().modules.into_iter();
        modules
            .map(|(name, own)| {
                let left = bounds.narrow(&name, &own.grant, &same_directory);
                (name, left)
            })
            .collect()
    }

    /// Tools of MCP servers that every run is offered, as far as the subject may use them.
    pub fn offered_by_servers(&self) -> Vec<String> {
        let servers = self.config.servers().into_iter();
        let tools = servers.filter(|server| server.offer).flat_map(|server| {
            let name = server.name;
            let tools = server.tools.into_iter();
            tools.map(move |tool| format!("{name}.{tool}"))
        });
        let may = |tool: &String| {
            let allowed = self.tools.as_ref();
            allowed.is_none_or(|names| names.iter().any(|name| is_meant(name, tool)))
        };
        tools.filter(may).collect()
    }

    fn bounds(&self) -> GrantRestrictions {
        let mut bounds = GrantRestrictions::default();
        let shares = self.config.shares();
        if !shares.is_empty() {
            bounds = bounds.with("this agent", Restriction::Shares(shares.clone()));
        }
        if let Some(permits) = &self.permits {
            bounds = bounds.with("this key", Restriction::Permits(permits.clone()));
        }
        bounds
    }

    /// The subject as JSON, beside the hashed policy.
    pub fn json(&self) -> Value {
        let left = self.granted().into_iter();
        let left = left
            .filter(|(_, left)| !left.grant.is_empty() || !left.withheld.is_empty())
            .map(|(name, left)| {
                let left = json!({"may": left.grant.sentences(), "withheld": left.withheld});
                (name, left)
            });
        json!({
            "agent": self.agent,
            "key": self.key,
            "own_shields": self.own_shields,
            "left": left.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Whether a name in a list of tools matches this tool: its own name, or its module's.
pub fn is_meant(name: &str, tool: &str) -> bool {
    name == tool || tool.split('.').next() == Some(name)
}
