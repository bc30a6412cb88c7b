//! Agents as the server offers them: a name, and everything that a run of it is put together with.

use crate::approver::AppApprover;
use crate::config::{AgentTable, Config};
use crate::dialect::Known;
use crate::host;
use crate::mcp::{Servers, WithServers};
use crate::models::{Models, Spared};
use crate::requests::Requests;
use crate::shields::shields;
use crate::storage::Store;
use crate::tools::SandboxTools;
use anyhow::{Result, anyhow};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use toolhold_agent::guard::shield::{Place, Shields};
use toolhold_agent::model::{Model, ModelError};
use toolhold_agent::run::DEFAULT_INSTRUCTIONS;
use toolhold_agent::{
    Activities, Activity, Driver, ErrorClass, RunRequest, ToolCall, ToolFailure, ToolResult,
    Toolbox,
};
use toolhold_sandbox::Registry;

/// One agent, ready to run.
#[derive(Debug)]
pub struct Agent {
    pub name: String,
    pub description: String,
    pub config: Config,
    instructions: String,
    tools: Option<Vec<String>>,
    output_schema: Option<Value>,
    model: Arc<dyn Model>,
    candidates: BTreeMap<String, Arc<dyn Model>>,
    known: Known,
    shields: Shields,
    servers: Servers,
    registry: Registry,
}

/// For whom a run is made, and what that one may use of the agent's tools.
#[derive(Debug, Clone, Default)]
pub struct OnBehalf {
    pub owner: String,
    pub session: String,
    /// Tools, or modules for all of theirs. Absent: all that the agent has.
    pub tools: Option<Vec<String>>,
    /// Tools that the client calls itself: a call of one waits until the run is stopped.
    pub elsewhere: BTreeSet<String>,
    /// The client's trace, which the run's goes on with.
    pub trace: opentelemetry::Context,
}

impl OnBehalf {
    /// Nothing but these of what there was.
    pub fn narrow(&mut self, tools: Option<Vec<String>>) {
        self.tools = both(self.tools.as_deref(), tools.as_deref());
    }
}

impl Agent {
    async fn new(
        config: &Config,
        registry: &Registry,
        spared: &Spared,
        name: &str,
        table: &AgentTable,
    ) -> Result<Self> {
        let config = config.of_agent(name, table)?;
        let output_schema = match &table.output_schema {
            Some(path) => Some(host::json_file(path)?),
            None => None,
        };
        let timeout = config.settings().timeout;
        let mut models = Models::new(&config, timeout, None)?.sparing(spared);
        let guards = Box::pin(models.guards()).await?;
        let toolbox = SandboxTools::new(registry.clone()).with_sources(host::sources(&config));
        let tools = table.tools.as_deref();
        let shields = shields(&config, toolbox.components(), tools, &guards).await?;
        let selected = Box::pin(models.selected()).await?;
        Ok(Self {
            name: name.to_owned(),
            description: table.description.clone(),
            instructions: table
                .instructions
                .clone()
                .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned()),
            tools: table.tools.clone(),
            output_schema,
            model: selected.model,
            candidates: selected.candidates,
            known: selected.known,
            shields,
            servers: Servers::new(config.servers(), &config.pins(), tools),
            registry: registry.clone(),
            config,
        })
    }

    /// A request as the agent makes it, before anything that a client says.
    pub fn request(&self) -> RunRequest {
        let mut request = RunRequest::new("");
        request.context.clear();
        request.instructions.clone_from(&self.instructions);
        request.output_schema.clone_from(&self.output_schema);
        request.settings = self.config.settings();
        self.known.adapt(&mut request.settings, &self.config);
        request
    }

    pub fn model(&self) -> &str {
        self.model.name()
    }

    /// What a run is driven by. Notes say which MCP servers' tools are left out.
    pub async fn driver(&self, store: &Store, behalf: &OnBehalf) -> (Driver, Vec<String>) {
        let (toolbox, notes) = self.toolbox(behalf).await;
        let servers = self.servers.allowing(self.allowed(behalf));
        let activities = servers.activities(Activities::default());
        let activities = behalf
            .elsewhere
            .iter()
            .fold(activities, |all, name| all.with(name, Elsewhere));
        let driver = Driver {
            approver: Arc::new(AppApprover::new(store.clone(), false)),
            activities,
            shields: self.shields.clone(),
            candidates: self.candidates.clone(),
            ..Driver::new(self.model.clone(), Arc::new(toolbox))
        };
        (driver, notes)
    }

    /// Whether an answer may be shown while it is written: nothing has to see it before, and nothing in it
    /// stands for something else.
    pub fn speaks(&self) -> bool {
        let screened = self.shields.posts.iter();
        let mut screened = screened.filter(|post| post.places.contains(&Place::Output));
        screened.next().is_none() && self.config.privacy().is_off()
    }

    /// The tools that `behalf` may call.
    pub async fn tools(&self, behalf: &OnBehalf) -> Vec<toolhold_agent::protocol::Tool> {
        self.toolbox(behalf).await.0.tools()
    }

    async fn toolbox(&self, behalf: &OnBehalf) -> (WithServers<SandboxTools>, Vec<String>) {
        let mut toolbox = SandboxTools::new(self.registry.clone())
            // What a client names is not fetched: it would be there for all others.
            .with_sources(host::sources(&self.config).without_fetching())
            .with_requests(Requests::new(self.config.requests_folder()))
            .on_behalf_of(&behalf.owner, &behalf.session);
        if let Some(allowed) = both(self.tools.as_deref(), behalf.tools.as_deref()) {
            toolbox = toolbox.allowing(allowed);
        }
        let servers = self.servers.allowing(self.allowed(behalf));
        servers.offered(toolbox).await
    }

    /// What a run of `behalf` is held to, for its record.
    pub fn allowed(&self, behalf: &OnBehalf) -> Option<Vec<String>> {
        both(self.tools.as_deref(), behalf.tools.as_deref())
    }
}

/// A tool that is called by whoever asked for the run.
#[derive(Debug)]
struct Elsewhere;

impl Activity for Elsewhere {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async {
            tokio::time::sleep(call.timeout).await;
            ToolResult::failed(ToolFailure::deadline(call.timeout))
        })
    }
}

/// The names that both lists allow, each the narrower of two: `text` and `text.count` is `text.count`.
fn both(one: Option<&[String]>, other: Option<&[String]>) -> Option<Vec<String>> {
    let (one, other) = match (one, other) {
        (None, None) => return None,
        (Some(only), None) | (None, Some(only)) => return Some(only.to_vec()),
        (Some(one), Some(other)) => (one, other),
    };
    let within = |name: &String, list: &[String]| {
        let module = name.split('.').next().unwrap_or_default();
        list.iter().any(|known| known == name || known == module)
    };
    let mut names: Vec<String> = one
        .iter()
        .filter(|name| within(name, other))
        .chain(other.iter().filter(|name| within(name, one)))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    Some(names)
}

/// All agents, as the configuration had them when it was last read.
#[derive(Debug)]
pub struct Agents {
    registry: Registry,
    /// Endpoints that several agents ask have their limits together.
    spared: Spared,
    current: RwLock<Arc<Offered>>,
}

#[derive(Debug, Default)]
pub struct Offered {
    pub ready: BTreeMap<String, Arc<Agent>>,
    /// Those whose endpoint did not answer when it was asked which model it has.
    pub waiting: BTreeMap<String, Waiting>,
}

/// An agent that cannot run yet.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub description: String,
    /// What is wrong with its endpoint.
    pub reason: String,
}

impl Agents {
    /// # Errors
    /// An agent that cannot be made.
    pub async fn new(config: &Config, registry: Registry) -> Result<Self> {
        Self::made(config, registry, Absent::Fails).await
    }

    /// Agents whose endpoint is away wait for it: see [`Agents::look_again`].
    ///
    /// # Errors
    /// An agent that cannot be made for another reason: a server that starts without one that it was told
    /// to offer would be noticed by its clients first.
    pub async fn eventually(config: &Config, registry: Registry) -> Result<Self> {
        Self::made(config, registry, Absent::Waits).await
    }

    async fn made(config: &Config, registry: Registry, absent: Absent) -> Result<Self> {
        let spared = Spared::default();
        let offered = offered(config, &registry, &spared, absent, |_| true).await?;
        if offered.ready.is_empty() && offered.waiting.is_empty() {
            return Err(anyhow!("there are no agents"));
        }
        Ok(Self {
            registry,
            spared,
            current: RwLock::new(Arc::new(offered)),
        })
    }

    /// Reads the configuration again. Runs that began go on as they are.
    ///
    /// # Errors
    /// What is wrong with it; the agents stay as they were.
    pub async fn reload(&self, config: &Config) -> Result<()> {
        let config = config.again()?;
        let all = |_: &str| true;
        let offered = offered(&config, &self.registry, &self.spared, Absent::Fails, all).await?;
        self.replace(offered);
        Ok(())
    }

    /// Asks the endpoints again that agents wait for. Returns the names of those that can run now.
    ///
    /// # Errors
    /// The configuration has become wrong; the agents stay as they were.
    pub async fn look_again(&self, config: &Config) -> Result<Vec<String>> {
        let before = self.all();
        if before.waiting.is_empty() {
            return Ok(Vec::new());
        }
        let config = config.again()?;
        let absent = |name: &str| before.waiting.contains_key(name);
        let found = offered(&config, &self.registry, &self.spared, Absent::Waits, absent).await?;
        let come: Vec<String> = found.ready.keys().cloned().collect();
        let mut ready = before.ready.clone();
        ready.extend(found.ready);
        self.replace(Offered {
            ready,
            waiting: found.waiting,
        });
        Ok(come)
    }

    fn replace(&self, offered: Offered) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(offered);
    }

    pub fn all(&self) -> Arc<Offered> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The agent of that name, if it can run.
    pub fn named(&self, name: &str) -> Option<Arc<Agent>> {
        self.all().ready.get(name).cloned()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// What becomes of an agent whose endpoint is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Fails,
    Waits,
}

async fn offered(
    config: &Config,
    registry: &Registry,
    spared: &Spared,
    absent: Absent,
    wanted: impl Fn(&str) -> bool,
) -> Result<Offered> {
    let mut offered = Offered::default();
    for (name, table) in config.agents().filter(|(name, _)| wanted(name)) {
        match Box::pin(Agent::new(config, registry, spared, name, &table)).await {
            Ok(agent) => {
                offered.ready.insert(name.to_owned(), Arc::new(agent));
            }
            Err(error) if absent == Absent::Waits && may_pass(&error) => {
                let waiting = Waiting {
                    description: table.description.clone(),
                    reason: format!("{error:#}"),
                };
                offered.waiting.insert(name.to_owned(), waiting);
            }
            Err(error) => {
                return Err(error.context(format!("the agent {name:?} cannot be offered")));
            }
        }
    }
    Ok(offered)
}

/// Whether an endpoint that is started or becomes reachable answers otherwise.
fn may_pass(error: &anyhow::Error) -> bool {
    let causes = error.chain();
    let mut causes = causes.filter_map(|cause| cause.downcast_ref::<ModelError>());
    causes.any(|error| error.class() == ErrorClass::Retryable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_widens_what_an_agent_may_use() {
        let list = |names: &[&str]| Some(names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        for (agent, key, expected) in [
            (None, None, None),
            (list(&["text"]), None, list(&["text"])),
            (None, list(&["text"]), list(&["text"])),
            (
                list(&["text"]),
                list(&["text.count"]),
                list(&["text.count"]),
            ),
            (
                list(&["text.count"]),
                list(&["text"]),
                list(&["text.count"]),
            ),
            (list(&["text"]), list(&["files"]), list(&[])),
            (
                list(&["text", "files.read"]),
                list(&["files", "text.count", "shell"]),
                list(&["files.read", "text.count"]),
            ),
        ] {
            assert_eq!(both(agent.as_deref(), key.as_deref()), expected);
        }
    }
}
