//! `toolhold stats`: what runs took, read from their records.

mod json;
mod text;

use crate::cli::{Exit, style};
use crate::config::Config;
use crate::stats::{RunStats, Since, Totals};
use crate::storage::journal::{self, RecordError};
use anyhow::{Result, bail};
use clap::Args;
use std::path::Path;

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The run's id, the beginning of it, or last.
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    run: Option<String>,
    /// All runs that began since then: 90m, 2h, 7d, or a date such as 2026-11-20 (UTC).
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Journals that cannot be read and are named; more are counted.
const MAX_NAMED: usize = 20;

pub fn stats(config: &Config, args: &StatsArgs) -> Result<Exit> {
    let state = config.state_folder();
    if let Some(since) = args.since {
        return since_then(&state, since, args.json);
    }
    let path = journal::find(&state, args.run.as_deref().unwrap_or("last"))?;
    let (stats, changed) = of_run(&path)?;
    let run = journal::run_of(&path);
    if args.json {
        println!("{}", json::run(run, &stats));
    } else {
        print!("{}", text::run(run, &stats));
    }
    match changed {
        None => Ok(Exit::Ok),
        Some(line) => {
            let error = RecordError::Changed { path, line };
            eprintln!(
                "{} {}",
                style::warn("not genuine:"),
                style::plain(&error.to_string())
            );
            Ok(Exit::Failed)
        }
    }
}

/// What one run took, and the first line of its record that is not genuine.
fn of_run(path: &Path) -> Result<(RunStats, Option<usize>), RecordError> {
    let mut stats = RunStats::default();
    let scanned = journal::scan(path, |event| stats.take(&event))?;
    Ok((stats, scanned.changed))
}

/// What all runs took together that began since then, and the journals that are damaged.
pub fn gather(state: &Path, since: Since) -> (Totals, Vec<String>) {
    let from_ms = since.at_ms();
    let mut totals = Totals::default();
    let mut damaged = Vec::new();
    for path in journal::list(state) {
        if journal::began_ms(&path).is_some_and(|began| began < from_ms) {
            continue;
        }
        match of_run(&path) {
            // Nothing was written yet, or it has another name than we give.
            Ok((run, _)) if run.began_ms < from_ms || run.contract.is_empty() => {}
            Ok((run, None)) => totals.add(&run),
            Ok((_, Some(line))) => damaged.push(RecordError::Changed { path, line }.to_string()),
            Err(error) => damaged.push(error.to_string()),
        }
    }
    (totals, damaged)
}

fn since_then(state: &Path, since: Since, is_json: bool) -> Result<Exit> {
    let (totals, damaged) = gather(state, since);
    if is_json {
        println!("{}", json::totals(&totals, &damaged));
    } else {
        if totals.runs == 0 && damaged.is_empty() {
            bail!("no run began since then; `toolhold runs` lists them");
        }
        print!("{}", text::totals(&totals));
    }
    for reason in damaged.iter().take(MAX_NAMED) {
        eprintln!("{} {}", style::warn("left out:"), style::plain(reason));
    }
    if damaged.len() > MAX_NAMED {
        let more = damaged.len() - MAX_NAMED;
        eprintln!("{} {more} more", style::warn("left out:"));
    }
    Ok(if damaged.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}
