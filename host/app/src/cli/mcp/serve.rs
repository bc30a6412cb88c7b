//! `toolhold mcp` without a command: the modules as MCP tools.

use crate::cli::Exit;
use crate::cli::serving::{self, Serving, stopped};
use crate::cli::style::{dim, plain, warn};
use crate::components::Components;
use crate::config::Config;
use crate::host;
use crate::mcp_server::{Bound, Mask, Rules, Service, serve_http, serve_stdio};
use crate::models::Models;
use crate::shields::shields;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::IsTerminal as _;
use std::sync::Arc;
use toolhold_sandbox::Registry;

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

/// Serves until the client is gone, or it is told to stop.
pub async fn serve(config: &Config, args: ServeArgs) -> Result<Exit> {
    let (registry, watch) = serving::loaded(config).await?;
    let named = args.tools.iter().flatten();
    let is_known = |name: &str| registry.module(name).is_some() || registry.tool(name).is_some();
    if let Some(unknown) = named.map(String::as_str).find(|name| !is_known(name)) {
        bail!("--tools {unknown}: there is no such tool or module; see `toolhold modules list`");
    }
    let tools = args.tools.as_deref();
    let rules = Box::pin(rules(config, &registry, tools)).await?;
    let settings = config.mcp_server();
    let recorder = host::recorder(config, settings.audit).await.context(
        "calls would not be in the audit log; mcp_server.audit = \"off\" serves without one",
    )?;
    recorder.watch_cache(&registry);
    let record = recorder.clone();
    let service = Service::new(
        registry.clone(),
        rules,
        args.tools.clone(),
        settings,
        record,
    );
    let service = Arc::new(service);
    for refused in &service.catalog().refused {
        say(&warn("left out:"), refused);
    }
    let modules = Modules {
        registry: &registry,
        tools,
        service: &service,
    };
    let exit = tokio::select! {
        exit = transport(service.clone(), args.http) => exit,
        failed = serving::keep_up(config, watch, &registry, &modules) => failed.map(|never| match never {}),
        stopped = stopped() => stopped.map(|()| Exit::Ok),
    };
    recorder.close().await;
    exit
}

/// What the configuration says of every call.
async fn rules(config: &Config, registry: &Registry, tools: Option<&[String]>) -> Result<Rules> {
    let settings = config.settings();
    let components = Components::new(registry.clone(), host::sources(config));
    let mut guards = Models::new(config, settings.timeout, None)?;
    let guards = Box::pin(guards.guards()).await?;
    let shields = Box::pin(shields(config, &components, tools, &guards)).await?;
    Ok(Rules {
        policy: shields.policy(&settings, 0).hash,
        shields,
        mask: Mask::of(&settings.privacy),
        approvals: settings.approval,
        call_timeout: settings.call_timeout,
    })
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

/// What clients are served.
struct Modules<'a> {
    registry: &'a Registry,
    tools: Option<&'a [String]>,
    service: &'a Service,
}

impl Serving for Modules<'_> {
    type Made = Rules;

    const WHAT: &'static str = "rules and grants";

    async fn made(&self, config: &Config) -> Result<Rules> {
        rules(config, self.registry, self.tools).await
    }

    fn put(&self, rules: Rules) {
        self.service.renew(rules);
    }

    fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        self.service.renew_secrets(secrets);
    }

    /// Clients are told if that changed what there is.
    fn reloaded(&self) {
        self.service.refresh();
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the person at the terminal; stdout is the protocol's"
)]
fn say(mark: &str, text: &str) {
    eprintln!("{mark} {}", plain(text));
}
