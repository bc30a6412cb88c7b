//! The loop and the sandbox in a program of your own: a modules folder, saved Requests, an activity in
//! Rust, a run whose events are watched.
//!
//! `cargo run -p toolhold-runtime --example embed -- http://gpu:8000/v1 MODEL modules requests "What is 2^200 % 97?"`
#![expect(clippy::print_stdout, reason = "an example that is run by hand")]

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::{Activities, Driver};
use toolhold_model::{HttpTransport, OpenAiModel, Timeouts};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::{Requests, SandboxTools, Sources};
use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};

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

/// The activity and the folder's Requests as tools. Modules are offered without a tool message.
fn tools(requests: &Requests) -> Value {
    let mut tools = json!({"remember": {
        "type": "object",
        "description": "Remembers a note.",
        "properties": {"note": {"type": "string"}},
        "required": ["note"],
    }});
    for name in requests.names().filter(|name| !name.contains(['/', '.'])) {
        tools[name] = json!({"type": "object", "properties": {"_module": {"const": name}}});
    }
    json!([{"type": "tool", "tool": tools}])
}

fn model(url: &str, name: &str) -> Result<OpenAiModel> {
    let connect = Duration::from_secs(5);
    let timeouts = Timeouts {
        connect,
        first_token: Duration::from_mins(2),
        idle: Duration::from_mins(1),
        total: Duration::from_mins(10),
    };
    let transport = HttpTransport::new(url, None, connect)?;
    Ok(OpenAiModel::new(Arc::new(transport), name, timeouts))
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &'static str| arguments.next().context(what);
    let model = model(
        &next("the endpoint's URL up to /v1")?,
        &next("the model's name")?,
    )?;
    let modules = next("the modules folder")?;
    let requests = Requests::new(next("the folder of saved Requests")?);
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), next("the task")?);
    request
        .context
        .extend(Message::parse_all(&tools(&requests))?);

    let engine = Engine::new(EngineConfig::default())?;
    let registry = Registry::new(engine, None, Policy::default());
    registry
        .load_folder(Path::new(&modules), None, &|_| ())
        .await?;
    for failed in registry.failures() {
        println!("left out: {}: {}", failed.origin, failed.error);
    }
    let toolbox = SandboxTools::new(registry)
        .with_requests(requests)
        .with_sources(Sources::default().with_root(modules));

    let driver = Driver {
        activities: Activities::default().with("remember", remember),
        ..Driver::new(Arc::new(model), Arc::new(toolbox))
    };
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
