//! The loop and the sandbox in a program of your own: a modules folder, an activity in Rust, a run
//! whose events are watched.
//!
//! `cargo run -p toolhold --example embed -- http://gpu:8000/v1 MODEL modules "What is 2^200 % 97?"`
#![expect(clippy::print_stdout, reason = "an example that is run by hand")]

use anyhow::{Context as _, Result};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::event::NoJournal;
use toolhold_agent::model::{HttpTransport, OpenAiModel, Timeouts};
use toolhold_agent::protocol::Execution;
use toolhold_agent::{
    Activities, Driver, EventKind, Message, Module, RunRequest, Tool, ToolCall, ToolFailure,
    ToolOutput, ToolResult, ToolUsage, Toolbox,
};
use toolhold_sandbox::{Engine, EngineConfig, Invocation, Output, Policy, Registry};

/// The tools of a modules folder, for the loop.
#[derive(Debug)]
struct Folder(Registry);

impl Toolbox for Folder {
    fn tools(&self) -> Vec<Tool> {
        let tools = self.0.tools().into_iter();
        tools
            .map(|spec| Tool {
                description: spec.description,
                parameters: spec.input_schema,
                output: spec.output_schema,
                execution: Execution::Module(spec.name.clone()),
                ..Tool::new(spec.name)
            })
            .collect()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Module, String>> {
        let tool = self.tools().into_iter().find(|tool| tool.name == name);
        Box::pin(async move {
            tool.map(|tool| Module::Tool(Box::new(tool)))
                .ok_or_else(|| format!("there is no tool {name:?}"))
        })
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let invocation = Invocation {
                timeout: Some(call.timeout),
                ..Invocation::new(&call.id, &call.tool, &call.arguments)
            };
            let report = self.0.call(&invocation).await;
            ToolResult {
                outcome: match report.result {
                    Ok(Output::Value(value) | Output::Message(value)) => {
                        Ok(ToolOutput::from(value))
                    }
                    Err(error) => Err(ToolFailure::correctable(error.kind(), error.to_string())),
                },
                usage: ToolUsage {
                    fuel: report.usage.fuel,
                    memory_bytes: report.usage.memory_bytes,
                    ..ToolUsage::default()
                },
                printed: Vec::new(),
            }
        })
    }
}

/// An activity: explicit code under a name.
async fn remember(arguments: Value) -> Result<Value, ToolFailure> {
    match arguments["note"].as_str() {
        Some(note) if !note.is_empty() => Ok(json!({"remembered": note.len()})),
        _ => Err(ToolFailure::correctable(
            "empty",
            "there is nothing to remember; give a note",
        )),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &'static str| arguments.next().context(what);
    let (url, model) = (
        next("the endpoint's URL up to /v1")?,
        next("the model's name")?,
    );
    let (folder, task) = (next("the modules folder")?, next("the task")?);

    let registry = Registry::new(
        Engine::new(EngineConfig::default())?,
        None,
        Policy::default(),
    );
    registry
        .load_folder(Path::new(&folder), None, &|_| ())
        .await?;
    for failed in registry.failures() {
        println!("left out: {}: {}", failed.origin, failed.error);
    }

    let transport = HttpTransport::new(&url, None, Duration::from_secs(5))?;
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        first_token: Duration::from_mins(2),
        idle: Duration::from_mins(1),
        total: Duration::from_mins(10),
    };
    let driver = Driver {
        activities: Activities::default().with("remember", remember),
        ..Driver::new(
            Arc::new(OpenAiModel::new(Arc::new(transport), &model, timeouts)),
            Arc::new(Folder(registry)),
        )
    };
    let mut request = RunRequest::new(task);
    request.context.extend(Message::parse_all(&json!([
        {"type": "tool", "tool": {"remember": {
            "type": "object",
            "description": "Remembers a note.",
            "properties": {"note": {"type": "string"}},
            "required": ["note"],
        }}},
    ]))?);
    let mut run = driver.start(request, Box::new(NoJournal)).await?;
    while let Some(event) = run.events.recv().await {
        match event.kind {
            EventKind::ToolStart { call, .. } => println!("→ {} {}", call.tool, call.arguments),
            EventKind::Done { reason, output, .. } => println!("{reason:?}: {output}"),
            _ => {}
        }
    }
    run.finished().await?;
    Ok(())
}
