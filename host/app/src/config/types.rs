//! The merged settings as types. Units leave the wire here: milliseconds become durations.

use crate::config::endpoint::Endpoint;
use crate::config::fallback::{self, FallbackTable, Named};
use crate::config::layers::{ConfigError, Merged};
use crate::config::mcp::McpTable;
use crate::config::mcp_server::McpServerTable;
use crate::config::modules::{Approval, CompilerTable, ModuleTable, ModulesTable, OciTable};
use crate::config::pool::PoolTable;
use crate::config::price::Money;
use crate::config::router::RouterTable;
use crate::config::routes::{Routes, Target};
use crate::config::serve::{AgentTable, ServeTable};
use crate::config::shields::{ShieldSettings, ShieldTable, ShieldWhat};
use crate::config::telemetry::TelemetryTable;
use crate::mcp;
use crate::mcp_server;
use crate::storage::Location;
use etcetera::BaseStrategy as _;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::context::Window;
use toolhold_agent::contract::MAX_EXAMPLES;
use toolhold_agent::cost::Amount;
use toolhold_agent::guard::pii::Privacy;
use toolhold_agent::run::Wiring;
use toolhold_agent::run::approval::{Approvals as CallApprovals, When};
use toolhold_agent::{Settings, Shape};
use toolhold_sandbox::{Approvals, LimitsRequest, Share};

/// Everything the host was told.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// What runs use: an endpoint, a pool, or the router.
    pub endpoint: String,
    pub(super) endpoints: BTreeMap<String, Endpoint>,
    #[serde(default)]
    pools: BTreeMap<String, PoolTable>,
    router: RouterTable,
    run: RunTable,
    approval: ApprovalTable,
    fallback: FallbackTable,
    requests: RequestsTable,
    pub(super) modules: ModulesTable,
    pub(super) limits: LimitsRequest,
    pub(super) ceiling: LimitsRequest,
    #[serde(default)]
    pub(super) module: BTreeMap<String, ModuleTable>,
    #[serde(default)]
    pub(super) mcp: BTreeMap<String, McpTable>,
    pub(super) mcp_server: McpServerTable,
    #[serde(default)]
    shields: BTreeMap<String, ShieldTable>,
    pub(super) compiler: CompilerTable,
    pub(super) oci: OciTable,
    pub(super) storage: StorageTable,
    pub telemetry: TelemetryTable,
    pub serve: ServeTable,
    #[serde(default)]
    pub(super) agents: BTreeMap<String, AgentTable>,
    paths: PathsTable,
    /// Modules that were given something on the command line.
    #[serde(skip)]
    pub(super) one_off: BTreeSet<String>,
    #[serde(skip)]
    servers: Vec<mcp::Settings>,
    /// In the order in which they screen.
    #[serde(skip)]
    screening: Vec<ShieldSettings>,
    /// What is left of the grants of modules, where this is an agent's.
    #[serde(skip)]
    shares: BTreeMap<String, Share>,
    #[serde(skip)]
    pub(super) given: super::Given,
}

#[derive(Debug, Clone, Deserialize)]
struct RunTable {
    max_steps: u32,
    max_tokens: u32,
    /// Nobody chose it.
    #[serde(skip)]
    is_max_tokens_default: bool,
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
    seed: u64,
    repair: bool,
    result_chars: usize,
    wiring: Wiring,
    max_depth: u32,
    max_tools: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct ApprovalTable {
    default: When,
    always: Vec<String>,
    on_write: Vec<String>,
    never: Vec<String>,
    plans: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct RequestsTable {
    folder: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct StorageTable {
    pub(super) url_env: String,
    keep_days: u32,
    patience_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct PathsTable {
    cache: PathBuf,
    state: PathBuf,
}

pub fn validate(merged: &Merged) -> Result<Config, ConfigError> {
    let value = |key: &str, reason: String| ConfigError::Value {
        key: key.into(),
        origin: merged.origin(key),
        reason,
    };
    let mut config: Config =
        toml::Value::Table(merged.table())
            .try_into()
            .map_err(|error: toml::de::Error| {
                // toml says which key in a last line: in `run.max_steps`
                let text = error.to_string();
                let (reason, key) = text
                    .trim_end()
                    .rsplit_once("\nin `")
                    .map_or((text.as_str(), ""), |(r, k)| (r, k.trim_end_matches('`')));
                value(key, reason.to_owned())
            })?;
    config.one_off = merged.granted_by_flags();
    config.run.is_max_tokens_default = merged.origin("run.max_tokens") == "default";
    for (name, table) in &config.mcp {
        let key = format!("mcp.{name}");
        let settings = table.settings(name, merged.is_found(&key), merged.is_found("paths.state"));
        let settings =
            settings.map_err(|(leaf, reason)| value(&format!("{key}.{leaf}"), reason))?;
        config.servers.push(settings);
    }
    for (name, table) in &config.shields {
        let settings = table
            .settings(name)
            .map_err(|(leaf, reason)| value(&format!("shields.{name}.{leaf}"), reason))?;
        config.screening.push(settings);
    }
    config.screening.sort_by_key(|shield| shield.order);
    let routes = config.routes();
    routes
        .check()
        .map_err(|(key, reason)| value(&key, reason))?;
    if routes.target(&config.endpoint).is_none() {
        return Err(value("endpoint", routes.unknown(&config.endpoint)));
    }
    if let Some((key, reason)) = config.price_fault() {
        return Err(value(&key, reason));
    }
    let is_many = |name: &str| !matches!(routes.target(name), None | Some(Target::Endpoint(_)));
    let fault = config
        .fallback
        .fault(&config.endpoints, &config.endpoint, is_many);
    if let Some((key, reason)) = fault {
        return Err(value(&format!("fallback.{key}"), reason));
    }
    if let Some((key, reason)) = config.serve.fault() {
        return Err(value(&format!("serve.{key}"), reason));
    }
    if let Some((key, reason)) = config.telemetry.fault() {
        return Err(value(&format!("telemetry.{key}"), reason));
    }
    if let Some((key, reason)) = config.agents_fault() {
        return Err(value(&key, reason));
    }
    for shield in &config.screening {
        if let Some(reason) = config.missing_endpoint(shield) {
            return Err(value(&format!("shields.{}.endpoint", shield.name), reason));
        }
    }
    if let Some(key) = config.mcp_server.zero() {
        return Err(value(key, "must be at least 1".into()));
    }
    if let Some((key, reason)) = config.mcp_server.fault() {
        return Err(value(key, reason));
    }
    if let Some((key, reason)) = config.time_fault() {
        return Err(value(&key, reason));
    }
    if config.run.examples > MAX_EXAMPLES {
        let reason = format!("there are 0 to {MAX_EXAMPLES} worked examples");
        return Err(value("run.examples", reason));
    }
    for (key, zero) in [
        ("run.max_steps", config.run.max_steps == 0),
        ("run.max_tokens", config.run.max_tokens == 0),
        ("run.parallel_calls", config.run.parallel_calls == 0),
        ("run.max_calls", config.run.max_calls == 0),
        (
            "modules.concurrent_calls",
            config.modules.concurrent_calls == 0,
        ),
    ] {
        if zero {
            return Err(value(key, "must be at least 1".into()));
        }
    }
    Ok(config)
}

impl Config {
    /// All that requests can be sent to.
    pub fn routes(&self) -> Routes<'_> {
        Routes {
            endpoints: &self.endpoints,
            pools: &self.pools,
            router: &self.router,
        }
    }

    /// The endpoint that runs use, if it is one.
    pub fn selected(&self) -> Option<&Endpoint> {
        self.endpoints.get(&self.endpoint)
    }

    /// Where runs ask: the URL of an endpoint, the name of a pool.
    pub fn place(&self) -> &str {
        self.selected()
            .map_or(&self.endpoint, |endpoint| &endpoint.base_url)
    }

    /// The models that `[fallback]` lists.
    pub fn candidates(&self) -> impl Iterator<Item = &str> {
        self.fallback.names().iter().map(String::as_str)
    }

    /// What a candidate of `[fallback]` is.
    pub fn candidate(&self, name: &str) -> Option<Named<'_>> {
        fallback::named(name, &self.endpoints, &self.endpoint)
    }

    pub fn settings(&self) -> Settings {
        let run = &self.run;
        Settings {
            contract: self.routes().contract(&self.endpoint),
            shape: run.shape,
            max_steps: run.max_steps,
            max_tokens: run.max_tokens,
            assumed_max_tokens: run.is_max_tokens_default.then_some(run.max_tokens),
            token_budget: Some(run.token_budget).filter(|budget| *budget > 0),
            price: self.routes().price(&self.endpoint),
            currency: run.currency.clone(),
            max_cost: self.max_cost(),
            max_tool_calls: Some(run.max_tool_calls).filter(|most| *most > 0),
            timeout: Duration::from_millis(run.timeout_ms),
            call_timeout: Duration::from_millis(run.call_timeout_ms),
            parallel_calls: run.parallel_calls,
            max_calls: run.max_calls,
            examples: run.examples,
            reasons: run.reasons,
            temperature: Some(run.temperature),
            seed: Some(run.seed).filter(|seed| *seed > 0),
            repair: run.repair,
            result_chars: run.result_chars,
            wiring: run.wiring,
            max_depth: run.max_depth,
            approval: self.approval.rules(),
            fallback: self.fallback.settings(
                &self.endpoints,
                &self.endpoint,
                self.max_cost().is_some(),
            ),
            window: Window {
                tokens: self.routes().window(&self.endpoint),
                max_tools: self.run.max_tools,
                ..Window::default()
            },
            privacy: self.privacy(),
            ..Settings::default()
        }
    }

    pub fn endpoint_named(&self, name: &str) -> Option<&Endpoint> {
        self.endpoints.get(name)
    }

    /// What screens, in its order.
    pub fn shields(&self) -> &[ShieldSettings] {
        &self.screening
    }

    /// What is left of the grants of these modules, for the agent whose configuration this is.
    pub fn shares(&self) -> &BTreeMap<String, Share> {
        &self.shares
    }

    /// An agent's own: less of the grants, and more shields.
    ///
    /// # Errors
    /// The key below the agent's and what is wrong with it.
    pub(super) fn narrow(
        &mut self,
        shares: BTreeMap<String, Share>,
        shields: Vec<ShieldSettings>,
    ) -> Result<(), (String, String)> {
        self.shares = shares;
        self.screening.extend(shields);
        self.screening
            .sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        // A guard model of its own may have no price.
        let fault = self.price_fault();
        fault.map_or(Ok(()), |(_, reason)| Err(("shields".into(), reason)))
    }

    /// What is wrong with the endpoint that a shield asks.
    pub(super) fn missing_endpoint(&self, shield: &ShieldSettings) -> Option<String> {
        match &shield.what {
            ShieldWhat::Model { endpoint, .. } if !self.endpoints.contains_key(endpoint) => {
                Some(format!("there is no [endpoints.{endpoint}]"))
            }
            _ => None,
        }
    }

    /// What the model is not shown: all that any shield hides, revealed to whom all of them reveal it.
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

    /// What modules and servers are given, without the values of secrets.
    pub fn granted(&self) -> Value {
        let modules = self.module.iter().map(|(name, table)| {
            let grant = table.grant().ok();
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

    /// In which prices are; empty if there are none.
    pub fn currency(&self) -> &str {
        &self.run.currency
    }

    fn max_cost(&self) -> Option<Amount> {
        Some(self.run.max_cost.0).filter(|most| !most.is_zero())
    }

    /// A time that is over before anything can happen in it: the key, and the remedy.
    fn time_fault(&self) -> Option<(String, String)> {
        let endpoints = self.endpoints.iter().flat_map(|(name, endpoint)| {
            [
                ("connect_timeout_ms", endpoint.connect_timeout_ms),
                ("first_token_timeout_ms", endpoint.first_token_timeout_ms),
                ("idle_timeout_ms", endpoint.idle_timeout_ms),
            ]
            .map(|(leaf, time)| (format!("endpoints.{name}.{leaf}"), Some(time)))
        });
        let modules = self.module.iter();
        let limits = modules
            .map(|(name, table)| (format!("module.{name}.limits"), &table.limits))
            .chain([
                ("limits".to_owned(), &self.limits),
                ("ceiling".to_owned(), &self.ceiling),
            ]);
        let limits = limits.flat_map(|(table, limits)| {
            [
                ("timeout_ms", limits.timeout_ms),
                ("http_timeout_ms", limits.http_timeout_ms),
                ("compile_ms", limits.compile_ms),
            ]
            .map(|(leaf, time)| (format!("{table}.{leaf}"), time))
        });
        let others = [
            ("run.timeout_ms", self.run.timeout_ms),
            ("run.call_timeout_ms", self.run.call_timeout_ms),
            ("router.timeout_ms", self.router.timeout_ms),
            ("oci.timeout_ms", self.oci.timeout_ms),
            ("oci.idle_timeout_ms", self.oci.idle_timeout_ms),
        ]
        .map(|(key, time)| (key.to_owned(), Some(time)));
        let mut all = endpoints.chain(limits).chain(others);
        let (key, _) = all.find(|(_, time)| *time == Some(0))?;
        let reason = "must be at least 1: 0 is no time at all, and not time without limit; leave it out for the default, or write \
                      a large number";
        Some((key, reason.into()))
    }

    /// What is wrong with prices, or with what depends on them: the key, and the reason.
    fn price_fault(&self) -> Option<(String, String)> {
        let faults = self.endpoints.iter().find_map(|(name, endpoint)| {
            let (leaf, reason) = endpoint.price_fault()?;
            Some((format!("endpoints.{name}.{leaf}"), reason))
        });
        if faults.is_some() {
            return faults;
        }
        let is_priced = |endpoint: &Endpoint| endpoint.price().is_some();
        if self.run.currency.trim().is_empty() && self.endpoints.values().any(is_priced) {
            let reason = "endpoints have prices, so say in which currency, such as \"EUR\"";
            return Some(("run.currency".into(), reason.into()));
        }
        self.max_cost()?;
        let mut asked = self.asked().into_iter();
        let reason = asked.find_map(|name| self.routes().unpriced(name))?;
        Some(("run.max_cost".into(), reason))
    }

    /// The endpoints and pools whose replies every run pays for, with those that decide and screen.
    fn asked(&self) -> Vec<&str> {
        let mut asked = vec![self.endpoint.as_str()];
        asked.extend(self.routes().picker(&self.endpoint));
        asked.extend(self.guards().map(|(_, endpoint)| endpoint));
        asked
    }

    /// The shields that ask a model, and its endpoint.
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

    /// Where saved Requests are.
    pub fn requests_folder(&self) -> &Path {
        &self.requests.folder
    }

    /// How the modules are served as MCP tools.
    pub fn mcp_server(&self) -> mcp_server::Settings {
        self.mcp_server.settings()
    }

    /// The MCP servers, by name.
    pub fn servers(&self) -> Vec<mcp::Settings> {
        self.servers.clone()
    }

    /// What is known of MCP servers, and when they need a person.
    pub fn pins(&self) -> mcp::Pins {
        let trust = match self.modules.approval {
            Approval::FirstSight => mcp::Trust::FirstSight,
            Approval::Always => mcp::Trust::Always,
            Approval::Never => mcp::Trust::Never,
        };
        let approvals = Approvals::new(self.state_folder().join("mcp"));
        mcp::Pins::new(Arc::new(approvals), trust)
    }

    /// The file that `toolhold modules grant` writes.
    pub fn grants_file(&self) -> PathBuf {
        self.state_folder().join("grants.toml")
    }

    /// Where compiled modules, fetched components and toolchains are kept.
    pub fn cache_folder(&self) -> PathBuf {
        let base = etcetera::choose_base_strategy().ok();
        own_or(&self.paths.cache, base.map(|base| base.cache_dir()))
    }

    /// Where runs are recorded; `url` is what the variable `storage.url_env` says.
    pub fn storage(&self, url: impl Fn(&str) -> Option<SecretString>) -> Location {
        match url(&self.storage.url_env) {
            Some(url) => Location::Postgres(url),
            None => Location::File(self.state_folder().join("toolhold.db")),
        }
    }

    /// For how long runs and sessions are kept that are over. Absent: for ever.
    pub fn keep_days(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.storage.keep_days)
    }

    /// For how long a database that cannot be used is tried.
    pub fn storage_patience(&self) -> Duration {
        Duration::from_millis(self.storage.patience_ms)
    }

    /// Where the cache's key lies, approvals, and what else is not to be lost.
    pub fn state_folder(&self) -> PathBuf {
        let base = etcetera::choose_base_strategy().ok();
        own_or(
            &self.paths.state,
            base.map(|base| base.state_dir().unwrap_or_else(|| base.data_dir())),
        )
    }
}

impl ApprovalTable {
    fn rules(&self) -> CallApprovals {
        let of = |names: &[String], when| -> Vec<(String, When)> {
            names.iter().map(|name| (name.clone(), when)).collect()
        };
        let mut tools = of(&self.never, When::Never);
        // What is named twice waits.
        tools.extend(of(&self.on_write, When::OnWrite));
        tools.extend(of(&self.always, When::Always));
        CallApprovals {
            default: self.default,
            tools: tools.into_iter().collect(),
            plans: self.plans,
        }
    }
}

/// `own` if it was set, else `toolhold` in the user's folder, else a folder here, which somebody
/// without a home sees.
fn own_or(own: &Path, users: Option<PathBuf>) -> PathBuf {
    if own.as_os_str().is_empty() {
        users.map_or_else(
            || PathBuf::from(".toolhold"),
            |folder| folder.join("toolhold"),
        )
    } else {
        own.to_owned()
    }
}
