//! `cargo xtask local-model start|stop|status`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::record::Record;
use super::{Choice, Model, home, install, record, server};
use crate::narrate::{self, Narration};

pub fn start(model: &'static Model, port: Option<u16>) -> Result<ExitCode> {
    let running = match record::find(model)?.filter(Record::answers) {
        Some(running) => reuse(running, port)?,
        None => launch(model, port)?,
    };
    narrate::answer(&running.base_url());
    Ok(ExitCode::SUCCESS)
}

fn reuse(running: Record, port: Option<u16>) -> Result<Record> {
    if port.is_some_and(|port| port != running.port) {
        bail!(
            "{} already runs on port {}: use that, or `cargo xtask local-model stop` first",
            running.model,
            running.port
        );
    }
    Ok(running)
}

fn launch(model: &'static Model, port: Option<u16>) -> Result<Record> {
    let installed = install(model, Narration::Drawn)?;
    let _exclusive = home::lock()?;
    // Another `start` may have been quicker while this one waited for the lock.
    if let Some(running) = record::find(model)? {
        if running.answers() {
            return reuse(running, port);
        }
        running.stop(model)?;
    }
    let port = match port {
        Some(port) => server::free_port(Some(port))?,
        None => server::usual_port()?,
    };
    server::start_detached(&installed, port)
}

pub fn stop(only: Option<Choice>) -> Result<ExitCode> {
    let mut stopped = false;
    for model in chosen(only)? {
        if let Some(running) = record::find(model)? {
            running.stop(model)?;
            narrate::line(&format!(
                "stopped {} (process {})",
                running.model, running.pid
            ));
            stopped = true;
        }
    }
    if !stopped {
        narrate::line("no local model runs");
    }
    Ok(ExitCode::SUCCESS)
}

pub fn status(only: Option<Choice>) -> Result<ExitCode> {
    let mut code = ExitCode::FAILURE;
    for model in chosen(only)? {
        let state = match record::find(model)? {
            None => "not running".to_owned(),
            Some(running) if !running.answers() => {
                format!(
                    "process {} does not answer; `cargo xtask local-model stop` ends it",
                    running.pid
                )
            }
            Some(running) => {
                code = ExitCode::SUCCESS;
                format!("{} (process {})", running.base_url(), running.pid)
            }
        };
        narrate::answer(&format!("{}: {state}", model.name));
    }
    Ok(code)
}

fn chosen(only: Option<Choice>) -> Result<Vec<&'static Model>> {
    let choices = only.map_or_else(|| Choice::value_variants().to_vec(), |one| vec![one]);
    choices.into_iter().map(Choice::model).collect()
}
