//! `toolhold demo`.

use crate::commands::run::watch;
use crate::exit::Exit;
use crate::terminal::view::{EventPrinter, OutputOptions};
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
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

    let recording = Recording::default();
    let model: Arc<dyn Model> = match &args.record {
        Some(path) => {
            let endpoint = config
                .selected()
                .context("a recording is made with one endpoint; name it with --endpoint")?;
            if path.exists() && !path.is_file() {
                bail!("--record {}: this is no regular file", path.display());
            }
            let live = host::transport(endpoint, config.api_key(endpoint))?;
            // Resolved before the recorder starts: the list of models is no part of the run.
            let name = host::model(endpoint, live.clone(), total)
                .await?
                .name()
                .to_owned();
            let recorder = Arc::new(RecordingTransport::new(live, recording.clone()));
            Arc::new(OpenAiModel::new(recorder, name, timeouts))
        }
        None => {
            let replayed: Arc<dyn Transport> =
                Arc::new(ReplayTransport::parse(demo::RECORDING)?.with_pace(demo::PACE));
            let model = demo::recorded_model()?;
            let text = format!(
                "This replays what {model} really answered when this was recorded. The tools are not recorded: \
                 they run now, in the sandbox. For a live model: cargo xtask quickstart, or toolhold run --base-url URL."
            );
            output::say(&style::warn(&text));
            Arc::new(OpenAiModel::new(replayed, model, timeouts))
        }
    };
    output::say(&format!("{} {}\n", style::bold("task:"), demo::TASK));
    let driver = Driver::new(model, Arc::new(toolbox));
    let run = driver.start(request, Box::new(NoJournal)).await?;
    // What it shows is how a run goes on.
    let shown = OutputOptions {
        json: args.json,
        verbose: true,
        budget: false,
    };
    let observer = Telemetry::off().observe(ObservedRun::default());
    let exit = watch(run, None, observer, EventPrinter::of_run(shown))
        .await?
        .exit();
    if let Some(path) = &args.record {
        if exit != Exit::Ok {
            bail!(
                "--record {}: the run gave no answer, so nothing is recorded and the file is as it was",
                path.display()
            );
        }
        toolhold_files::replace(path, &recording.bytes())
            .with_context(|| format!("--record {}", path.display()))?;
    }
    Ok(exit)
}

/// A recording in memory. It takes the place of the file when the run has an answer: until then a file that is there
/// keeps the recording before.
#[derive(Debug, Clone, Default)]
struct Recording(Arc<Mutex<Vec<u8>>>);

impl Recording {
    fn bytes(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_shared_with_its_writer() {
        let recording = Recording::default();
        recording.clone().write_all(b"line\n").unwrap();
        assert_eq!(recording.bytes(), b"line\n");
    }
}
