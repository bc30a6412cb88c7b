//! `toolhold mcp` without a command: the modules, and saved Requests, as MCP tools.

use crate::commands::loaded;
use crate::commands::serving;
use crate::commands::serving::{Serving, Signals, Started};
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::output::{NoteMark, left_out, note};
use crate::terminal::style::plural;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::IsTerminal as _;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolhold_admission::own_work;
use toolhold_agent::calls::CallRules;
use toolhold_mcp::serve::{
    Bound, FolderRequest, Mask, OfferedRequests, Rules, Service, request_tool, serve_http,
    serve_stdio,
};
use toolhold_runtime::components::Components;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::models::Models;
use toolhold_runtime::recorded::Recorder;
use toolhold_runtime::registry_modules::RegistryModules;
use toolhold_runtime::request_runs::Runs;
use toolhold_runtime::requests::Requests;
use toolhold_runtime::shields::shields;
use toolhold_sandbox::Registry;
use toolhold_telemetry::ReloadResult;

#[derive(Debug, Args)]
pub struct McpServeArgs {
    /// Serve over streamable HTTP at this address and the path /mcp, instead of over stdin and stdout. An
    /// address that other machines can reach requires a token.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Serve only these tools, separated by commas: MODULE.TOOL, MODULE for all of its tools, or
    /// request-NAME for a saved Request [default: all tools].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    tools: Option<Vec<String>>,
}

/// Serves until the client disconnects or the process gets a signal to stop.
pub async fn serve(loaded: &Loaded, args: McpServeArgs) -> Result<Exit> {
    let config = &loaded.configuration;
    let settings = loaded.mcp_server.clone();
    let requests = requests(config, &settings.requests).await?;
    let named = args.tools.iter().flatten();
    let is_request = |tool: &str| requests.iter().any(|(name, _)| request_tool(name) == tool);
    // The run of a saved Request may use any module.
    let has_requests = named.clone().any(|tool| is_request(tool));
    let tools = args.tools.as_deref().filter(|_| !has_requests);
    let mut needed = loaded.clone();
    needed.only = tools.map(loaded::modules_of);
    let loaded = &needed;
    // Before all that takes long: the first process of a container gets no signal that it does not listen for.
    let Signals { reload, mut stop } = Signals::listen()?;
    let started = tokio::select! {
        started = Box::pin(serving::load_and_watch(loaded)) => started?,
        () = stop.received() => return Ok(Exit::Ok),
    };
    let Started {
        registry,
        watch,
        mut loading,
    } = started;
    let is_known = |name: &str| {
        registry.module(name).is_some() || registry.tool(name).is_some() || is_request(name)
    };
    let unknown = || named.clone().find(|name| !is_known(name));
    if unknown().is_some() {
        // It may be one that takes long.
        tokio::select! {
            ended = loading.ended() => ended?,
            () = stop.received() => return Ok(Exit::Ok),
        }
    }
    if let Some(unknown) = unknown() {
        bail!("--tools {unknown}: there is no such tool or module; see `toolhold modules list`");
    }
    let recorder = host::recorder(config, settings.audit).await.context(
        "calls would not be in the audit log; mcp_server.audit = \"off\" serves without one",
    )?;
    recorder.watch(&registry);
    let making = RulesSource {
        registry: registry.clone(),
        tools: args.tools.clone(),
        recorder: recorder.clone(),
        stop: CancellationToken::new(),
    };
    let rules = Box::pin(making.rules(config)).await?;
    let service = Service::new(
        Arc::new(RegistryModules(registry)),
        &requests,
        rules,
        args.tools,
        settings,
        Arc::new(recorder.clone()),
    );
    let service = Arc::new(service);
    for refused in &service.catalog().refused {
        left_out(refused);
    }
    let modules = Modules {
        making: &making,
        service: &service,
    };
    let exit = tokio::select! {
        exit = transport(service.clone(), args.http) => exit,
        failed = Box::pin(serving::keep_up(loaded, (watch, loading), reload, &making.registry, &modules)) => {
            failed.map(|never| match never {})
        }
        () = stop.received() => Ok(Exit::Ok),
    };
    making.stop.cancel();
    recorder.close().await;
    exit
}

/// The inputs of the rules.
struct RulesSource {
    registry: Registry,
    tools: Option<Vec<String>>,
    recorder: Recorder,
    /// Cancels runs when the server ends.
    stop: CancellationToken,
}

impl RulesSource {
    /// The settings of every call.
    async fn rules(&self, config: &Configuration) -> Result<Rules> {
        let settings = config.settings();
        let components = Components::new(self.registry.clone(), host::sources(config));
        let mut guards = Models::new(config, settings.timeout, None)?;
        let guards = Box::pin(guards.guards()).await?;
        let tools = self.tools.as_deref();
        let shields = Box::pin(shields(config, &components, tools, &guards)).await?;
        let requests = Runs::new(config, &self.registry, &self.recorder, &self.stop);
        Ok(Rules {
            policy: shields.policy(&settings, None, 0).hash.into(),
            mask: Arc::new(Mask::of(&settings.privacy)),
            requests: Arc::new(requests),
            calls: Arc::new(CallRules::direct(&settings, shields)),
        })
    }
}

/// The present saved Requests, as far as they are offered.
async fn requests(config: &Configuration, offer: &OfferedRequests) -> Result<Vec<FolderRequest>> {
    if *offer == OfferedRequests::All(false) {
        return Ok(Vec::new());
    }
    let folder = config.requests_folder().to_path_buf();
    let requests = own_work(move || Requests::new(folder)).await?;
    let names: Vec<String> = match offer {
        OfferedRequests::All(_) => {
            let all = requests.names();
            all.filter(|name| !name.contains('/'))
                .map(str::to_owned)
                .collect()
        }
        OfferedRequests::Named(names) => names.clone(),
    };
    let found = names.into_iter().map(|name| {
        let found = requests.find(&name);
        let found = found.unwrap_or_else(|| Err(requests.nothing(&name)));
        (name, found.map(Arc::new))
    });
    Ok(found.collect())
}

async fn transport(service: Arc<Service>, address: Option<String>) -> Result<Exit> {
    let tools = plural(service.catalog().names().count() as u64, "tool");
    match address {
        Some(address) => {
            let bound = Bound::new(&service, &address).await?;
            let token = if bound.has_token() {
                ", for clients that have the token"
            } else {
                ""
            };
            let at = bound.address()?;
            note(
                NoteMark::Dim("serving"),
                &format!("{tools} at http://{at}/mcp{token}"),
            );
            serve_http(service, bound).await?;
        }
        None => {
            if std::io::stdin().is_terminal() {
                let hint = "over stdin and stdout, which a client speaks MCP on; Ctrl-C ends it";
                note(NoteMark::Dim("serving"), &format!("{tools} {hint}"));
            }
            serve_stdio(service).await;
        }
    }
    Ok(Exit::Ok)
}

/// The service for clients.
struct Modules<'a> {
    making: &'a RulesSource,
    service: &'a Service,
}

impl Serving for Modules<'_> {
    type State = Rules;

    const WHAT: &'static str = "rules and grants";
    const TABLE: &'static str = "mcp_server";

    async fn build(&self, config: &Configuration) -> Result<Rules> {
        self.making.rules(config).await
    }

    fn replace(&self, rules: Rules) {
        self.service.renew(rules);
    }

    fn read_again(&self, result: ReloadResult) {
        self.making.recorder.telemetry().reloaded(result);
    }

    fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        self.making.recorder.renew_secrets(secrets);
    }

    /// Clients are notified if the list changed.
    async fn reloaded(&self, config: &Configuration) -> Result<()> {
        let requests = requests(config, &self.service.settings().requests).await?;
        self.service.refresh(&requests);
        Ok(())
    }
}
