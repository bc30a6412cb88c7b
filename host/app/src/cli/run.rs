//! `toolhold run`.

use crate::cli::progress::Loading;
use crate::cli::view::View;
use crate::cli::{Exit, style};
use crate::config::{Config, Flags};
use crate::host;
use crate::storage::FileJournal;
use crate::tools::SandboxTools;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use toolhold_agent::model::{Model, RecordingTransport, Transport};
use toolhold_agent::run::DEFAULT_INSTRUCTIONS;
use toolhold_agent::{Driver, EventKind, Run, RunRequest, StopReason};
use toolhold_sandbox::{LoadError, Registry};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// What is to be done; - reads it from stdin.
    task: String,
    /// The endpoint's URL up to /v1.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model's name at the endpoint [default: the first it lists].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Which of the configured endpoints to use.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// How the model is asked to call tools: schema, tools or simple.
    #[arg(long, value_name = "NAME")]
    contract: Option<String>,
    /// exclusive: a reply holds calls or an answer; both: it may hold both.
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// The most requests to the model.
    #[arg(long, value_name = "N")]
    max_steps: Option<i64>,
    /// The most tokens of one reply.
    #[arg(long, value_name = "N")]
    max_tokens: Option<i64>,
    /// The most tokens of the whole run.
    #[arg(long, value_name = "N")]
    token_budget: Option<i64>,
    /// The most seconds of the whole run.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Only these tools, or all tools of these modules.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// What the model is told about its job, instead of the default.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// A file with the JSON Schema that the answer must satisfy.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// One event a line on stdout, instead of the view for people.
    #[arg(long)]
    json: bool,
    /// Append every exchange with the endpoint to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl RunArgs {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        flags.set("--endpoint", "endpoint", self.endpoint.clone());
        flags.set(
            "--base-url",
            "endpoints.{endpoint}.base_url",
            self.base_url.clone(),
        );
        flags.set("--model", "endpoints.{endpoint}.model", self.model.clone());
        flags.set(
            "--contract",
            "endpoints.{endpoint}.contract",
            self.contract.clone(),
        );
        flags.set("--shape", "run.shape", self.shape.clone());
        flags.set("--max-steps", "run.max_steps", self.max_steps);
        flags.set("--max-tokens", "run.max_tokens", self.max_tokens);
        flags.set("--token-budget", "run.token_budget", self.token_budget);
        flags.set(
            "--timeout",
            "run.timeout_ms",
            self.timeout.map(|s| (s * 1_000.0).ceil() as i64),
        );
    }
}

pub async fn run(config: &Config, args: RunArgs) -> Result<Exit> {
    let mut request = RunRequest::new(task(&args.task)?);
    request.instructions = args
        .instructions
        .clone()
        .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.into());
    request.settings = config.settings();
    if let Some(path) = &args.output_schema {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--output-schema {}", path.display()))?;
        request.output_schema = Some(
            serde_json::from_str(&text)
                .with_context(|| format!("{} is not JSON", path.display()))?,
        );
    }

    let registry = host::registry(config)?;
    let loading = Loading::default();
    // With an allow-list, only the modules it names are loaded at all.
    let only: Option<Vec<String>> = args.tools.as_ref().map(|tools| {
        let module = |tool: &String| tool.split('.').next().unwrap_or_default().to_owned();
        tools.iter().map(module).collect()
    });
    host::load(&registry, config, only.as_deref(), &|event| {
        loading.on_event(event);
    })
    .await?;
    warn_of_failures(&registry);
    let toolbox = SandboxTools::new(registry, args.tools.clone());
    if let [first, ..] = toolbox.unknown().as_slice() {
        bail!("--tools {first}: there is no such tool or module; see `toolhold modules list`");
    }

    let endpoint = config.selected();
    let mut transport: Arc<dyn Transport> = host::transport(endpoint)?;
    if let Some(path) = &args.record {
        let recorder = RecordingTransport::create(transport, path)
            .with_context(|| format!("--record {}", path.display()))?;
        transport = Arc::new(recorder);
    }
    let model: Arc<dyn Model> =
        Arc::new(host::model(endpoint, transport, request.settings.timeout).await?);

    let driver = Driver {
        model,
        toolbox: Arc::new(toolbox),
    };
    let journal = FileJournal::create(&config.state_folder(), request.id)
        .await
        .context("the run's journal cannot be made")?;
    let path = journal.path().to_owned();
    let run = driver.start(request, Box::new(journal))?;
    let exit = watch(run, args.json).await?;
    if !args.json {
        eprintln!("{}", style::dim(&format!("journal: {}", path.display())));
    }
    Ok(exit)
}

/// Shows a run until it is over. Ctrl-C cancels it, and the run still says how it ended; a second
/// Ctrl-C ends the process.
pub async fn watch(mut run: Run, json: bool) -> Result<Exit> {
    let cancel = run.cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            cancel.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    let mut view = View::default();
    let mut exit = Exit::Failed;
    while let Some(event) = run.events.recv().await {
        if json {
            println!("{}", serde_json::to_string(&event)?);
        } else {
            view.show(&event);
        }
        if let EventKind::Done { reason, .. } = event.kind {
            exit = exit_of(reason);
        }
    }
    run.finished().await?;
    Ok(exit)
}

fn exit_of(reason: StopReason) -> Exit {
    match reason {
        StopReason::Output => Exit::Ok,
        StopReason::Model => Exit::Endpoint,
        StopReason::Cancelled => Exit::Interrupted,
        StopReason::MaxSteps
        | StopReason::TokenBudget
        | StopReason::Timeout
        | StopReason::Unusable => Exit::Limit,
    }
}

fn task(text: &str) -> Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut task = String::new();
    std::io::stdin()
        .read_to_string(&mut task)
        .context("the task cannot be read from stdin")?;
    Ok(task)
}

/// One bad module never hides the others, and never goes unnoticed.
pub fn warn_of_failures(registry: &Registry) {
    for failed in registry.failures() {
        let text = style::plain(&format!("{}: {}", failed.origin, failed.error));
        let mark = match failed.error {
            LoadError::Missing { .. } => style::dim("not built:"),
            _ => style::warn("left out:"),
        };
        eprintln!("{mark} {text}");
    }
    for module in registry.modules() {
        let standing = module.standing();
        if !standing.may_run() {
            eprintln!(
                "{} {}: {}; toolhold modules approve {}",
                style::warn("disabled:"),
                module.slot,
                style::plain(&standing.reason()),
                module.slot
            );
        }
    }
}
