//! `toolhold demo`.

use crate::cli::run::watch;
use crate::cli::{Exit, style};
use crate::config::Config;
use crate::{demo, host};
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use toolhold_agent::event::NoJournal;
use toolhold_agent::model::{Model, RecordingTransport, ReplayTransport, Transport};
use toolhold_agent::{Driver, RunRequest};

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// One event a line on stdout.
    #[arg(long)]
    json: bool,
    /// Make a new recording with the configured endpoint instead of replaying.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub async fn demo(config: &Config, args: DemoArgs) -> Result<Exit> {
    let toolbox = demo::toolbox(config).await?;
    let mut request = RunRequest::new(demo::TASK);
    // The run's id is part of what the model is sent, so it is part of the recording.
    request.id = demo::RUN;
    request.settings = demo::settings();
    let total = request.settings.timeout;

    let model: Arc<dyn Model> = match &args.record {
        Some(path) => {
            let endpoint = config.selected();
            let live = host::transport(endpoint)?;
            let model = host::model(endpoint, live.clone(), total).await?;
            let recorder = RecordingTransport::create(live, path).with_context(|| format!("--record {}", path.display()))?;
            Arc::new(model.over(Arc::new(recorder)))
        }
        None => {
            let recording: Arc<dyn Transport> = Arc::new(ReplayTransport::parse(demo::RECORDING)?.with_pace(demo::PACE));
            let model = demo::recorded_model()?;
            eprintln!(
                "{}",
                style::warn(&format!(
                    "This replays what {model} really answered when this was recorded. The tools are not recorded: \
                     they run now, in the sandbox. For a live model: cargo xtask quickstart, or toolhold run --base-url URL."
                ))
            );
            Arc::new(demo::model(model, recording, host::timeouts(config.selected(), total)))
        }
    };
    eprintln!("{} {}\n", style::bold("task:"), demo::TASK);
    let driver = Driver { model, toolbox: Arc::new(toolbox) };
    let run = driver.start(request, Box::new(NoJournal))?;
    watch(run, args.json).await
}
