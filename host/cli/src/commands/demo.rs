//! `toolhold demo`.

use crate::commands::run::watch;
use crate::exit::Exit;
use crate::terminal::style;
use crate::terminal::view::{EventPrinter, OutputOptions};
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use toolhold_agent::Driver;
use toolhold_devkit::demo;
use toolhold_model::{
    Model, OpenAiModel, RecordingTransport, ReplayTransport, Timeouts, Transport,
};
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_telemetry::{ObservedRun, Telemetry};

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print one JSON event per line on stdout.
    #[arg(long)]
    json: bool,
    /// Record a new exchange with the configured endpoint into this file, instead of replaying.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub async fn demo(config: &Configuration, args: DemoArgs) -> Result<Exit> {
    let toolbox = demo::toolbox(config).await?;
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), demo::TASK);
    // The model gets the run's id, so the recording contains it.
    request.id = demo::RUN;
    request.settings = demo::settings();
    let total = request.settings.timeout;
    let timeouts = config.selected().map_or_else(
        || Timeouts {
            total,
            ..Timeouts::default()
        },
        |endpoint| host::timeouts(endpoint, total),
    );

    let model: Arc<dyn Model> = match &args.record {
        Some(path) => {
            let endpoint = config
                .selected()
                .context("a recording is made with one endpoint; name it with --endpoint")?;
            let file = std::fs::File::create(path)
                .with_context(|| format!("--record {}", path.display()))?;
            let live = host::transport(endpoint, config.api_key(endpoint))?;
            // Resolved before the recorder starts: the list of models is no part of the run.
            let name = host::model(endpoint, live.clone(), total)
                .await?
                .name()
                .to_owned();
            let recorder = Arc::new(RecordingTransport::new(live, file));
            Arc::new(OpenAiModel::new(recorder, name, timeouts))
        }
        None => {
            let recording: Arc<dyn Transport> =
                Arc::new(ReplayTransport::parse(demo::RECORDING)?.with_pace(demo::PACE));
            let model = demo::recorded_model()?;
            let text = format!(
                "This replays what {model} really answered when this was recorded. The tools are not recorded: \
                 they run now, in the sandbox. For a live model: cargo xtask quickstart, or toolhold run --base-url URL."
            );
            eprintln!("{}", style::warn(&text));
            Arc::new(OpenAiModel::new(recording, model, timeouts))
        }
    };
    eprintln!("{} {}\n", style::bold("task:"), demo::TASK);
    let driver = Driver::new(model, Arc::new(toolbox));
    let run = driver.start(request, Box::new(NoJournal)).await?;
    // What it shows is how a run goes on.
    let shown = OutputOptions {
        json: args.json,
        verbose: true,
        budget: false,
    };
    let observer = Telemetry::off().observe(ObservedRun::default());
    Ok(watch(run, None, observer, EventPrinter::of_run(shown))
        .await?
        .exit())
}
