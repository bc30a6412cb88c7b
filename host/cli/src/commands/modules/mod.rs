//! `toolhold modules`: see, call, grant and approve modules without a model.

mod approve;
mod call;
mod grant;
mod inspect;
mod list;
mod watch;

pub use approve::{confirmed, show as show_changes};

use crate::commands::loaded::{self, warn_of_failures};
use crate::commands::pull;
use crate::config::Loaded;
use crate::exit::Exit;
use anyhow::{Result, bail};
use clap::Subcommand;
use std::sync::Arc;
use toolhold_runtime::components::Components;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::{Module, Registry};

#[derive(Debug, Subcommand)]
pub enum ModulesCommand {
    /// The modules, their tools, and what could not be loaded.
    List {
        #[arg(long)]
        json: bool,
    },
    /// One module: its tools with their schemas, its limits, what it asks for, what it was given and
    /// what it may therefore do.
    Inspect {
        /// NAME or NAME@VERSION
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Run one tool: `toolhold modules call calculator.evaluate '{"expression":"2^200 % 97"}'`.
    Call {
        /// MODULE.TOOL
        tool: String,
        /// A JSON object; - reads it from stdin.
        #[arg(default_value = "{}")]
        arguments: String,
        /// The session whose scratch files the call sees.
        #[arg(long, value_name = "NAME", default_value = "")]
        session: String,
        #[arg(
            long,
            short,
            help = "Make calls that wait for a person ([approval]) without asking"
        )]
        yes: bool,
        /// Everything about the call as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a component from a registry into the modules folder.
    Pull(pull::PullArgs),
    /// Give a module something for good: a directory, scratch files, a variable…
    Grant(Box<grant::GrantArgs>),
    /// Take everything from a module that was given with `grant`, and disable it.
    Revoke { name: String },
    /// Allow a module to run as it is now, after showing what changed since it was last approved.
    Approve {
        /// Names, or what a tool names as its module: ./path/to/file.wasm, oci://…; without any, all
        /// that wait.
        names: Vec<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// What changed in a module since it was approved. Exit code 1 if something did.
    Diff {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Load the folder whenever it changes, and say what became of it: for authors.
    Watch,
}

pub async fn modules(loaded: &Loaded, command: ModulesCommand) -> Result<Exit> {
    let config = &loaded.configuration;
    match command {
        ModulesCommand::List { json } => {
            let registry = load(config, None).await?;
            list::list(&registry, json)
        }
        ModulesCommand::Inspect { name, json } => {
            let registry = load(config, Some(&name)).await?;
            inspect::inspect(&*found(config, &registry, &name).await?, json)
        }
        ModulesCommand::Call {
            tool,
            arguments,
            session,
            yes,
            json,
        } => {
            let said = call::CallFlags {
                session: &session,
                is_yes: yes,
                is_json: json,
            };
            call::call(config, &tool, &arguments, said).await
        }
        ModulesCommand::Pull(args) => pull::pull(config, args).await,
        ModulesCommand::Grant(args) => Box::pin(grant::grant(loaded, &args)).await,
        ModulesCommand::Revoke { name } => grant::revoke(loaded, &name).await,
        ModulesCommand::Approve { names, yes } => approve::approve(config, &names, yes).await,
        ModulesCommand::Diff { name, json } => approve::diff(config, &name, json).await,
        ModulesCommand::Watch => watch::watch(loaded).await,
    }
}

async fn load(config: &Configuration, only: Option<&str>) -> Result<Registry> {
    let only = only.map(|name| vec![name.to_owned()]);
    loaded::modules(config, only.as_deref()).await
}

/// A module by name, by path or by reference, as a tool's `_module` names it.
async fn found(config: &Configuration, registry: &Registry, name: &str) -> Result<Arc<Module>> {
    if !name.starts_with("./") && !name.starts_with("oci://") {
        return module(registry, name);
    }
    let components = Components::new(registry.clone(), host::sources(config));
    match components.find(name).await {
        Ok(Some(module)) => Ok(module),
        Ok(None) => module(registry, name),
        Err(reason) => bail!(reason),
    }
}

fn module(registry: &Registry, name: &str) -> Result<Arc<Module>> {
    if let Some(module) = registry.module(name) {
        return Ok(module);
    }
    warn_of_failures(registry);
    bail!("there is no module {name:?} that can be used; see `toolhold modules list`")
}
