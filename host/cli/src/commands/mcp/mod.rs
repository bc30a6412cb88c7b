//! `toolhold mcp`: serve the modules as MCP tools; see and approve MCP servers of others.

mod approve;
mod inspect;
mod list;
mod serve;

use crate::config::Loaded;
use crate::config::secrets::Needs;
use crate::exit::Exit;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::sync::Arc;
use toolhold_mcp::{McpServer, Servers};

pub const AFTER_HELP: &str = "\
Without a command the modules are served: over stdin and stdout, for a client that starts this \
program, or over streamable HTTP. Calls run under the limits, grants, shields and decision rules of \
every other call; all other settings are in [mcp_server] of the configuration.

  toolhold mcp                              for a client that starts it
  toolhold mcp --http 127.0.0.1:8808        at http://127.0.0.1:8808/mcp
  toolhold mcp --tools calculator,text.count";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct McpArgs {
    #[command(flatten)]
    serve: serve::McpServeArgs,
    /// Commands for the MCP servers whose tools runs may call.
    #[command(subcommand)]
    command: Option<McpCommand>,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// List the configured servers and whether each may be used, without starting any.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Start one server and list its tools: those that runs may call, and those that the configuration leaves out.
    Inspect {
        /// Name of the server.
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Approve a server as it is now, after showing the command that starts it and what changed.
    Approve {
        /// Name of the server.
        name: String,
        /// Approve without asking for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Revoke a server's pin: it is no longer started, and runs lose its tools.
    Revoke {
        /// Name of the server.
        name: String,
    },
    /// Show what changed in a server since it was approved or first seen. Exit code 1 if anything did.
    Diff {
        /// Name of the server.
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl McpArgs {
    /// Whether the modules are served.
    pub fn serves(&self) -> bool {
        self.command.is_none()
    }

    /// What it does with secrets: a server that is started or asked may get some.
    pub fn needs(&self) -> Needs {
        match self.command {
            Some(McpCommand::List { .. } | McpCommand::Revoke { .. }) => Needs::Database,
            _ => Needs::All,
        }
    }
}

pub async fn mcp(loaded: &Loaded, args: McpArgs) -> Result<Exit> {
    let config = &loaded.configuration;
    let Some(command) = args.command else {
        return serve::serve(loaded, args.serve).await;
    };
    let servers = Servers::new(config.servers(), &config.pins(), None);
    let exit = match command {
        McpCommand::List { json } => list::list(&servers, json).await,
        McpCommand::Inspect { name, json } => inspect::inspect(named(&servers, &name)?, json).await,
        McpCommand::Approve { name, yes } => {
            approve::approve(config, named(&servers, &name)?, yes).await
        }
        McpCommand::Revoke { name } => approve::revoke(config, &servers, &name).await,
        McpCommand::Diff { name, json } => approve::diff(named(&servers, &name)?, json).await,
    };
    servers.close().await;
    exit
}

fn named<'a>(servers: &'a Servers, name: &str) -> Result<&'a Arc<McpServer>> {
    if let Some(server) = servers.named(name) {
        return Ok(server);
    }
    let known: Vec<_> = servers
        .iter()
        .map(|server| server.settings.name.as_str())
        .collect();
    match known.as_slice() {
        [] => bail!("there is no MCP server {name:?}: the configuration has no [mcp.{name}]"),
        known => bail!(
            "there is no MCP server {name:?}; there are {}",
            known.join(", ")
        ),
    }
}
