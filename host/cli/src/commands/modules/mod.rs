//! `toolhold modules`: see, call, grant and approve modules without a model.

mod approve;
mod call;
mod grant;
mod inspect;
mod list;
mod profile;
mod sources;
mod test;
mod watch;

pub use approve::{confirmed, show as show_changes};

use crate::commands::build::{self, until_stopped};
use crate::commands::loaded::{self, warn_of_failures};
use crate::commands::pull;
use crate::config::Loaded;
use crate::config::secrets::Needs;
use crate::exit::Exit;
use crate::terminal::output;
use anyhow::{Result, bail};
use clap::Subcommand;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toolhold_devkit::build::{DEFAULT_BUILD_TIMEOUT, Language};
use toolhold_runtime::components::Components;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::{LoadError, Module, Registry};

#[derive(Debug, Subcommand)]
pub enum ModulesCommand {
    /// List the modules, their tools, and the modules that could not be loaded.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show one module: its tools with their schemas, its limits, the capabilities that it requests, its
    /// grants, and what it may do in effect.
    Inspect {
        /// Module: NAME or NAME@VERSION
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run one tool: `toolhold modules call calculator.evaluate '{"expression":"2^200 % 97"}'`.
    Call {
        /// Tool: MODULE.TOOL
        tool: String,
        /// Arguments as a JSON object; - reads them from stdin.
        #[arg(default_value = "{}")]
        arguments: String,
        /// Session whose scratch files the call sees.
        #[arg(long, value_name = "NAME", default_value = "")]
        session: String,
        #[arg(
            long,
            short,
            help = "Make calls that wait for a person ([decisions]) without asking"
        )]
        yes: bool,
        /// Write a profile of the call to FILE, for profiler.firefox.com, and print which functions took most of its
        /// time.
        #[arg(long, value_name = "FILE")]
        profile: Option<PathBuf>,
        /// Print the whole report of the call as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Test one module: run the worked examples of its tools, check schemas and results, ask twice which tools it has,
    /// and compare what the examples take with its limits.
    #[command(long_about = test::ABOUT)]
    Test {
        /// Module: NAME or NAME@VERSION
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a component from a registry into the modules folder.
    Pull(pull::PullArgs),
    /// Grant a module capabilities permanently: a directory, scratch files, a variable…
    Grant(Box<grant::GrantArgs>),
    /// Revoke all grants that a module got with `grant`, and disable it.
    Revoke {
        /// Name of the module.
        name: String,
    },
    /// Approve modules as they are now, after showing what changed since they were pinned.
    Approve {
        /// Names, or module references of tools: ./path/to/file.wasm, oci://… [default: all pending
        /// modules].
        names: Vec<String>,
        /// Approve without asking for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Show what changed in a module since it was approved. Exit code 1 if anything did.
    Diff {
        /// Name of the module.
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Build and load modules whenever they change, and report the result; meant for authors of modules.
    #[command(long_about = watch::ABOUT)]
    Watch {
        /// Modules to build and load, also at once if their source is newer than their component [default: load what
        /// changes in the modules folder, and build nothing].
        names: Vec<String>,
        /// Maximum duration of each build, in seconds; then it is stopped with all that it started.
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = DEFAULT_BUILD_TIMEOUT.as_secs(),
            value_parser = clap::value_parser!(u64).range(1..)
        )]
        build_timeout: u64,
    },
}

impl ModulesCommand {
    /// What it does with secrets: those that decide about modules or show them call none.
    pub fn needs(&self) -> Needs {
        match self {
            Self::List { .. }
            | Self::Inspect { .. }
            | Self::Grant(_)
            | Self::Revoke { .. }
            | Self::Approve { .. }
            | Self::Diff { .. } => Needs::Database,
            Self::Call { .. } | Self::Test { .. } | Self::Pull(_) | Self::Watch { .. } => {
                Needs::All
            }
        }
    }
}

pub async fn modules(loaded: &Loaded, command: ModulesCommand) -> Result<Exit> {
    let mut loaded = loaded.clone();
    // `inspect` too: authors look at the schemas of what they built, and would wait for half of the cores.
    if let ModulesCommand::Call { .. }
    | ModulesCommand::Inspect { .. }
    | ModulesCommand::Test { .. }
    | ModulesCommand::Watch { .. } = &command
    {
        loaded.configuration.serve_author();
    }
    let loaded = &loaded;
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
            profile,
            json,
        } => {
            let said = call::CallFlags {
                session: &session,
                is_yes: yes,
                profile: profile.as_deref(),
                is_json: json,
            };
            call::call(loaded, &tool, &arguments, said).await
        }
        ModulesCommand::Test { name, json } => {
            until_stopped(Box::pin(test::test(config, &name, json))).await
        }
        ModulesCommand::Pull(args) => pull::pull(config, args).await,
        ModulesCommand::Grant(args) => Box::pin(grant::grant(loaded, &args)).await,
        ModulesCommand::Revoke { name } => Box::pin(grant::revoke(loaded, &name)).await,
        ModulesCommand::Approve { names, yes } => approve::approve(config, &names, yes).await,
        ModulesCommand::Diff { name, json } => approve::diff(config, &name, json).await,
        ModulesCommand::Watch {
            names,
            build_timeout,
        } => {
            let timeout = Duration::from_secs(build_timeout);
            until_stopped(Box::pin(watch::watch(loaded, &names, timeout))).await
        }
    }
}

async fn load(config: &Configuration, only: Option<&str>) -> Result<Registry> {
    let only = only.map(|name| vec![name.to_owned()]);
    loaded::modules(config, only.as_deref()).await
}

/// Builds the module that was to be loaded, if only its component is missing and building it runs none of its code
/// outside of a sandbox; other modules need an explicit `toolhold build`. Says whether it did.
async fn built_on_first_use(config: &Configuration, registry: &Registry) -> Result<bool> {
    let unbuilt = registry
        .failures()
        .into_iter()
        .find_map(|failed| match &failed.error {
            LoadError::Missing {
                language: Some(language),
                ..
            } => {
                let folder = PathBuf::from(failed.origin.raw());
                let language: Language = language.parse().ok()?;
                language.builds_in_sandbox(&folder).then_some(folder)
            }
            _ => None,
        });
    let Some(folder) = unbuilt else {
        return Ok(false);
    };
    let sources = build::SourceReview::Unread;
    let built = build::one(config, None, &folder, DEFAULT_BUILD_TIMEOUT, None, sources).await?;
    let component = built.component.display();
    output::remark(&format!("built {component} on its first use"));
    Ok(true)
}

/// A module by name, by path or by reference, as a tool's `_module` names it.
async fn found(config: &Configuration, registry: &Registry, name: &str) -> Result<Arc<Module>> {
    if !name.starts_with("./") && !name.starts_with("oci://") {
        return module(config, registry, name);
    }
    let components = Components::new(registry.clone(), host::sources(config));
    match components.find(name).await {
        Ok(Some(module)) => Ok(module),
        Ok(None) => module(config, registry, name),
        Err(reason) => bail!(reason),
    }
}

fn module(config: &Configuration, registry: &Registry, name: &str) -> Result<Arc<Module>> {
    if let Some(module) = registry.module(name) {
        return Ok(module);
    }
    warn_of_failures(registry);
    let meant = loaded::similar(config, registry, name).filter(|meant| meant != name);
    let hint = meant.map_or_else(String::new, |meant| format!(" did you mean {meant:?}?"));
    bail!("there is no module {name:?} that can be used;{hint} see `toolhold modules list`")
}
