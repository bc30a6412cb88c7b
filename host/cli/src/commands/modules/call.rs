//! `toolhold modules call`.

use super::{load, module};
use crate::commands::build;
use crate::exit::Exit;
use crate::terminal::style::{bad, dim, plain};
use crate::terminal::{input, view};
use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use toolhold_agent::guard::Validator;
use toolhold_agent::guard::shield::Shields;
use toolhold_devkit::build::Language;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::recorded::{AuditMode, Begun, Ended};
use toolhold_runtime::tools;
use toolhold_sandbox::{CallError, CallReport, Caller, Invocation, LoadError, Output, Registry};

/// Calls `tool`, building its module first if it only lacks that.
pub async fn call(
    config: &Configuration,
    tool: &str,
    arguments: &str,
    session: &str,
    json: bool,
) -> Result<Exit> {
    let Some((name, _)) = tool.rsplit_once('.') else {
        bail!("{tool:?}: expected MODULE.TOOL; see `toolhold modules list`");
    };
    let arguments: Value = serde_json::from_str(&input::text(arguments, "the arguments")?)
        .context("the arguments are not JSON")?;
    let mut registry = load(config, Some(name)).await?;
    if let Some(folder) = unbuilt(&registry) {
        let built = build::one(config, &folder).await?;
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
    let full = tool
        .rsplit_once('.')
        .map(|(_, tool)| format!("{}.{tool}", module.name));
    let Some(spec) = module
        .tools
        .iter()
        .find(|spec| Some(&spec.name) == full.as_ref())
    else {
        let names: Vec<_> = module.tools.iter().map(|spec| spec.name.as_str()).collect();
        bail!(
            "module {name} has no tool {tool:?}; it has {}",
            names.join(", ")
        );
    };
    let fits = Validator::new(&spec.input_schema).and_then(|validator| validator.check(&arguments));
    let id = uuid::Uuid::now_v7().to_string();
    let recorder = host::recorder(config, AuditMode::Durable)
        .await
        .context("the call would not be in the audit log, and is not made")?;
    // No shield screens it: whoever makes the call is who would have put one there.
    let policy = Shields {
        grants: config.granted(),
        ..Shields::default()
    };
    let policy = policy.policy(&config.settings(), 0).hash;
    let begun = Begun {
        id: &id,
        tool: &spec.name,
        arguments: &arguments,
        policy: &policy,
        owner: "",
        way: Map::from_iter([("via".to_owned(), "cli".into())]),
        trace: &opentelemetry::Context::default(),
    };
    let recording = recorder.begin(begun).await;
    let report = match fits {
        Ok(()) => {
            registry
                .call(&Invocation {
                    caller: Caller {
                        tenant: "",
                        session,
                    },
                    ..Invocation::new(&id, tool, &arguments)
                })
                .await
        }
        Err(reason) => CallReport::refused(CallError::Arguments { reason }),
    };
    let recorded = recording.end(&ended(&report)).await;
    recorder.close().await;
    recorded.context("the call was made, and could not be written into the audit log")?;
    show(&report, json)
}

fn ended(report: &CallReport) -> Ended {
    let outcome = match &report.result {
        Ok(Output::Value(value) | Output::Message(value)) => Ok(value.clone()),
        Err(error) => Err(tools::failure(error)),
    };
    Ended {
        outcome,
        usage: tools::usage(report.usage),
        module: report.module.map(|digest| digest.to_string()),
    }
}

/// The folder of the module that was asked for, if it only lacks building and building it runs nothing of
/// it outside of a sandbox. Everything else takes an explicit `toolhold build`.
fn unbuilt(registry: &Registry) -> Option<PathBuf> {
    registry
        .failures()
        .into_iter()
        .find_map(|failed| match &failed.error {
            LoadError::Missing {
                language: Some(language),
                ..
            } => {
                let folder = PathBuf::from(&failed.origin);
                let language: Language = language.parse().ok()?;
                language.builds_in_sandbox(&folder).then_some(folder)
            }
            _ => None,
        })
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
    eprintln!("{}", dim(&view::cost(&tools::usage(report.usage))));
    Ok(exit)
}
