//! Builds what a command needs from the configuration.

use crate::components::{Sources, fetch};
use crate::config::{Configuration, EndpointTable, ShieldWhat};
use crate::module_knowledge::ModuleKnowledge;
use crate::recorded::{AuditMode, Recorder};
use crate::requests::Requests;
use crate::tools::SandboxTools;
use anyhow::{Context as _, Result, anyhow};
use futures_util::stream::{self, StreamExt as _};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_admission::detach;
use toolhold_model::{Delivery, HttpTransport, ModelError, OpenAiModel, Timeouts, Transport};
use toolhold_oci::{Credentials, FetchError, Fetcher};
use toolhold_policy::is_name;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::routing::Routing;
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, LoadError, LoadEvent, Module, Pinning, Policy, Registry};
use toolhold_storage::{AuditContent, Durability, Store};
use toolhold_telemetry::Telemetry;

/// An engine with an empty registry: modules are loaded into it.
pub fn registry(config: &Configuration) -> Result<Registry> {
    let policy = config.policy();
    let storage = policy.storage.clone();
    detach(move || storage.sweep());
    let registry = Registry::new(engine(config)?, cache(config), policy);
    Ok(
        registry.with_knowledge(Arc::new(ModuleKnowledge::new(config, |config| {
            Box::pin(store(config))
        }))),
    )
}

/// Makes a [`registry`] for components that come with this binary and need no pin.
pub fn trusting_registry(config: &Configuration) -> Result<Registry> {
    let policy = Policy {
        pinning: Pinning::Off,
        ..config.policy()
    };
    Ok(Registry::new(engine(config)?, cache(config), policy))
}

/// The engine, as configured.
pub fn engine(config: &Configuration) -> Result<Engine> {
    Engine::new(config.engine()).context("the WebAssembly engine could not be started")
}

/// Most references fetched at the same time: each may hold a whole component in memory.
const PARALLEL_FETCHES: usize = 4;

/// Loads the modules that the configuration fetches from registries, then the modules folder, so that a file
/// in the folder cannot take a configured name. Called again, it also removes modules that the configuration
/// no longer fetches.
pub async fn load(
    registry: &Registry,
    config: &Configuration,
    only: Option<&[String]>,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> Result<()> {
    if only.is_none() {
        forget_other_sources(registry, config, on_event).await;
    }
    let has_sources = load_sources(registry, config, only, on_event).await;
    let has_others = has_sources || !config.servers().is_empty();
    let folder = config.modules_folder();
    let may_need_shipped = only.is_some() || !(has_others || config.has_own_modules());
    if may_need_shipped && !folder.exists() {
        config.put_shipped_modules().await;
    }
    if folder.exists() || !(has_others || config.shipped_modules().is_some()) {
        registry
            .load_folder(folder, only, on_event)
            .await
            .map_err(|error| match error {
                LoadError::Read { source } => match config.shipped_fault() {
                    Some(fault) if !folder.exists() => anyhow!(
                        "there is no modules folder {}, and the modules that come with this program cannot be put into \
                         the cache folder: {fault}; --modules names a folder of modules, TOOLHOLD_PATHS__CACHE another \
                         cache folder",
                        folder.display()
                    ),
                    _ => anyhow!(
                        "the modules folder cannot be read: {source}; --modules names another"
                    ),
                },
                other => other.into(),
            })?;
    }
    if may_need_shipped && !has_all(registry, config, only) {
        config.put_shipped_modules().await;
        load_shipped(registry, config, only, on_event).await?;
    }
    Ok(())
}

/// True if each module that `only` names is in the modules folder, whether or not it can be used. Those that come with the
/// program are not looked at then: they are megabytes that are compared with what they should be.
fn has_all(registry: &Registry, config: &Configuration, only: Option<&[String]>) -> bool {
    let folder = config.modules_folder();
    let failures = registry.failures();
    let has = |name: &String| {
        let module = registry.module(name);
        module.is_some_and(|module| Path::new(module.origin.raw()).starts_with(folder))
            || folder.join(name).exists()
            || failures.iter().any(|failed| failed.name.raw() == name)
    };
    only.is_some_and(|names| names.iter().all(has))
}

/// Loads modules that come with the program: those that `only` names, or else all, but none whose name is taken. A module
/// of the modules folder that cannot be loaded is not replaced by another one.
async fn load_shipped(
    registry: &Registry,
    config: &Configuration,
    only: Option<&[String]>,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> Result<()> {
    let Some(shipped) = config.shipped_modules() else {
        return Ok(());
    };
    let mut names = match only {
        Some(names) => names.to_vec(),
        None => {
            let extractors = &config.knowledge().extractors;
            let mut names = shipped_names(shipped);
            // They have no tools, and are loaded for the first document that needs one.
            names.retain(|name| !extractors.contains(name));
            names
        }
    };
    let failures = registry.failures();
    names.retain(|name| {
        // A second look at what this loaded before finds what is there.
        let is_own = |module: &Arc<Module>| Path::new(module.origin.raw()).starts_with(shipped);
        let loaded = registry.module(name);
        let has_failed = failures.iter().any(|failed| failed.name.raw() == name);
        let lies_there = config.modules_folder().join(name).exists();
        !has_failed && !lies_there && loaded.as_ref().is_none_or(is_own)
    });
    if !names.is_empty() {
        let loaded = registry.load_folder(shipped, Some(&names), on_event);
        loaded.await?;
    }
    Ok(())
}

/// The names of the modules that come with the program.
pub fn shipped_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_name(name)).collect()
}

/// As [`load`]; with `only`, the modules whose tools those may call are loaded, too, and those of shields. What was
/// loaded before and has changed is loaded again.
pub async fn load_needed(
    registry: &Registry,
    config: &Configuration,
    only: Option<&[String]>,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> Result<()> {
    let shields = config.shields().iter();
    let shields = shields.filter_map(|shield| match &shield.what {
        ShieldWhat::Wasm { module, .. } => module.split('@').next().map(str::to_owned),
        _ => None,
    });
    let needed = only.map(|only| only.iter().cloned().chain(shields).collect::<Vec<_>>());
    load(registry, config, needed.as_deref(), on_event).await?;
    if only.is_some() {
        load_callees(registry, config, on_event).await?;
    }
    Ok(())
}

/// Loads the modules whose tools loaded modules may call, recursively.
pub async fn load_callees(
    registry: &Registry,
    config: &Configuration,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> Result<()> {
    let mut looked_for = BTreeSet::new();
    loop {
        let mut callees = Vec::new();
        for module in registry.modules() {
            for tool in &module.grant().tools {
                let name = tool.split(['.', '@']).next().unwrap_or_default();
                if looked_for.insert(name.to_owned()) {
                    callees.push(name.to_owned());
                }
            }
        }
        if callees.is_empty() {
            return Ok(());
        }
        load(registry, config, Some(&callees), on_event).await?;
    }
}

/// Removes modules that were fetched for a `source` that is no longer configured.
pub async fn forget_other_sources(
    registry: &Registry,
    config: &Configuration,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) {
    let named: Vec<&str> = config.sources().map(|(name, _)| name).collect();
    registry.retain_fetched(&named, on_event).await;
}

/// Fetches and loads every `[module.NAME]` with a `source`. A failure is recorded in the registry and does
/// not affect other modules. Returns whether there was any such module.
async fn load_sources(
    registry: &Registry,
    config: &Configuration,
    only: Option<&[String]>,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> bool {
    let wanted: Vec<_> = config
        .sources()
        .filter(|(name, _)| only.is_none_or(|names| names.iter().any(|n| n == name)))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    let is_any = !wanted.is_empty();
    let fetcher = fetcher(config);
    let fetcher = &fetcher;
    let mut fetches = stream::iter(wanted)
        .map(async |(name, text): (String, String)| {
            let most = registry.policy().component_bytes(&name);
            let outcome = fetch(fetcher, &text, most).await;
            (name, text, outcome)
        })
        .buffered(PARALLEL_FETCHES);
    while let Some((name, text, outcome)) = fetches.next().await {
        let (origin, bytes) = match outcome {
            Ok(fetched) => (fetched.pinned.to_string(), Ok(fetched.bytes)),
            Err(reason) => (text, Err(LoadError::Fetch { reason })),
        };
        registry.load_fetched(&name, &origin, bytes, on_event).await;
    }
    is_any
}

/// The fetcher, with the configured credentials.
pub fn fetcher(config: &Configuration) -> Result<Fetcher, FetchError> {
    let credentials = Credentials::read(|name| config.variable(name).map(str::to_owned))?;
    Ok(Fetcher::new(config.fetch(credentials)))
}

/// The sources of modules that tools may name, as configured.
pub fn sources(config: &Configuration) -> Sources {
    Sources {
        fetcher: Some(Arc::new(fetcher(config))),
        ..local_sources(config)
    }
}

/// [`sources`] without a fetcher: for callers that may not decide which hosts this machine contacts and what it loads.
pub(crate) fn local_sources(config: &Configuration) -> Sources {
    let chosen = config.sources();
    Sources {
        roots: config.module_roots().to_vec(),
        fetcher: None,
        chosen: chosen
            .map(|(name, reference)| (name.to_owned(), reference.to_owned()))
            .collect(),
    }
}

/// The tools of a registry's modules, and all that tools may name beside them.
pub fn toolbox(config: &Configuration, registry: Registry) -> SandboxTools {
    SandboxTools::new(registry)
        .with_sources(sources(config))
        .with_requests(Requests::new(config.requests_folder()))
        .with_remote_requests(config.remote_requests())
}

/// Opens the store of runs.
pub async fn store(config: &Configuration) -> Result<Store> {
    let store = Store::open(&config.storage(), config.storage_patience()).await?;
    Ok(store.keeping(AuditContent {
        redaction: redaction(config),
        results: config.audit_results(),
    }))
}

/// Starts telemetry. `is_scraped`: this process serves its metrics, too.
pub fn telemetry(config: &Configuration, is_scraped: bool) -> Result<Telemetry> {
    let settings = config.telemetry(is_scraped);
    Ok(Telemetry::start(&settings, redaction(config))?)
}

/// The recorder of calls outside of runs.
pub async fn recorder(config: &Configuration, audit: AuditMode) -> Result<Recorder> {
    let until = match audit {
        AuditMode::Off => None,
        AuditMode::Behind => Some(Durability::Queued),
        AuditMode::Written => Some(Durability::Written),
        AuditMode::Durable => Some(Durability::OnDisk),
    };
    let log = match until {
        Some(until) => Some((store(config).await?, until)),
        None => None,
    };
    Ok(Recorder::new(log, telemetry(config, false)?))
}

/// The redaction of records.
pub fn redaction(config: &Configuration) -> Redaction {
    Redaction::new(config.secrets())
}

/// The compiled cache. Without one the host works, only slower.
pub fn cache(config: &Configuration) -> Option<Cache> {
    let folder = config.cache_folder().join("compiled");
    Cache::open(&folder, &config.state_folder().join("cache.key"))
        .inspect_err(|error| tracing::warn!(%error, "compiled modules will not be cached"))
        .ok()
}

/// The time limits of an endpoint.
pub fn timeouts(endpoint: &EndpointTable, total: Duration) -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(endpoint.connect_timeout_ms),
        first_token: Duration::from_millis(endpoint.first_token_timeout_ms),
        idle: Duration::from_millis(endpoint.idle_timeout_ms),
        total,
    }
}

/// The client of an endpoint, with its key if it has one.
pub fn transport(endpoint: &EndpointTable, key: Option<String>) -> Result<Arc<dyn Transport>> {
    let connect = Duration::from_millis(endpoint.connect_timeout_ms);
    let transport =
        HttpTransport::new(&endpoint.base_url, key, connect).map_err(ModelError::from)?;
    Ok(Arc::new(transport))
}

/// The model of runs: the configured one, or the first that the endpoint lists.
pub async fn model(
    endpoint: &EndpointTable,
    transport: Arc<dyn Transport>,
    total: Duration,
) -> Result<OpenAiModel> {
    let model = named(endpoint, &transport, total, &endpoint.model);
    if !endpoint.model.is_empty() {
        return Ok(model);
    }
    let models = model.list_models().await?;
    Ok(named(endpoint, &transport, total, first(&models)?))
}

/// As [`model`], but retries while the server is still loading its model, as a request does. `name` is the
/// endpoint's name.
pub async fn awaited_model(
    name: &str,
    endpoint: &EndpointTable,
    transport: Arc<dyn Transport>,
    total: Duration,
) -> Result<OpenAiModel> {
    let model = named(endpoint, &transport, total, &endpoint.model);
    if !endpoint.model.is_empty() {
        return Ok(model);
    }
    let models = awaited_list(name, endpoint, &model).await?;
    Ok(named(endpoint, &transport, total, first(&models)?))
}

/// Asks an endpoint for its models. A refusal counts as an answer, too. Waits 5 seconds at most.
///
/// # Errors
/// It does not answer, or a balancer answers in its place.
pub async fn hear(endpoint: &EndpointTable, key: Option<String>) -> Result<()> {
    let model = named(
        endpoint,
        &transport(endpoint, key)?,
        Duration::ZERO,
        &endpoint.model,
    );
    match model.list_models().await {
        Err(error) if !error.is_answer() => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The names of the models that an endpoint lists, in its order. Waits 5 seconds at most.
///
/// # Errors
/// It does not answer, or has no such list.
pub async fn listed_models(endpoint: &EndpointTable, key: Option<String>) -> Result<Vec<String>> {
    let transport = transport(endpoint, key)?;
    let model = named(endpoint, &transport, Duration::ZERO, &endpoint.model);
    Ok(model.list_models().await?)
}

fn named(
    endpoint: &EndpointTable,
    transport: &Arc<dyn Transport>,
    total: Duration,
    model: &str,
) -> OpenAiModel {
    OpenAiModel::new(transport.clone(), model, timeouts(endpoint, total))
        .with_key_variable(&endpoint.api_key_env)
        .with_extra(endpoint.extra.clone())
        .with_field_names(endpoint.fields.clone())
        .with_delivery(if endpoint.stream {
            Delivery::Stream
        } else {
            Delivery::Whole
        })
}

fn first(models: &[String]) -> Result<&str> {
    let first = models.first().map(String::as_str);
    first.context("the endpoint lists no models; name one with --model")
}

async fn awaited_list(
    name: &str,
    endpoint: &EndpointTable,
    model: &OpenAiModel,
) -> Result<Vec<String>, ModelError> {
    let policy = endpoint.retry();
    let (mut attempts, mut waited) = (0_u32, Duration::ZERO);
    loop {
        let error = match model.list_models().await {
            Ok(models) => return Ok(models),
            Err(error) => error,
        };
        attempts = attempts.saturating_add(1);
        let Some(wait) = policy.wait_after(&error, attempts, waited) else {
            // One attempt tells whether it answers.
            return Err(match attempts {
                1 => error,
                _ => ModelError::GaveUp {
                    attempts,
                    waited,
                    source: Box::new(error),
                },
            });
        };
        let again = Routing::Retry {
            endpoint: name.to_owned(),
            attempt: attempts,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            reason: error.to_string(),
        };
        tracing::warn!("asking which models there are: {again}");
        tokio::time::sleep(wait).await;
        waited = waited.saturating_add(wait);
    }
}
