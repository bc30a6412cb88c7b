//! `toolhold plan dry-run`.

use super::check::{exit_of, said, show};
use super::examine::{PlanReport, examine};
use super::found::{CallRunner, CallableTool, Finder, module_of, name_of};
use super::{PlanArgs, in_order};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, good, line, plain, warn};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;
use toolhold_mcp::{Launch, Servers};
use toolhold_policy::PinnedBy;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::plan::{Graph, PlanPlace};
use toolhold_runtime::config::{AgentConfiguration, Configuration};
use toolhold_runtime::host;
use uuid::Uuid;

/// Most steps of one tool that are named.
const MAX_NAMED_STEPS: usize = 12;

pub async fn dry_run(agent: &AgentConfiguration, args: &PlanArgs, json: bool) -> Result<Exit> {
    let examined = examine(agent, args, true).await?;
    if json {
        output::json(&describe(&examined))?;
        return Ok(exit_of(&examined));
    }
    if let Some(graph) = &examined.graph {
        output::tell(plain(&graph.outline()).trim_end_matches('\n'));
        println!("{}", bold("tools"));
        for (name, found) in &examined.tools {
            output::tell(tool(name, found, graph).trim_end_matches('\n'));
        }
    }
    show(&examined);
    if examined.faults.is_empty() {
        println!("{} nothing was run", good("it could run:"));
    }
    Ok(exit_of(&examined))
}

/// Prints the order of the plan that `run` rehearsed, and the rights of its tools, to stderr.
pub async fn rehearsed(config: &Configuration, run: Uuid, events: &[Event]) -> Result<()> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Ok(());
    };
    let (EventKind::Run { tools, request, .. }, EventKind::Done { output, reason, .. }) =
        (&first.kind, &last.kind)
    else {
        return Ok(());
    };
    if *reason != StopReason::Planned {
        output::say("the model answered without a call, so there is no plan; nothing was run");
        return Ok(());
    }
    let mut messages = request.context.clone();
    // A record has no bytes of images, and no step reads any.
    messages.retain(|message| !matches!(message, Message::Image(_)));
    let graph = in_order(output, &Context::new(messages)?)?;
    output::say(plain(&graph.outline()).trim_end_matches('\n'));
    let called = tools.iter().filter(|bound| {
        let mut steps = graph.steps().iter();
        steps.any(|step| step.tool == bound.tool.name)
    });
    let called: Vec<Bound> = called.cloned().collect();
    let modules = called.iter().filter_map(|bound| match &bound.runner {
        Runner::Module(own) => Some(name_of(module_of(own)?).to_owned()),
        _ => None,
    });
    let only: Vec<String> = modules.collect();
    let registry = host::registry(config)?;
    host::load(&registry, config, Some(&only), &|_| ()).await?;
    let servers = Servers::new(config.servers(), &config.pins(), None);
    let mut finder = Finder::new(&registry, &servers, called.clone(), false);
    output::say(&bold("tools"));
    for bound in &called {
        let name = &bound.tool.name;
        let who = match &bound.runner {
            Runner::Module(_) | Runner::Activity(_) => match finder.find(name).await {
                Ok(found) => {
                    output::say(tool(name, &found, &graph).trim_end_matches('\n'));
                    continue;
                }
                Err(unusable) => unusable.reason,
            },
            Runner::Model => "the model answers it itself".to_owned(),
            Runner::Client => "the client that asks for the run makes it".to_owned(),
            Runner::Request(_) | Runner::CleanRoom | Runner::Advisor => {
                "a sub-agent answers it".to_owned()
            }
        };
        output::say(&format!("  {}  {}", line(name), line(&who)));
    }
    servers.close().await;
    let needs_model = called
        .iter()
        .any(|bound| !matches!(bound.runner, Runner::Module(_) | Runner::Activity(_)));
    if needs_model {
        output::say("nothing was run");
    } else {
        // Another run may be the last one by then.
        let command = format!("toolhold plan run {run}");
        let (before, after) = ("nothing was run; ", " runs it, with its context");
        output::say_command("", before, &command, after);
    }
    Ok(())
}

fn tool(name: &str, found: &CallableTool, graph: &Graph) -> String {
    let effect = effect(found);
    let effect = if found.annotations.read_only {
        effect.to_owned()
    } else {
        warn(effect)
    };
    let steps = steps_of(name, graph);
    let mut places = String::new();
    for (index, step) in steps.iter().take(MAX_NAMED_STEPS).enumerate() {
        let _ = write!(places, "{}{step}", if index == 0 { "" } else { ", " });
    }
    if steps.len() > MAX_NAMED_STEPS {
        let _ = write!(places, " and {} more", steps.len() - MAX_NAMED_STEPS);
    }
    let mut text = format!("  {}  {effect}  {places}\n", line(name));
    for sentence in sentences(found) {
        let _ = writeln!(text, "    {}", line(&sentence));
    }
    text
}

/// Describes a module and its capabilities.
fn sentences(found: &CallableTool) -> Vec<String> {
    match &found.by {
        CallRunner::Module(module) => match module.grant().sentences() {
            may if may.is_empty() => {
                vec!["may compute on what it is given, and nothing else".into()]
            }
            may => may.iter().map(|may| format!("may {may}")).collect(),
        },
        CallRunner::Server { server, tool, pin } => {
            let settings = &server.settings;
            let how = match pin.as_ref().map(|pin| pin.by) {
                Some(PinnedBy::Person) => "as it was approved",
                Some(PinnedBy::FirstSight) => "as it was first seen",
                None => "which needs no pin",
            };
            let line = settings.launch.line();
            let place = match &settings.launch {
                Launch::Command { .. } => {
                    format!("runs outside the sandbox, with your rights: {line}")
                }
                Launch::Url { .. } => format!("runs outside the sandbox, at {line}"),
            };
            let name = &settings.name;
            vec![
                format!("is the tool {tool} of the MCP server {name}, {how}"),
                place,
            ]
        }
    }
}

/// The hints of the tool's author about its effects.
fn effect(found: &CallableTool) -> &'static str {
    let annotations = found.annotations;
    match (annotations.read_only, annotations.destructive) {
        (true, _) => "only reads",
        (false, false) => "may write",
        (false, true) => "may write and destroy",
    }
}

fn steps_of(name: &str, graph: &Graph) -> Vec<PlanPlace> {
    let steps = graph.steps().iter().enumerate();
    steps
        .filter(|(_, step)| step.tool == name)
        .map(|(index, _)| PlanPlace::step(index))
        .collect()
}

fn describe(examined: &PlanReport) -> Value {
    let faults = json!({
        "mode": examined.mode,
        "faults": examined.faults,
        "warnings": said(&examined.warnings),
    });
    let Some(graph) = &examined.graph else {
        return faults;
    };
    let tool = |(name, found): (&String, &CallableTool)| {
        let mut described = json!({
            "name": name,
            "steps": steps_of(name, graph),
            "writes": !found.annotations.read_only,
            "annotations": found.annotations,
        });
        if let (Value::Object(described), Value::Object(by)) = (&mut described, runner(found)) {
            described.extend(by);
        }
        described
    };
    let mut whole = json!({
        "steps": graph.steps().iter().map(|step| &step.call).collect::<Vec<_>>(),
        "order": graph.order().collect::<Vec<_>>(),
        "layers": graph.layers(),
        "depth": graph.depth(),
        "width": graph.width(),
        "tools": examined.tools.iter().map(tool).collect::<Vec<_>>(),
    });
    if let (Value::Object(whole), Value::Object(faults)) = (&mut whole, faults) {
        whole.extend(faults);
    }
    whole
}

/// The runner of a tool's calls, and its rights.
fn runner(found: &CallableTool) -> Value {
    match &found.by {
        CallRunner::Module(module) => json!({
            "module": module.name,
            "digest": module.digest,
            "granted": *module.grant(),
            "may": module.grant().sentences(),
        }),
        CallRunner::Server { server, tool, pin } => json!({
            "server": server.settings.name,
            "tool": tool,
            "launch": server.settings.launch,
            "digest": pin.as_ref().map(|pin| &pin.digest),
            "approved_by": pin.as_ref().map(|pin| pin.by),
        }),
    }
}
