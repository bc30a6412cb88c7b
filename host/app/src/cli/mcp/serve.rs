//! `toolhold mcp` without a command: the modules, and saved Requests, as MCP tools.

use crate::cli::Exit;
use crate::cli::progress::Loading;
use crate::cli::run::warn_of_failures;
use crate::cli::style::{dim, plain, warn};
use crate::components::Components;
use crate::config::Config;
use crate::host;
use crate::mcp_server::{
    Bound, Found, Mask, Offer, Rules, Runs, Service, request_tool, serve_http, serve_stdio,
};
use crate::models::Models;
use crate::recorded::Recorder;
use crate::renewal;
use crate::requests::Requests;
use crate::shields::shields;
use crate::watch::{Changed, Seen, Watch};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toolhold_sandbox::Registry;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Serve over streamable HTTP at this address, at the path /mcp, and not over stdin and stdout. An
    /// address that other machines reach needs a token.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Serve nothing but these tools: MODULE.TOOL, MODULE for all of its tools, or request-NAME for a saved
    /// Request; with commas between them.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    tools: Option<Vec<String>>,
}

/// Serves until the client is gone, or Ctrl-C.
pub async fn serve(config: &Config, args: ServeArgs) -> Result<Exit> {
    let seen = Seen::now(config);
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, None, &|event| loading.on_event(event)).await?;
    let has_folder = config.modules_folder().exists();
    // After it was loaded: only then are there approvals to watch, too.
    let changes = Watch::start(config).since(seen);
    if has_folder {
        // What changed before it was watched.
        let folder = config.modules_folder();
        registry.load_folder(folder, None, &|_| ()).await?;
    }
    warn_of_failures(&registry);
    let settings = config.mcp_server();
    let requests = requests(config, &settings.requests).await?;
    let named = args.tools.iter().flatten();
    let is_request = |tool: &str| requests.iter().any(|(name, _)| request_tool(name) == tool);
    let is_known = |name: &str| {
        registry.module(name).is_some() || registry.tool(name).is_some() || is_request(name)
    };
    if let Some(unknown) = named.map(String::as_str).find(|name| !is_known(name)) {
        bail!("--tools {unknown}: there is no such tool or module; see `toolhold modules list`");
    }
    let recorder = host::recorder(config, settings.audit).await.context(
        "calls would not be in the audit log; mcp_server.audit = \"off\" serves without one",
    )?;
    recorder.watch_cache(&registry);
    let making = Making {
        registry: registry.clone(),
        tools: args.tools.clone(),
        recorder: recorder.clone(),
        stop: CancellationToken::new(),
    };
    let rules = Box::pin(making.rules(config)).await?;
    let service = Service::new(
        registry,
        &requests,
        rules,
        args.tools,
        settings,
        recorder.clone(),
    );
    let service = Arc::new(service);
    for refused in &service.catalog().refused {
        say(&warn("left out:"), refused);
    }
    let exit = tokio::select! {
        exit = transport(service.clone(), args.http) => exit,
        failed = keep_up(config, &making, changes, &service) => failed.map(|never| match never {}),
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    };
    making.stop.cancel();
    recorder.close().await;
    exit
}

/// What rules are made with.
struct Making {
    registry: Registry,
    tools: Option<Vec<String>>,
    recorder: Recorder,
    /// Told to runs when the server ends.
    stop: CancellationToken,
}

impl Making {
    /// What the configuration says of every call.
    async fn rules(&self, config: &Config) -> Result<Rules> {
        let settings = config.settings();
        let components = Components::new(self.registry.clone(), host::sources(config));
        let mut guards = Models::new(config, settings.timeout, None)?;
        let guards = Box::pin(guards.guards()).await?;
        let tools = self.tools.as_deref();
        let shields = Box::pin(shields(config, &components, tools, &guards)).await?;
        Ok(Rules {
            policy: shields.policy(&settings, 0).hash,
            shields,
            mask: Mask::of(&settings.privacy),
            runs: Runs::new(config, &self.registry, &self.recorder, &self.stop),
            approvals: settings.approval,
            call_timeout: settings.call_timeout,
        })
    }
}

/// The saved Requests that are offered, as they are now.
async fn requests(config: &Config, offer: &Offer) -> Result<Vec<Found>> {
    if *offer == Offer::All(false) {
        return Ok(Vec::new());
    }
    let folder = config.requests_folder().to_path_buf();
    let requests = tokio::task::spawn_blocking(move || Requests::new(folder)).await?;
    let names: Vec<String> = match offer {
        Offer::All(_) => {
            let all = requests.names();
            all.filter(|name| !name.contains('/'))
                .map(str::to_owned)
                .collect()
        }
        Offer::Named(names) => names.clone(),
    };
    let found = names.into_iter().map(|name| {
        let found = requests.find(&name);
        let found = found.unwrap_or_else(|| Err(requests.nothing(&name)));
        (name, found.map(Arc::new))
    });
    Ok(found.collect())
}

async fn transport(service: Arc<Service>, address: Option<String>) -> Result<Exit> {
    let count = service.catalog().names().count();
    let tools = if count == 1 { "tool" } else { "tools" };
    match address {
        Some(address) => {
            let bound = Bound::new(&service, &address).await?;
            let token = if bound.has_token() {
                ", for whoever has the token"
            } else {
                ""
            };
            let at = bound.address()?;
            say(
                &dim("serving"),
                &format!("{count} {tools} at http://{at}/mcp{token}"),
            );
            serve_http(service, bound).await?;
        }
        None => {
            if std::io::stdin().is_terminal() {
                let hint = "over stdin and stdout, which a client speaks MCP on; Ctrl-C ends it";
                say(&dim("serving"), &format!("{count} {tools} {hint}"));
            }
            serve_stdio(service).await;
        }
    }
    Ok(Exit::Ok)
}

/// Loads modules, grants and rules again when their files change, and at SIGHUP, and has clients told if that
/// changed what there is. What is wrong is said, and the last that was right goes on.
async fn keep_up(
    config: &Config,
    making: &Making,
    mut watch: Watch,
    service: &Service,
) -> Result<Infallible> {
    let registry = &making.registry;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut held = config.clone();
    loop {
        let changed = tokio::select! {
            changed = watch.changed() => changed,
            _ = hangup.recv() => Changed::Configuration,
        };
        match changed {
            Changed::Modules => renewal::modules(&held, registry).await,
            Changed::Configuration => {
                let made = async |now: &Config| Box::pin(making.rules(now)).await;
                let renewed = renewal::renewed(&held, registry, made, |rules| service.renew(rules));
                let renewed = Box::pin(renewed).await;
                match renewed {
                    Ok(now) => {
                        service.renew_secrets(now.secrets());
                        held = now;
                        tracing::info!("the configuration was read again");
                    }
                    Err(error) => say(
                        &warn("error:"),
                        &format!("{error:#}; grants and rules stay as they were"),
                    ),
                }
            }
        }
        let requests = requests(&held, &service.settings().requests).await?;
        service.refresh(&requests);
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the person at the terminal; stdout is the protocol's"
)]
fn say(mark: &str, text: &str) {
    eprintln!("{mark} {}", plain(text));
}
