//! The weights: runs `local_model/fetch.py` and shows what it reports.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde::Deserialize;

use super::{Model, home};
use crate::narrate::{self, Narration};
use crate::project;

/// One line of `fetch.py`, which documents them.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Stage { text: String },
    Progress { done: u64, total: u64 },
    Note { text: String },
    Done { path: PathBuf },
    Failed { text: String },
}

/// The file of a model's weights, which may not be there yet.
pub fn weights_file(model: &Model) -> Result<PathBuf> {
    Ok(folder()?.join(format!("{}.gguf", model.name)))
}

fn folder() -> Result<PathBuf> {
    home::subfolder("models")
}

pub fn fetch(python: &Path, model: &Model, narration: Narration) -> Result<PathBuf> {
    let there = weights_file(model)?;
    // fetch.py gives this name only to files with the right SHA-256. The size is compared instead of hashing
    // half a gigabyte at every start; a truncated file is noticed.
    if there.metadata().is_ok_and(|file| file.len() == model.bytes) {
        return Ok(there);
    }
    narrate::line(&format!("the local model is {}", model.about));
    let helper = project::xtask_folder().join("local_model");
    run(
        Command::new(python)
            .arg(helper.join("fetch.py"))
            .arg(helper.join("models.json"))
            .arg(&model.name)
            .arg(folder()?),
        narration,
    )
    .context("the model could not be fetched; use an endpoint of your own (--base-url), or try again: what was loaded is kept")
}

fn run(command: &mut Command, narration: Narration) -> Result<PathBuf> {
    let mut helper = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not run {command:?}"))?;
    let output = helper.stdout.take().context("fetch.py has no output")?;
    let ending = follow(BufReader::new(output), narration);
    let status = helper.wait().context("could not wait for fetch.py")?;
    match ending? {
        Some(Event::Done { path }) if status.success() => Ok(path),
        Some(Event::Failed { text }) => bail!(text),
        _ => bail!("fetch.py ended without a result ({status})"),
    }
}

/// Shows the events up to the last one, which is the result.
fn follow(lines: impl BufRead, narration: Narration) -> Result<Option<Event>> {
    let mut bar: Option<ProgressBar> = None;
    let mut ending = None;
    for line in lines.lines() {
        let line = line.context("could not read from fetch.py")?;
        let event = serde_json::from_str(&line)
            .with_context(|| format!("fetch.py printed something else than an event: {line}"))?;
        match event {
            Event::Progress { .. } if narration == Narration::Lines => {}
            Event::Progress { done, total } => {
                bar.get_or_insert_with(|| narrate::bytes_bar(total))
                    .set_position(done);
            }
            Event::Stage { text } | Event::Note { text } => {
                clear(bar.take());
                narrate::line(&text);
            }
            last => ending = Some(last),
        }
    }
    clear(bar);
    Ok(ending)
}

fn clear(bar: Option<ProgressBar>) {
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests;
