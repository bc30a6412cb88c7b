//! `toolhold plan run`: a saved plan, on its own inputs, without a model.

use super::PlanArgs;
use super::found::{allowed, disabled, module, module_of, name_of, offers};
use crate::commands::run::{PreparedRun, launch};
use crate::commands::{loaded, plan};
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::decider::TerminalDecider;
use crate::terminal::output::{self, NoteMark};
use crate::terminal::progress::Loading;
use crate::terminal::view::OutputOptions;
use anyhow::Result;
use clap::Args;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toolhold_agent::calls::KeptBlobs;
use toolhold_agent::{
    Activities, Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource, module_tool,
};
use toolhold_mcp::Servers;
use toolhold_model::NoModel;
use toolhold_protocol::context::Context;
use toolhold_protocol::plan::{Plan, PlanPlace};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::Tool;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::models::Models;
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::Registry;
use toolhold_storage::{ResultBlobs, Store};

#[derive(Debug, Args)]
pub struct PlanRunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Print one JSON event per line on stdout instead of the view for people.
    #[arg(long)]
    json: bool,
    /// Show what each step and call took.
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

pub async fn run(loaded: &Loaded, args: PlanRunArgs) -> Result<Exit> {
    let agent = loaded.run_agent()?;
    let config = &*agent.configuration;
    let saved = args.plan.saved(config).await?;
    let plan = match Plan::parse(&saved.plan) {
        Ok(plan) => plan,
        Err(error) => return Ok(refused(&[error.to_string()])),
    };
    let calls: Vec<Value> = plan.steps.into_iter().map(|step| step.call).collect();
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "");
    request.context = saved.context;
    request.settings = config.settings();
    request.allowed.clone_from(&agent.tools);
    request.plan = Some(calls);
    let tools = tools(loaded, config, &request).await?;
    if !tools.faults.is_empty() {
        return Ok(refused(&tools.faults));
    }
    let store = host::store(config).await?;
    let PreparedRun {
        driver, servers, ..
    } = with(config, &store, tools, args.json).await?;
    let shown = OutputOptions {
        json: args.json,
        verbose: args.verbose,
        budget: false,
    };
    let telemetry = host::telemetry(config, false)?;
    let exit = launch(&store, &driver, request, shown, &telemetry).await;
    telemetry.close().await;
    servers.close().await;
    exit
}

/// The settings with which a run of a saved plan resumes.
pub async fn driver(
    loaded: &Loaded,
    config: &Configuration,
    store: &Store,
    request: &RunRequest,
    json: bool,
) -> Result<PreparedRun> {
    let tools = tools(loaded, config, request).await?;
    with(config, store, tools, json).await
}

async fn with(
    config: &Configuration,
    store: &Store,
    tools: PlanTools,
    json: bool,
) -> Result<PreparedRun> {
    let mut models = Models::new(config, config.settings().timeout, None)?.patient();
    let guards = Box::pin(models.guards()).await?;
    let components = tools.modules.components();
    let shields = Box::pin(shields(config, components, None, &guards)).await?;
    let servers = Servers::new(
        config.servers(),
        &config.pins(),
        tools.of_servers.as_deref(),
    );
    let registry = components.registry().clone();
    let (tools, notes) = servers.offered(tools).await;
    for note in notes {
        output::left_out(&note);
    }
    let driver = Driver {
        decider: Arc::new(TerminalDecider::new(store.clone(), !json)),
        activities: servers.activities(Activities::default()),
        shields,
        blobs: KeptBlobs::new(Arc::new(ResultBlobs::new(store.clone(), None))),
        ..Driver::new(Arc::new(NoModel), Arc::new(tools))
    };
    Ok(PreparedRun {
        driver,
        servers,
        registry,
    })
}

/// Reports that nothing was run: exit code 1.
fn refused(reasons: &[String]) -> Exit {
    for reason in reasons.iter().take(plan::check::MAX_SHOWN_FAULTS) {
        output::note(NoteMark::Bad("fault:"), reason);
    }
    output::say("the plan cannot be run, and nothing of it was");
    Exit::Failed
}

/// The tools that a plan calls, by the names that it uses (`calc@1.2.add`, too), and modules for those that
/// its context defines.
#[derive(Debug)]
struct PlanTools {
    modules: SandboxTools,
    tools: Vec<Arc<Tool>>,
    /// The called names that belong to MCP servers; all tools of the servers if the context defines tools.
    of_servers: Option<Vec<String>>,
    /// Why tools of the plan cannot be called.
    faults: Vec<String>,
}

async fn tools(loaded: &Loaded, config: &Configuration, request: &RunRequest) -> Result<PlanTools> {
    let plan = request.plan.as_deref().unwrap_or_default();
    let steps: Vec<(usize, &str, &Value)> = plan
        .iter()
        .enumerate()
        .filter_map(|(index, call)| Some((index, call.get("_tool")?.as_str()?, call)))
        .collect();
    let defined = Context::new(request.context.clone())?.tools;
    let is_defined = |name: &str| defined.iter().any(|(known, _)| known == name);
    let modules: BTreeSet<String> = steps
        .iter()
        .filter_map(|(_, tool, _)| Some(name_of(module_of(tool)?).to_owned()))
        .collect();
    let only: Vec<String> = modules.into_iter().collect();
    // A tool that the context defines may belong to any module.
    let only = defined.is_empty().then_some(only.as_slice());
    let registry = loaded::running_modules(loaded, config, only).await?;
    if only.is_none() {
        loaded::warn_of_failures(&registry);
    } else {
        let loading = Loading::default();
        host::load_callees(&registry, config, &|event| loading.on_event(event)).await?;
    }
    let mut found: BTreeMap<&str, Tool> = BTreeMap::new();
    let mut faults = Vec::new();
    let servers = config.servers();
    // If a module and a server have the same name, the module has precedence.
    let server = |tool: &str| {
        let own = module_of(tool).filter(|name| registry.module(name).is_none())?;
        servers.iter().find(|server| server.name == own)
    };
    let mut of_servers = Vec::new();
    for (index, name, call) in steps {
        if is_defined(name) || found.contains_key(name) {
            continue;
        }
        if let Err(reason) = allowed(request.allowed.as_deref(), name) {
            faults.push(format!("{}: {reason}", PlanPlace::step(index)));
            continue;
        }
        if let Some(server) = server(name) {
            match offers(server) {
                Ok(()) => of_servers.push(name.to_owned()),
                Err(reason) => faults.push(format!("{}: {reason}", PlanPlace::step(index))),
            }
            continue;
        }
        match of_module(&registry, name) {
            Ok(tool) => {
                found.insert(name, tool);
            }
            Err(reason) => {
                let made_up = match call.get("_output") {
                    Some(_) => "; a model wrote its _output, and a saved plan runs without one",
                    None => "",
                };
                faults.push(format!("{}: {reason}{made_up}", PlanPlace::step(index)));
            }
        }
    }
    let mut modules = host::toolbox(config, registry).within(config.bounds());
    if let Some(names) = &request.allowed {
        modules = modules.allowing(names);
    }
    Ok(PlanTools {
        modules,
        tools: found.into_values().map(Arc::new).collect(),
        of_servers: defined.is_empty().then_some(of_servers),
        faults,
    })
}

fn of_module(registry: &Registry, name: &str) -> Result<Tool, String> {
    let (module, spec) = module(registry, name)?;
    match disabled(&module) {
        Some(reason) => Err(reason),
        None => Ok(Tool {
            name: name.to_owned(),
            module_digest: Some(module.digest.to_string()),
            ..module_tool(&spec)
        }),
    }
}

impl ToolSource for PlanTools {
    fn tools(&self) -> Vec<Arc<Tool>> {
        self.tools.clone()
    }

    /// Modules may call tools that are not in the plan.
    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let own = self.tools.iter().find(|tool| tool.name == name);
        own.cloned().or_else(|| self.modules.tool(name))
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        self.modules.module(name)
    }

    fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
        self.modules.take_fetch(name)
    }

    fn result_depends_on(&self, call: &ToolCall) -> Option<Value> {
        self.modules.result_depends_on(call)
    }
}

impl ToolRunner for PlanTools {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        self.modules.call(call)
    }
}
