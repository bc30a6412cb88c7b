//! `toolhold modules`: see and call modules without a model.

use crate::cli::progress::Loading;
use crate::cli::run::warn_of_failures;
use crate::cli::style::{bad, bold, bytes, count, dim, headline, plain};
use crate::cli::{Exit, build, pull, view};
use crate::config::Config;
use crate::host;
use crate::tools;
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::Path;
use toolhold_agent::ToolUsage;
use toolhold_agent::guard::Validator;
use toolhold_sandbox::{CallError, CallReport, Invocation, LoadError, Module, Output, Registry};

#[derive(Debug, Subcommand)]
pub enum ModulesCommand {
    /// The modules, their tools, and what could not be loaded.
    List {
        #[arg(long)]
        json: bool,
    },
    /// One module: its tools with their schemas, its limits, what it asks for and what it was given.
    Inspect {
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
        /// Everything about the call as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a component from a registry into the modules folder.
    Pull(pull::PullArgs),
}

pub async fn modules(config: &Config, command: ModulesCommand) -> Result<Exit> {
    match command {
        ModulesCommand::List { json } => {
            let registry = load(config, None).await?;
            list(&registry, json)
        }
        ModulesCommand::Inspect { name, json } => {
            let registry = load(config, Some(&name)).await?;
            inspect(module(&registry, &name)?, json)
        }
        ModulesCommand::Call {
            tool,
            arguments,
            json,
        } => call(config, &tool, &arguments, json).await,
        ModulesCommand::Pull(args) => pull::pull(config, args).await,
    }
}

async fn load(config: &Config, only: Option<&str>) -> Result<Registry> {
    let mut registry = host::registry(config)?;
    let loading = Loading::default();
    let only = only.map(|name| vec![name.to_owned()]);
    host::load(&mut registry, config, only.as_deref(), &|event| {
        loading.on_event(event);
    })
    .await?;
    Ok(registry)
}

fn module<'a>(registry: &'a Registry, name: &str) -> Result<&'a Module> {
    if let Some(module) = registry.module(name) {
        return Ok(module);
    }
    warn_of_failures(registry);
    bail!("there is no module {name:?} that can be used; see `toolhold modules list`")
}

fn list(registry: &Registry, json: bool) -> Result<Exit> {
    if json {
        let failed: Vec<_> = registry
            .failures()
            .iter()
            .map(|f| json!({"name": f.name, "origin": f.origin, "error": f.error.to_string()}))
            .collect();
        let modules: Vec<_> = registry.modules().map(|m| describe(m)).collect();
        println!(
            "{}",
            serde_json::to_string_pretty(&json!({"modules": modules, "failed": failed}))?
        );
        return Ok(Exit::Ok);
    }
    if registry.modules().next().is_none() {
        println!(
            "no modules; drop a component into the folder, or start one with `toolhold new-module NAME --lang rust`"
        );
    }
    for module in registry.modules() {
        println!(
            "{}  {}",
            bold(&module.name),
            dim(&format!(
                "{}, sha256:{:.12}…",
                bytes(module.size),
                module.digest.to_string()
            ))
        );
        for tool in &module.tools {
            println!(
                "  {}  {}",
                tool.name,
                dim(&headline(&tool.description, 100))
            );
        }
    }
    warn_of_failures(registry);
    Ok(Exit::Ok)
}

fn describe(module: &Module) -> Value {
    json!({
        "name": module.name,
        "version": module.manifest.version,
        "origin": module.origin,
        "digest": module.digest,
        "bytes": module.size,
        "kind": module.kind,
        "tools": module.tools,
        "refused": module.refused.iter().map(|(export, reason)| json!({"export": export, "reason": reason})).collect::<Vec<_>>(),
        "imports": module.imports,
        "limits": module.limits,
        "asks_for": module.manifest.grants,
        "granted": module.grant,
    })
}

fn inspect(module: &Module, json: bool) -> Result<Exit> {
    if json {
        println!("{}", serde_json::to_string_pretty(&describe(module))?);
        return Ok(Exit::Ok);
    }
    let manifest = &module.manifest;
    println!(
        "{} {}",
        bold(&module.name),
        manifest.version.as_deref().unwrap_or_default()
    );
    if let Some(description) = &manifest.description {
        println!("{}", plain(description));
    }
    println!(
        "{}  {}  {:?}",
        module.origin,
        bytes(module.size),
        module.digest
    );
    println!("\n{}", bold("tools"));
    for tool in &module.tools {
        println!(
            "  {}\n    {}",
            bold(&tool.name),
            plain(&tool.description).replace('\n', "\n    ")
        );
        println!("    arguments {}", plain(&tool.input_schema.to_string()));
        if let Some(output) = &tool.output_schema {
            println!("    returns   {}", plain(&output.to_string()));
        }
    }
    for (export, reason) in &module.refused {
        println!(
            "  {} {}: {}",
            bad("not a tool:"),
            plain(export),
            plain(reason)
        );
    }
    let limits = &module.limits;
    println!("\n{}", bold("limits of a call"));
    println!(
        "  fuel {}, {} ms, memory {}, stack {}, {} table elements",
        count(limits.fuel),
        limits.timeout_ms,
        bytes(limits.memory_bytes),
        bytes(limits.stack_bytes),
        limits.table_elements
    );
    println!(
        "  arguments {}, output {}, printed {}, {} handles",
        bytes(limits.argument_bytes),
        bytes(limits.output_bytes),
        bytes(limits.capture_bytes),
        limits.handles
    );
    println!("\n{}", bold("what it was given"));
    if module.grant.is_empty() {
        println!("  nothing: no files, no variables, no network");
    }
    for directory in &module.grant.directories {
        println!(
            "  {} as {} ({:?})",
            directory.host.display(),
            directory.guest,
            directory.access
        );
    }
    for (name, value) in &module.grant.environment {
        println!("  {name}={value}");
    }
    println!("\n{}", bold("what it asks for"));
    let asks = &manifest.grants;
    if asks.directories.is_empty() && asks.environment.is_empty() {
        println!("  nothing");
    }
    for ask in &asks.directories {
        println!(
            "  a directory at {} ({:?}): {}",
            plain(&ask.guest),
            ask.access,
            plain(&ask.reason)
        );
        println!(
            "    {}",
            dim(&format!(
                "give it with --dir {}=HOST:{}:rw, or in toolhold.toml under [module.{}]",
                module.name,
                plain(&ask.guest),
                module.name
            ))
        );
    }
    for ask in &asks.environment {
        println!(
            "  the variable {}: {}",
            plain(&ask.name),
            plain(&ask.reason)
        );
    }
    Ok(Exit::Ok)
}

async fn call(config: &Config, tool: &str, arguments: &str, json: bool) -> Result<Exit> {
    let Some((name, _)) = tool.split_once('.') else {
        bail!("{tool:?}: expected MODULE.TOOL; see `toolhold modules list`");
    };
    let arguments: Value =
        serde_json::from_str(&text(arguments)?).context("the arguments are not JSON")?;
    let mut registry = load(config, Some(name)).await?;
    if let Some(folder) = unbuilt(&registry) {
        let built = build::one(config, Path::new(&folder)).await?;
        eprintln!(
            "{}",
            dim(&format!(
                "built {} on its first use",
                built.component.display()
            ))
        );
        registry = load(config, Some(name)).await?;
    }
    let module = module(&registry, name)?;
    let Some(spec) = module.tools.iter().find(|spec| spec.name == tool) else {
        let names: Vec<_> = module.tools.iter().map(|spec| spec.name.as_str()).collect();
        bail!(
            "module {name} has no tool {tool:?}; it has {}",
            names.join(", ")
        );
    };
    let fits = Validator::new(&spec.input_schema).and_then(|validator| validator.check(&arguments));
    let id = uuid::Uuid::now_v7().to_string();
    let report = match fits {
        Ok(()) => {
            registry
                .call(&Invocation {
                    id: &id,
                    tool,
                    arguments: &arguments,
                    context: &[],
                    timeout: None,
                })
                .await
        }
        Err(reason) => CallReport::refused(CallError::Arguments { reason }),
    };
    show(&report, json)
}

/// The folder of the module that was asked for, if it only lacks building and building it cannot run
/// native code: Python and JavaScript are compiled inside a sandbox of their toolchain's; a Rust
/// crate may bring a build script, so that takes an explicit `toolhold build`.
fn unbuilt(registry: &Registry) -> Option<String> {
    registry
        .failures()
        .iter()
        .find_map(|failed| match &failed.error {
            LoadError::Missing {
                language: Some(language),
                ..
            } if language != "rust" => Some(failed.origin.clone()),
            _ => None,
        })
}

fn text(arguments: &str) -> Result<String> {
    if arguments != "-" {
        return Ok(arguments.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("the arguments cannot be read from stdin")?;
    Ok(text)
}

fn show(report: &CallReport, json: bool) -> Result<Exit> {
    let exit = if report.result.is_ok() {
        Exit::Ok
    } else {
        Exit::Tool
    };
    if json {
        let (key, outcome) = match &report.result {
            Ok(output) => ("result", serde_json::to_value(output)?),
            Err(error) => (
                "error",
                json!({"kind": error.kind(), "class": error.class(), "message": error.to_string()}),
            ),
        };
        let whole = json!({key: outcome, "usage": report.usage, "stdout": report.stdout, "stderr": report.stderr, "logs": report.logs});
        println!("{}", serde_json::to_string_pretty(&whole)?);
        return Ok(exit);
    }
    for line in tools::printed(report) {
        eprintln!("{}", dim(&plain(&line)));
    }
    match &report.result {
        Ok(Output::Value(value) | Output::Message(value)) => {
            println!("{}", plain(&view::answer(value)));
        }
        Err(error) => eprintln!(
            "{} {}",
            bad(&format!("{}:", error.kind())),
            plain(&error.to_string())
        ),
    }
    let usage = ToolUsage {
        duration_us: u64::try_from(report.usage.duration.as_micros()).unwrap_or(u64::MAX),
        fuel: report.usage.fuel,
        memory_bytes: report.usage.memory_bytes,
    };
    eprintln!("{}", dim(&view::cost(&usage)));
    Ok(exit)
}
