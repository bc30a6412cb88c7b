//! Agents as the server offers them: a name, and the parts that its runs are built from.

use crate::causes::causes;
use crate::config::{AgentConfiguration, Configuration};
use crate::dialect::ProbedDialects;
use crate::host;
use crate::knowledge::ConfiguredKnowledge;
use crate::models::{Models, RunModels, SharedProtection};
use crate::narrowing::{LiveBounds, Narrowing};
use crate::remote_requests::RemoteRequests;
use crate::requests::{Requests, RequestsFolder};
use crate::retrieval::StoredRetriever;
use crate::shields::shields;
use crate::startup::Startup;
use crate::stored_decider::StoredDecider;
use crate::tools::SandboxTools;
use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use toolhold_agent::calls::{KeptBlobs, KeptResults, ResultCache};
use toolhold_agent::guard::shield::Shields;
use toolhold_agent::run::{CandidateOutcomes, OperatorTexts};
use toolhold_agent::{Activities, Driver, ToolSource as _};
use toolhold_mcp::{McpToolbox, Servers};
use toolhold_model::route::{EndpointState, Protection};
use toolhold_model::{Model, ModelError};
use toolhold_policy::ErrorClass;
use toolhold_policy::Permit;
use toolhold_policy::names;
use toolhold_protocol::settings::DEFAULT_INSTRUCTIONS;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_sandbox::{Registry, same_directory};
use toolhold_storage::{BlobQuota, ResultBlobs, Store};

/// One agent, ready to run.
#[derive(Debug)]
pub struct Agent {
    pub name: String,
    pub description: String,
    pub config: Arc<Configuration>,
    instructions: String,
    tools: Option<Vec<String>>,
    output_schema: Option<Value>,
    model: Arc<dyn Model>,
    candidates: BTreeMap<String, Arc<dyn Model>>,
    summarizer: Option<Arc<dyn Model>>,
    outcomes: Option<Arc<dyn CandidateOutcomes>>,
    /// Protections of the endpoints that may answer the agent's own requests, by name.
    pub(crate) endpoints: BTreeMap<String, Arc<Protection>>,
    known: ProbedDialects,
    shields: Shields,
    pub(crate) servers: Servers,
    startup: Startup,
    requests: RequestsFolder,
    remote: RemoteRequests,
    registry: Registry,
    /// The part of the modules' grants that the agent may use, for calls that begin now, also in older runs.
    live: LiveBounds,
    results: Arc<ResultCache>,
    knowledge: Option<Arc<ConfiguredKnowledge>>,
}

/// The client of a run, and the part of the agent's tools that it may use.
#[derive(Debug, Clone, Default)]
pub struct RunClient {
    pub owner: String,
    pub session: String,
    /// Tools, or modules for all of their tools. Absent: all tools of the agent.
    pub tools: Option<Vec<String>>,
    /// The part of the modules' grants and the MCP servers that the client may use. Absent: all of the
    /// agent's.
    pub grants: Option<Vec<Permit>>,
    /// Tools that the client runs itself: the run ends with their calls.
    pub elsewhere: BTreeSet<String>,
    /// The client's trace, which the run continues.
    pub trace: opentelemetry::Context,
}

impl RunClient {
    /// Restricts the tools to these.
    pub fn narrow(&mut self, tools: Option<Vec<String>>) {
        self.tools = intersect_names(self.tools.as_deref(), tools.as_deref());
    }
}

impl Agent {
    /// The agent, and why its models cannot be asked yet, if they cannot: without them it lists its tools and has them
    /// called.
    ///
    /// # Errors
    /// The agent cannot be made, or a model of its shields cannot be asked, without which no call is made.
    async fn new(
        agent: &AgentConfiguration,
        registry: &Registry,
        kept: &ReloadState,
        name: &str,
    ) -> Result<(Self, Option<anyhow::Error>)> {
        let config = agent.configuration.clone();
        warn_of_vain_shares(&config, name);
        let timeout = config.settings().timeout;
        let mut models = Models::new(&config, timeout, None)?
            .sparing(&kept.spared)
            .listing();
        let guards = Box::pin(models.guards()).await?;
        let toolbox = SandboxTools::new(registry.clone()).with_sources(host::sources(&config));
        let tools = agent.tools.as_deref();
        let shields = shields(&config, toolbox.components(), tools, &guards).await?;
        let (selected, absent) = match Box::pin(models.selected()).await {
            Ok(selected) => (selected, None),
            Err(error) => (RunModels::none(), Some(error)),
        };
        let endpoints = config.routes().endpoints_of(&config.endpoint).into_iter();
        let endpoints =
            endpoints.map(|(name, table)| (name.to_owned(), kept.spared.of(name, table)));
        let endpoints = endpoints.collect();
        let agent = Self {
            name: name.to_owned(),
            description: agent.description.clone(),
            instructions: agent
                .instructions
                .clone()
                .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned()),
            tools: agent.tools.clone(),
            output_schema: agent.output_schema.clone(),
            model: selected.model,
            candidates: selected.candidates,
            summarizer: selected.summarizer,
            outcomes: selected.outcomes,
            endpoints,
            known: selected.known,
            shields,
            servers: Servers::new(config.servers(), &config.pins(), tools),
            startup: kept.startup.clone(),
            requests: kept.requests(config.requests_folder()),
            remote: config.remote_requests(),
            registry: registry.clone(),
            live: kept.live(name),
            results: kept.results.clone(),
            knowledge: kept.knowledge.clone(),
            config,
        };
        Ok((agent, absent))
    }

    /// A request with the agent's settings, before the client's fields are added.
    pub fn request(&self) -> RunRequest {
        let mut request = RunRequest::new(uuid::Uuid::now_v7(), "");
        request.context.clear();
        request.instructions.clone_from(&self.instructions);
        request.output_schema.clone_from(&self.output_schema);
        request.settings = self.config.settings();
        request.retrieval = self.config.retrieval(None);
        self.known.adapt(&mut request.settings, &self.config);
        request
    }

    pub fn model(&self) -> &str {
        self.model.name()
    }

    /// The driver of a run, which keeps the bytes of results within `blobs`. The notes name MCP servers whose tools are
    /// left out.
    pub async fn driver(
        &self,
        store: &Store,
        behalf: &RunClient,
        blobs: Option<BlobQuota>,
    ) -> (Driver, Vec<String>) {
        let (toolbox, notes) = self.toolbox(behalf).await;
        let servers = self.servers(behalf);
        let activities = servers.activities(Activities::default());
        let activities = behalf
            .elsewhere
            .iter()
            .fold(activities, Activities::with_clients);
        let mut shields = self.shields.clone();
        if let Some(grants) = &behalf.grants {
            // Part of the run's policy, and so of the hash in its record.
            shields.grants["key"] = json!(grants);
        }
        let driver = Driver {
            decider: Arc::new(StoredDecider::new(store.clone())),
            activities,
            shields,
            operator: OperatorTexts {
                instructions: Some(self.instructions.clone()),
                output_schema: self.output_schema.clone(),
            },
            candidates: self.candidates.clone(),
            summarizer: self.summarizer.clone(),
            outcomes: self.outcomes.clone(),
            retriever: self.knowledge.clone().map(|knowledge| {
                Arc::new(StoredRetriever::new(
                    knowledge,
                    store.clone(),
                    &behalf.owner,
                )) as Arc<_>
            }),
            results: KeptResults::new(self.results.clone(), &behalf.owner),
            blobs: KeptBlobs::new(Arc::new(ResultBlobs::new(store.clone(), blobs)))
                .within(self.registry.kept().of(behalf.owner.as_str())),
            ..Driver::new(self.model.clone(), Arc::new(toolbox))
        };
        (driver, notes)
    }

    /// Whether an answer may be streamed: no shield screens the output, and it holds no placeholders.
    pub fn speaks(&self) -> bool {
        let screened = self.shields.posts.iter();
        let mut screened = screened.filter(|post| post.places.contains(&ShieldPlace::Output));
        screened.next().is_none() && self.config.privacy().is_off()
    }

    /// The present saved Requests.
    pub async fn requests(&self) -> Requests {
        self.requests.now().await
    }

    /// The tools that `behalf` may call. At the begin of the process it waits for MCP servers that are still silent.
    pub async fn tools(&self, behalf: &RunClient) -> Vec<Arc<toolhold_protocol::tool::Tool>> {
        self.startup.servers_end(&self.name).await;
        self.toolbox(behalf).await.0.tools()
    }

    async fn toolbox(&self, behalf: &RunClient) -> (McpToolbox<SandboxTools>, Vec<String>) {
        let mut toolbox = SandboxTools::new(self.registry.clone())
            // References of clients are not fetched: the fetched module would be there for all clients.
            .with_sources(host::local_sources(&self.config))
            .with_requests(self.requests().await)
            .with_remote_requests(self.remote.clone())
            .on_behalf_of(&behalf.owner, &behalf.session)
            .of_agent(&self.name)
            .narrowed(Narrowing::new(self.live.clone(), behalf.grants.clone()));
        if let Some(allowed) = intersect_names(self.tools.as_deref(), behalf.tools.as_deref()) {
            toolbox = toolbox.allowing(allowed);
        }
        self.servers(behalf).offered(toolbox).await
    }

    fn servers(&self, behalf: &RunClient) -> Servers {
        let allowed = self.allowed(behalf);
        self.servers.allowing(allowed, behalf.grants.clone())
    }

    /// The policy of a run of `behalf`, for its record.
    pub fn allowed(&self, behalf: &RunClient) -> Option<Vec<String>> {
        intersect_names(self.tools.as_deref(), behalf.tools.as_deref())
    }
}

/// Warns when an agent's share names a capability that the module does not have.
fn warn_of_vain_shares(config: &Configuration, agent: &str) {
    let policy = config.policy();
    for (module, share) in config.shares() {
        let granted = policy.modules.get(module).map(|own| own.grant.clone());
        for kind in share.in_vain(&granted.unwrap_or_default(), &same_directory) {
            let kind = kind.name();
            tracing::warn!(
                agent,
                module,
                kind,
                "the agent's grants name what the module was not granted, so it has none of it"
            );
        }
    }
}

/// The names that both lists allow; of two overlapping names the narrower: `text` and `text.count` is
/// `text.count`.
pub fn intersect_names(one: Option<&[String]>, other: Option<&[String]>) -> Option<Vec<String>> {
    let (one, other) = match (one, other) {
        (None, None) => return None,
        (Some(only), None) | (None, Some(only)) => return Some(only.to_vec()),
        (Some(one), Some(other)) => (one, other),
    };
    let within = |name: &String, list: &[String]| names::allows(Some(list), name);
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

/// All agents of the configuration that was last read.
#[derive(Debug)]
pub struct Agents {
    registry: Registry,
    kept: ReloadState,
    absent: UnreachableEndpoint,
    current: RwLock<Arc<ServedAgents>>,
}

/// What to do with an agent whose endpoint does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreachableEndpoint {
    Fails,
    Waits,
}

#[derive(Debug, Default)]
pub struct ServedAgents {
    pub ready: BTreeMap<String, Arc<Agent>>,
    /// Agents whose endpoint did not answer when it was asked for its model.
    pub waiting: BTreeMap<String, UnreadyAgent>,
    /// The configuration that they are made from.
    config: Option<Configuration>,
}

/// An agent that cannot run yet.
#[derive(Debug, Clone)]
pub struct UnreadyAgent {
    pub description: String,
    /// What is wrong with its endpoint.
    pub reason: String,
    /// The agent without its models: for lists of its tools, and for calls of them. Absent where its shields need a model
    /// that cannot be asked.
    pub without_model: Option<Arc<Agent>>,
}

/// State that outlives a reload of the agents.
#[derive(Debug, Default)]
struct ReloadState {
    /// Endpoints that several agents use share their limits.
    spared: SharedProtection,
    /// By path: agents with the same folder share it.
    requests: Mutex<BTreeMap<PathBuf, RequestsFolder>>,
    /// By agent.
    live: Mutex<BTreeMap<String, LiveBounds>>,
    /// Results that runs of all agents keep for later calls.
    results: Arc<ResultCache>,
    /// Absent: runs find no documents.
    knowledge: Option<Arc<ConfiguredKnowledge>>,
    /// Progress of the start of the process. Servers of agents that a reload makes are not waited for.
    startup: Startup,
}

impl ReloadState {
    fn requests(&self, folder: &Path) -> RequestsFolder {
        let mut all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(folder.to_owned());
        known.or_insert_with(|| RequestsFolder::new(folder)).clone()
    }

    fn live(&self, agent: &str) -> LiveBounds {
        let mut all = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(agent.to_owned()).or_default().clone()
    }
}

impl Agents {
    /// `knowledge`: in which runs find documents.
    ///
    /// # Errors
    /// An agent cannot be made.
    pub async fn new(
        config: &Configuration,
        registry: Registry,
        knowledge: Option<Arc<ConfiguredKnowledge>>,
    ) -> Result<Self> {
        let kept = ReloadState {
            knowledge,
            ..ReloadState::default()
        };
        Self::all_of(config, registry, kept, UnreachableEndpoint::Fails).await
    }

    /// An agent whose endpoint does not answer waits for it: see [`Agents::look_again`]. Lists of tools wait for the MCP
    /// servers that `startup` waits for.
    ///
    /// # Errors
    /// An agent cannot be made for another reason. The server then does not start: otherwise its clients
    /// would be the first to notice the missing agent.
    pub async fn eventually(
        config: &Configuration,
        registry: Registry,
        knowledge: Option<Arc<ConfiguredKnowledge>>,
        startup: Startup,
    ) -> Result<Self> {
        let kept = ReloadState {
            knowledge,
            startup,
            ..ReloadState::default()
        };
        Self::all_of(config, registry, kept, UnreachableEndpoint::Waits).await
    }

    async fn all_of(
        config: &Configuration,
        registry: Registry,
        kept: ReloadState,
        absent: UnreachableEndpoint,
    ) -> Result<Self> {
        let this = Self {
            registry,
            kept,
            absent,
            current: RwLock::default(),
        };
        let offered = this.made(config).await?;
        if offered.ready.is_empty() && offered.waiting.is_empty() {
            return Err(anyhow!("there are no agents"));
        }
        this.put(offered);
        Ok(this)
    }

    /// Makes the agents of `config` without offering them yet.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub async fn made(&self, config: &Configuration) -> Result<ServedAgents> {
        self.offered(config, |_| true).await
    }

    /// Offers these agents from now on. Runs that began continue, with the grants that their agents have now.
    pub fn put(&self, offered: ServedAgents) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        put_over(&mut current, offered);
    }

    /// Retries the endpoints that did not answer. Returns the names of the agents that can run now.
    ///
    /// # Errors
    /// An agent cannot be made for another reason; then nothing changes.
    pub async fn look_again(&self) -> Result<Vec<String>> {
        let before = self.all();
        let Some(config) = before
            .config
            .as_ref()
            .filter(|_| !before.waiting.is_empty())
        else {
            return Ok(Vec::new());
        };
        let found = self
            .offered(config, |name| before.waiting.contains_key(name))
            .await?;
        let come: Vec<String> = found.ready.keys().cloned().collect();
        let mut ready = before.ready.clone();
        ready.extend(found.ready);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, &before) {
            // The configuration was read again meanwhile; the new one counts.
            return Ok(Vec::new());
        }
        // What they have begun, such as MCP servers, goes on.
        let waiting = found.waiting.into_iter().map(|(name, now)| {
            let before = before.waiting.get(&name);
            let kept = before.and_then(|before| before.without_model.clone());
            let waiting = UnreadyAgent {
                without_model: kept.or(now.without_model),
                ..now
            };
            (name, waiting)
        });
        let found = ServedAgents {
            ready,
            waiting: waiting.collect(),
            config: found.config,
        };
        put_over(&mut current, found);
        Ok(come)
    }

    async fn offered(
        &self,
        config: &Configuration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<ServedAgents> {
        let mut offered = ServedAgents {
            config: Some(config.clone()),
            ..ServedAgents::default()
        };
        for (name, agent) in config.agents().iter().filter(|(name, _)| wanted(name)) {
            let cannot = || format!("the agent {name:?} cannot be offered");
            let agent = agent.as_ref().map_err(Clone::clone).with_context(cannot)?;
            let (without_model, error) =
                match Box::pin(Agent::new(agent, &self.registry, &self.kept, name)).await {
                    Ok((agent, None)) => {
                        offered.ready.insert(name.to_owned(), Arc::new(agent));
                        continue;
                    }
                    Ok((agent, Some(error))) => (Some(Arc::new(agent)), error),
                    Err(error) => (None, error),
                };
            if self.absent == UnreachableEndpoint::Fails || !may_pass(&error) {
                return Err(error.context(cannot()));
            }
            let waiting = UnreadyAgent {
                description: agent.description.clone(),
                reason: causes(&error),
                without_model,
            };
            offered.waiting.insert(name.to_owned(), waiting);
        }
        Ok(offered)
    }

    pub fn all(&self) -> Arc<ServedAgents> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The agent of this name, for what needs no model: also one whose endpoint has not answered.
    pub fn without_model(&self, name: &str) -> Option<Arc<Agent>> {
        let offered = self.all();
        let waiting = || offered.waiting.get(name)?.without_model.clone();
        offered.ready.get(name).cloned().or_else(waiting)
    }

    /// The agent of this name, if it can run.
    pub fn named(&self, name: &str) -> Option<Arc<Agent>> {
        self.all().ready.get(name).cloned()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The endpoints that agents ask.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        self.kept.spared.states()
    }

    /// Has the endpoint of this name asked again at once. Returns whether it was left alone; `None` if there is none.
    pub fn clear_endpoint(&self, name: &str) -> Option<bool> {
        self.kept.spared.clear(name)
    }
}

fn put_over(current: &mut Arc<ServedAgents>, offered: ServedAgents) {
    let waiting = offered.waiting.values();
    let waiting = waiting.filter_map(|waiting| waiting.without_model.as_ref());
    for agent in offered.ready.values().chain(waiting) {
        agent.live.set(agent.config.bounds());
    }
    *current = Arc::new(offered);
}

/// Whether the failure passes when the endpoint starts or becomes reachable.
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
            assert_eq!(intersect_names(agent.as_deref(), key.as_deref()), expected);
        }
    }
}
