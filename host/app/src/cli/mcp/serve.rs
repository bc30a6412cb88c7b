//! `toolhold mcp` without a command: the modules as MCP tools.

use crate::cli::Exit;
use crate::cli::progress::Loading;
use crate::cli::run::warn_of_failures;
use crate::cli::style::{dim, plain, warn};
use crate::components::Components;
use crate::config::Config;
use crate::host;
use crate::mcp_server::{Bound, Service, serve_http, serve_stdio};
use crate::models::Models;
use crate::shields::shields;
use crate::watch::Watch;
use anyhow::{Result, bail};
use clap::Args;
use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::sync::Arc;
use toolhold_sandbox::{LoadEvent, Registry};

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Serve over streamable HTTP at this address, at the path /mcp, and not over stdin and stdout. An
    /// address that other machines reach needs a token.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Serve nothing but these tools: MODULE.TOOL, or MODULE for all of its tools; with commas between
    /// them.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    tools: Option<Vec<String>>,
}

/// Serves until the client is gone, or Ctrl-C.
pub async fn serve(config: &Config, args: ServeArgs) -> Result<Exit> {
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, None, &|event| loading.on_event(event)).await?;
    let has_folder = config.modules_folder().exists();
    // After it was loaded: only then are there approvals to watch, too.
    let changes = has_folder.then(|| Watch::start(config)).transpose()?;
    if has_folder {
        // What changed before it was watched.
        let folder = config.modules_folder();
        registry.load_folder(folder, None, &|_| ()).await?;
    }
    warn_of_failures(&registry);
    let named = args.tools.iter().flatten();
    let is_known = |name: &str| registry.module(name).is_some() || registry.tool(name).is_some();
    if let Some(unknown) = named.map(String::as_str).find(|name| !is_known(name)) {
        bail!("--tools {unknown}: there is no such tool or module; see `toolhold modules list`");
    }
    let components = Components::new(registry.clone(), host::sources(config));
    let guards = Box::pin(Models::new(config, config.settings().timeout, None)?.guards()).await?;
    let tools = args.tools.as_deref();
    let shields = Box::pin(shields(config, &components, tools, &guards)).await?;
    if !config.privacy().is_off() {
        say(
            &warn("not hidden:"),
            "what [shields] hide from models is not hidden from MCP clients",
        );
    }
    let settings = config.mcp_server();
    let service = Service::new(registry.clone(), shields, args.tools, settings);
    let service = Arc::new(service);
    for refused in &service.catalog().refused {
        say(&warn("left out:"), refused);
    }
    tokio::select! {
        exit = transport(service.clone(), args.http) => exit,
        never = reload(config, changes, &registry, &service) => match never {},
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
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

/// Loads the folder whenever it changes, and has clients told if that changed what there is.
async fn reload(
    config: &Config,
    changes: Option<Watch>,
    registry: &Registry,
    service: &Service,
) -> Infallible {
    let Some(mut changes) = changes else {
        return std::future::pending().await;
    };
    loop {
        changes.changed().await;
        let say_event = |event: LoadEvent| tracing::info!(?event, "the modules folder changed");
        let folder = config.modules_folder();
        if let Err(error) = registry.load_folder(folder, None, &say_event).await {
            // What was loaded goes on.
            tracing::warn!(%error, "the modules folder cannot be loaded again");
            continue;
        }
        service.refresh();
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the person at the terminal; stdout is the protocol's"
)]
fn say(mark: &str, text: &str) {
    eprintln!("{mark} {}", plain(text));
}
