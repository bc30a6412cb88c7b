//! The merged settings as types. Units leave the wire here: milliseconds become durations.

mod check;

use crate::config::ROUTER;
use crate::config::agents::{AgentConfiguration, AgentTable, InvalidAgent};
use crate::config::endpoint::EndpointTable;
use crate::config::fallback;
use crate::config::fallback::{FallbackCandidate, FallbackOrder, FallbackRoutes, FallbackTable};
use crate::config::jobs::JobsTable;
use crate::config::knowledge::KnowledgeTable;
use crate::config::mcp::McpTable;
use crate::config::modules::{ModuleTable, ModulesTable, OciTable};
use crate::config::pool::PoolTable;
use crate::config::price::Money;
use crate::config::requests::RequestsTable;
use crate::config::router::RouterTable;
use crate::config::routes::Routes;
use crate::config::shields::{ShieldSettings, ShieldTable, ShieldWhat};
use crate::config::surroundings::{ConfigContext, ConfigFault, ShippedModules, Variables};
use crate::config::telemetry::{LogFormat, TelemetryTable};
use crate::config::tool_retry::ToolRetryTable;
use crate::remote_requests::RemoteRequests;
use serde::Deserialize;
use serde_json::{Number, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toolhold_mcp as mcp;
use toolhold_policy::{Digest, Grant, LimitsRequest, Share};
use toolhold_protocol::advisor::CouncilMode;
use toolhold_protocol::compose::Shape;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::decision::{DecisionMode, DecisionRules};
use toolhold_protocol::fallback::Fallback;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::result_cache::{CacheScope, ResultCaching};
use toolhold_protocol::settings::Wiring;
use toolhold_protocol::settings::{Sampling, Settings};
use toolhold_protocol::window::{SummaryWriter, Window};
use toolhold_sandbox::{CompilerProcess, PinFolder, ReservedPath};
use toolhold_storage::Location;

/// The tables of the configuration as they are written, merged from all their sources and not checked yet.
#[derive(Debug, Clone, Deserialize)]
pub struct Tables {
    endpoint: String,
    endpoints: BTreeMap<String, EndpointTable>,
    #[serde(default)]
    pools: BTreeMap<String, PoolTable>,
    router: RouterTable,
    run: RunTable,
    decisions: DecisionsTable,
    fallback: FallbackTable,
    tool_retry: ToolRetryTable,
    jobs: JobsTable,
    requests: RequestsTable,
    pub(super) modules: ModulesTable,
    pub(super) limits: LimitsRequest,
    pub(super) ceiling: LimitsRequest,
    #[serde(default)]
    pub(super) module: BTreeMap<String, ModuleTable>,
    #[serde(default)]
    mcp: BTreeMap<String, McpTable>,
    #[serde(default)]
    shields: BTreeMap<String, ShieldTable>,
    pub(super) oci: OciTable,
    pub(super) knowledge: KnowledgeTable,
    storage: StorageTable,
    telemetry: TelemetryTable,
    #[serde(default)]
    pub(super) agents: BTreeMap<String, AgentTable>,
    paths: PathsTable,
}

/// All settings that runs depend on, checked.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The model of runs: an endpoint, a pool, or the router.
    pub endpoint: String,
    telemetry: toolhold_telemetry::Settings,
    pub(super) tables: Tables,
    /// By module: its grant, or why it cannot be granted.
    pub(super) grants: BTreeMap<String, Result<Grant, String>>,
    /// Modules with grants for this process alone.
    pub(super) one_off: BTreeSet<String>,
    pub(super) compiler: Option<CompilerProcess>,
    /// Whether crashes name lines of the source.
    pub(super) debug_info: bool,
    pub(super) agents: BTreeMap<String, Result<AgentConfiguration, InvalidAgent>>,
    is_max_tokens_default: bool,
    is_temperature_default: bool,
    servers: Vec<mcp::ServerSettings>,
    /// In screening order.
    screening: Vec<ShieldSettings>,
    /// The restrictions of grants, in the configuration of an agent.
    shares: BTreeMap<String, Share>,
    variables: Variables,
    secrets: Secrets,
    state_folder: PathBuf,
    cache_folder: PathBuf,
    /// The user's modules folder, if it stands in for the configured one, which did not exist.
    pub(super) users_modules: Option<PathBuf>,
    pub(super) shipped_modules: Option<ShippedModules>,
    pub(super) shipped_digest: Option<fn(&str) -> Option<Digest>>,
    /// Value of [`ConfigContext::reserved`].
    pub(super) reserved_outside: Vec<ReservedPath>,
    pub(super) program_path: Option<String>,
    pub(super) home: Option<PathBuf>,
}

/// Names and values of secrets.
#[derive(Clone)]
struct Secrets(Vec<(String, String)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// Credentials for registries.
const OCI_VARIABLES: [&str; 4] = [
    "TOOLHOLD_OCI_HOST",
    "TOOLHOLD_OCI_USERNAME",
    OCI_PASSWORD,
    "TOOLHOLD_OCI_TOKEN_HOST",
];
const OCI_PASSWORD: &str = "TOOLHOLD_OCI_PASSWORD";

#[derive(Debug, Clone, Deserialize)]
struct RunTable {
    max_steps: u32,
    max_tokens: u32,
    token_budget: u64,
    currency: String,
    max_cost: Money,
    max_tool_calls: u32,
    timeout_ms: u64,
    call_timeout_ms: u64,
    parallel_calls: usize,
    max_calls: usize,
    shape: Shape,
    examples: usize,
    reasons: bool,
    temperature: f32,
    top_p: f64,
    seed: u64,
    repair: bool,
    result_chars: usize,
    wiring: Wiring,
    council: CouncilMode,
    max_depth: u32,
    result_cache: CacheScope,
    result_cache_tools: Vec<String>,
    max_tools: usize,
    summarizer: String,
}

#[derive(Debug, Clone, Deserialize)]
struct DecisionsTable {
    default: DecisionMode,
    always: Vec<String>,
    on_write: Vec<String>,
    never: Vec<String>,
    plans: bool,
    calls_in_prose: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct StorageTable {
    url_env: String,
    keep_days: u32,
    keep_audit_days: u32,
    audit_results: bool,
    patience_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct PathsTable {
    cache: PathBuf,
    state: PathBuf,
}

/// Name of the SQLite database in the state folder.
pub const DATABASE_FILE: &str = "toolhold.db";

impl Configuration {
    /// Checks the tables and completes them. It has no agents yet: see [`Self::add_agent`].
    ///
    /// # Errors
    /// The first key whose value cannot be used.
    pub fn new(tables: Tables, surroundings: &ConfigContext<'_>) -> Result<Self, ConfigFault> {
        let mut servers = Vec::new();
        for (name, table) in &tables.mcp {
            let key = format!("mcp.{name}");
            let is_untrusted = surroundings.is_untrusted;
            let settings = table.settings(
                name,
                is_untrusted(&key),
                is_untrusted("paths.state"),
                surroundings.variable,
            );
            servers.push(settings.map_err(|fault| fault.below(&key))?);
        }
        let mut screening = Vec::new();
        for (name, table) in &tables.shields {
            let settings = table.settings(name);
            screening.push(settings.map_err(|fault| fault.below(&format!("shields.{name}")))?);
        }
        screening.sort_by_key(|shield| shield.order);
        let folder = |own: &PathBuf, usual: &PathBuf| {
            let is_set = !own.as_os_str().is_empty();
            if is_set { own.clone() } else { usual.clone() }
        };
        let configuration = Self {
            endpoint: tables.endpoint.clone(),
            telemetry: tables.telemetry.settings(surroundings.variable),
            grants: tables
                .module
                .iter()
                .map(|(name, table)| (name.clone(), table.grant(surroundings)))
                .collect(),
            one_off: surroundings.one_off_grants.clone(),
            compiler: surroundings.compiler.clone(),
            debug_info: false,
            agents: BTreeMap::new(),
            is_max_tokens_default: surroundings.is_max_tokens_default,
            is_temperature_default: surroundings.is_temperature_default,
            servers,
            screening,
            shares: BTreeMap::new(),
            variables: tables.variables(surroundings),
            secrets: tables.secrets(surroundings),
            state_folder: folder(&tables.paths.state, &surroundings.state_folder),
            cache_folder: folder(&tables.paths.cache, &surroundings.cache_folder),
            users_modules: {
                let users = surroundings.usual_modules.users.clone();
                users.filter(|users| !tables.modules.has_folder() && users.is_dir())
            },
            shipped_modules: surroundings.usual_modules.shipped.clone(),
            shipped_digest: surroundings.usual_modules.digest,
            reserved_outside: surroundings.reserved.clone(),
            program_path: surroundings.program_path.clone(),
            home: surroundings.home.clone(),
            tables,
        };
        configuration.check()?;
        Ok(configuration)
    }

    /// Whether a temperature was asked for.
    pub fn has_temperature(&self) -> bool {
        !self.is_temperature_default
    }

    /// Whether the state has a folder that the configuration names, and not the user's own.
    pub(super) fn has_own_state(&self) -> bool {
        !self.tables.paths.state.as_os_str().is_empty()
    }

    /// All endpoints, pools and the router.
    pub fn routes(&self) -> Routes<'_> {
        Routes {
            endpoints: &self.tables.endpoints,
            pools: &self.tables.pools,
            router: &self.tables.router,
        }
    }

    /// The endpoint of runs, unless it is a pool or the router.
    pub fn selected(&self) -> Option<&EndpointTable> {
        self.tables.endpoints.get(&self.endpoint)
    }

    /// Where runs send requests: the URL of an endpoint, or the name of a pool.
    pub fn place(&self) -> &str {
        self.selected()
            .map_or(&self.endpoint, |endpoint| &endpoint.base_url)
    }

    /// The candidates of the fallback in the order in which they are asked: those that the operator lists, or those
    /// of the built-in order. `own_models`: the models that the run's own endpoint lists, where that is known.
    pub fn candidates(&self, own_models: &[String]) -> Vec<String> {
        self.with_fallback(own_models, FallbackTable::names)
    }

    /// The fallback of runs, with candidates as [`Self::candidates`] has them.
    pub fn fallback(&self, own_models: &[String]) -> Fallback {
        let counts_money = self.max_cost().is_some();
        self.with_fallback(own_models, |fallback, of| {
            fallback.settings(of, counts_money, &|variable| {
                self.variable(variable).is_some()
            })
        })
    }

    /// The endpoint whose other models the fallback asks: that of runs, unless the operator lists all candidates.
    pub fn listing_endpoint(&self) -> Option<&EndpointTable> {
        self.selected()
            .filter(|_| self.tables.fallback.takes_others())
    }

    /// Whether the operator lists this one by its name.
    pub fn lists_candidate(&self, name: &str) -> bool {
        self.tables.fallback.lists(name)
    }

    /// Whether the listed order counts, or what the candidates did before.
    pub fn fallback_order(&self) -> FallbackOrder {
        self.tables.fallback.order()
    }

    /// The configuration of one candidate of the fallback.
    pub fn candidate(&self, name: &str) -> Option<FallbackCandidate<'_>> {
        fallback::named(name, &self.tables.endpoints, &self.endpoint)
    }

    fn with_fallback<T>(
        &self,
        own_models: &[String],
        read: impl FnOnce(&FallbackTable, FallbackRoutes<'_>) -> T,
    ) -> T {
        let routes = self.routes();
        let agents = self.tables.agents.values();
        let mut beside: BTreeSet<&str> = self.guards().map(|(_, endpoint)| endpoint).collect();
        // A guard of another agent makes no calls for this one either.
        beside.extend(agents.clone().flat_map(AgentTable::guards));
        let answering = routes.endpoints_of(ROUTER);
        let deciding = routes.endpoints_of(&routes.router.model).into_iter();
        let deciding = deciding.map(|(name, _)| name);
        beside.extend(deciding.filter(|name| answering.iter().all(|(other, _)| other != name)));
        let own = routes.endpoints_of(&self.endpoint);
        let summarizers = self.summarizer().into_iter();
        let summarizers = summarizers.chain(agents.filter_map(AgentTable::summarizer));
        let summarizing = summarizers.flat_map(|name| routes.endpoints_of(name));
        let summarizing = summarizing.map(|(name, _)| name);
        beside.extend(summarizing.filter(|name| own.iter().all(|(other, _)| other != name)));
        let of = FallbackRoutes {
            routes,
            own: &self.endpoint,
            own_models,
            beside: &beside,
        };
        read(&self.tables.fallback, of)
    }

    pub fn settings(&self) -> Settings {
        let run = &self.tables.run;
        Settings {
            contract: self.routes().contract(&self.endpoint),
            shape: run.shape,
            max_steps: run.max_steps,
            max_tokens: run.max_tokens,
            assumed_max_tokens: self.is_max_tokens_default.then_some(run.max_tokens),
            token_budget: Some(run.token_budget).filter(|budget| *budget > 0),
            price: self.routes().price(&self.endpoint),
            currency: run.currency.clone(),
            max_cost: self.max_cost(),
            max_tool_calls: Some(run.max_tool_calls).filter(|most| *most > 0),
            timeout: Duration::from_millis(run.timeout_ms),
            call_timeout: Duration::from_millis(run.call_timeout_ms),
            tool_retry: self.tables.tool_retry.policy(),
            jobs: self.tables.jobs.policy(),
            result_cache: ResultCaching {
                scope: run.result_cache,
                tools: run.result_cache_tools.clone(),
                ..ResultCaching::default()
            },
            parallel_calls: run.parallel_calls,
            max_calls: run.max_calls,
            examples: run.examples,
            reasons: run.reasons,
            temperature: Some(run.temperature),
            sampling: Sampling {
                top_p: Some(run.top_p).filter(|top_p| *top_p > 0.0),
                ..Sampling::default()
            },
            seed: Some(run.seed).filter(|seed| *seed > 0).map(Number::from),
            repair: run.repair,
            result_chars: run.result_chars,
            wiring: run.wiring,
            council: run.council,
            max_depth: run.max_depth,
            decisions: self.tables.decisions.rules(),
            fallback: self.fallback(&[]),
            window: Window {
                tokens: self.routes().window(&self.endpoint),
                max_tools: self.tables.run.max_tools,
                conversation: Some(match self.summarizer() {
                    Some(_) => SummaryWriter::Model,
                    None => SummaryWriter::Host,
                }),
                ..Window::default()
            },
            privacy: self.privacy(),
            ..Settings::default()
        }
    }

    pub fn endpoint_named(&self, name: &str) -> Option<&EndpointTable> {
        self.tables.endpoints.get(name)
    }

    /// The shields in screening order.
    pub fn shields(&self) -> &[ShieldSettings] {
        &self.screening
    }

    /// The restrictions of these modules' grants, for the agent that the configuration belongs to.
    pub fn shares(&self) -> &BTreeMap<String, Share> {
        &self.shares
    }

    /// Adds an agent's own restrictions of grants, and its shields.
    ///
    /// # Errors
    /// The key below the agent's, and what is wrong with its value.
    pub(super) fn narrow(
        &mut self,
        shares: BTreeMap<String, Share>,
        shields: Vec<ShieldSettings>,
    ) -> Result<(), ConfigFault> {
        self.shares = shares;
        self.screening.extend(shields);
        self.screening
            .sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        // The agent's guard model may have no price.
        let prices = self.check_prices();
        prices.map_err(|fault| ConfigFault::new("shields", fault.reason))
    }

    /// What is hidden from the model: everything that any shield hides, revealed only to tools that all of
    /// them reveal it to.
    pub fn privacy(&self) -> Privacy {
        let mut all = self
            .screening
            .iter()
            .filter_map(|shield| match &shield.what {
                ShieldWhat::Pii { privacy, .. } if !privacy.is_off() => Some(privacy),
                _ => None,
            });
        let first = all.next().cloned().unwrap_or_default();
        all.fold(first, |one, other| Privacy {
            hide: &one.hide | &other.hide,
            reveal: &one.reveal & &other.reveal,
            reveal_secrets: &one.reveal_secrets & &other.reveal_secrets,
        })
    }

    /// The grants of modules and servers, without the values of secrets.
    pub fn granted(&self) -> Value {
        let modules = self.grants.iter().map(|(name, grant)| {
            let grant = grant.as_ref().ok();
            (name.clone(), json!(grant))
        });
        let servers = self.servers.iter().map(|server| {
            let given = json!({"launch": server.launch, "tools": server.tools});
            (server.name.clone(), given)
        });
        let mut granted = json!({
            "modules": modules.collect::<serde_json::Map<_, _>>(),
            "mcp": servers.collect::<serde_json::Map<_, _>>(),
        });
        if !self.shares.is_empty() {
            granted["shares"] = json!(self.shares);
        }
        granted
    }

    /// The currency of prices; empty without prices.
    pub fn currency(&self) -> &str {
        &self.tables.run.currency
    }

    fn max_cost(&self) -> Option<Amount> {
        Some(self.tables.run.max_cost.0).filter(|most| !most.is_zero())
    }

    /// The shields that ask a model, with its endpoint.
    pub fn guards(&self) -> impl Iterator<Item = (&str, &str)> {
        self.screening
            .iter()
            .filter_map(|shield| match &shield.what {
                ShieldWhat::Model { endpoint, .. } => {
                    Some((shield.name.as_str(), endpoint.as_str()))
                }
                _ => None,
            })
    }

    /// The endpoint or pool that sums up conversations, if one does.
    pub fn summarizer(&self) -> Option<&str> {
        Some(self.tables.run.summarizer.as_str()).filter(|name| !name.is_empty())
    }

    /// The folder of saved Requests.
    pub fn requests_folder(&self) -> &Path {
        &self.tables.requests.folder
    }

    /// The addresses whose saved Requests tools may name.
    pub fn remote_requests(&self) -> RemoteRequests {
        self.tables.requests.remote()
    }

    /// The MCP servers, by name.
    pub fn servers(&self) -> Vec<mcp::ServerSettings> {
        self.servers.clone()
    }

    /// The pins of MCP servers, and when a server needs one.
    pub fn pins(&self) -> mcp::ServerPins {
        let pins = Arc::new(self.pins_of_servers());
        mcp::ServerPins::new(pins, self.tables.modules.pinning)
    }

    pub(super) fn pins_of_servers(&self) -> PinFolder {
        PinFolder::new(self.state_folder().join("mcp"))
    }

    /// The folder of compiled modules, fetched components and toolchains.
    pub fn cache_folder(&self) -> &Path {
        &self.cache_folder
    }

    /// The folder of pins, grants, the database and the cache's key. It must not be lost.
    pub fn state_folder(&self) -> &Path {
        &self.state_folder
    }

    /// The database of runs: the URL in the variable that `storage.url_env` names, or a file.
    pub fn storage(&self) -> Location {
        match self.database_url() {
            Some(url) => Location::Postgres(url.into()),
            None => Location::File(self.state_folder.join(DATABASE_FILE)),
        }
    }

    /// The URL of a database that is no file.
    pub(super) fn database_url(&self) -> Option<&str> {
        self.variable(&self.tables.storage.url_env)
    }

    /// The value of a configured variable, if it is set and not blank.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name)
    }

    /// The key of an endpoint, if its variable is set.
    pub fn api_key(&self, endpoint: &EndpointTable) -> Option<String> {
        self.variable(&endpoint.api_key_env).map(str::to_owned)
    }

    /// The values of all secrets that the configuration names, which no record may hold.
    pub fn secrets(&self) -> Vec<(String, String)> {
        self.secrets.0.clone()
    }

    /// Settings of traces and metrics. `is_scraped`: this process serves its metrics, too.
    pub fn telemetry(&self, is_scraped: bool) -> toolhold_telemetry::Settings {
        toolhold_telemetry::Settings {
            is_scraped,
            ..self.telemetry.clone()
        }
    }

    /// The format of logs.
    pub fn log_format(&self) -> LogFormat {
        self.tables.telemetry.log_format
    }

    /// How long ended runs and sessions are kept. Absent: for ever.
    pub fn keep_days(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.tables.storage.keep_days)
    }

    /// How long entries of the audit log are kept. Absent: for ever.
    pub fn keep_audit_days(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.tables.storage.keep_audit_days)
    }

    /// Whether results of calls are kept in the audit log.
    pub fn audit_results(&self) -> bool {
        self.tables.storage.audit_results
    }

    /// How long writes are retried during an outage of the database.
    pub fn storage_patience(&self) -> Duration {
        Duration::from_millis(self.tables.storage.patience_ms)
    }
}

impl Tables {
    /// The variables that the configuration names, except for those of modules' secrets and of MCP servers,
    /// which are read where they are used.
    fn variables(&self, surroundings: &ConfigContext<'_>) -> Variables {
        let endpoints = self.endpoints.values().map(|it| it.api_key_env.as_str());
        let names = endpoints
            .chain([self.storage.url_env.as_str()])
            .chain(OCI_VARIABLES);
        Variables::read(names, surroundings.variable)
    }

    fn secrets(&self, surroundings: &ConfigContext<'_>) -> Secrets {
        let endpoints = self.endpoints.values().map(|it| it.api_key_env.as_str());
        let servers = self.mcp.values().flat_map(McpTable::secrets);
        let own = [
            self.storage.url_env.as_str(),
            self.telemetry.headers_env.as_str(),
            OCI_PASSWORD,
        ];
        let others = surroundings.secret_variables.iter().map(String::as_str);
        let names = endpoints.chain(servers).chain(own).chain(others);
        let mut secrets: Vec<(String, String)> = names
            .filter(|name| !name.is_empty())
            .filter_map(|name| Some((name.to_owned(), (surroundings.variable)(name)?)))
            .collect();
        let granted = self.module.values().flat_map(|module| &module.secrets);
        secrets.extend(granted.filter_map(|secret| {
            let value = secret.value(surroundings).ok()?;
            Some((secret.name.clone(), value))
        }));
        secrets.retain(|(_, value)| !value.trim().is_empty());
        secrets.sort();
        secrets.dedup();
        Secrets(secrets)
    }
}

impl DecisionsTable {
    fn rules(&self) -> DecisionRules {
        let of = |names: &[String], when| -> Vec<(String, DecisionMode)> {
            names.iter().map(|name| (name.clone(), when)).collect()
        };
        let mut tools = of(&self.never, DecisionMode::Never);
        // A name that occurs twice waits twice.
        tools.extend(of(&self.on_write, DecisionMode::OnWrite));
        tools.extend(of(&self.always, DecisionMode::Always));
        DecisionRules {
            default: self.default,
            tools: tools.into_iter().collect(),
            plans: self.plans,
            calls_in_prose: self.calls_in_prose,
        }
    }
}
