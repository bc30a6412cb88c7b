//! `toolhold stats`: statistics of runs, read from their records.

mod json;
mod text;

use crate::exit::Exit;
use crate::terminal::output::{self, NoteMark};
use anyhow::{Result, bail};
use clap::Args;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{RunStats, Since, Totals};
use toolhold_storage::{RecordError, Source, Store};

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Id of the run, the beginning of the id, or last.
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    run: Option<String>,
    /// Sum up all runs that began since then: 90m, 2h or 7d ago, or a date such as 2026-11-20 (UTC).
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Most unreadable records that are named; the others are counted.
const MAX_NAMED: usize = 20;

pub async fn stats(config: &Configuration, args: &StatsArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    if let Some(since) = args.since {
        return since_then(&store, since, args.json).await;
    }
    let source = store.find(args.run.as_deref().unwrap_or("last")).await?;
    let (stats, changed) = of_run(&store, &source).await?;
    let run = stats.run.to_string();
    if args.json {
        output::json_line(&json::run(&run, &stats))?;
    } else {
        output::tell(text::run(&run, &stats).trim_end_matches('\n'));
    }
    match changed {
        None => Ok(Exit::Ok),
        Some(line) => {
            let what = source.to_string();
            let error = RecordError::Changed { what, line };
            output::note(NoteMark::Warn("not genuine:"), &error.to_string());
            Ok(Exit::Failed)
        }
    }
}

/// The statistics of one run, and the first line of its record that is not genuine.
async fn of_run(store: &Store, source: &Source) -> Result<(RunStats, Option<usize>), RecordError> {
    let mut stats = RunStats::default();
    let changed = store.scan(source, |event| stats.take(&event)).await?;
    Ok((stats, changed))
}

/// The statistics of all runs that began since then, and the damaged records.
pub async fn gather(store: &Store, since: Since) -> Result<(Totals, Vec<String>)> {
    let mut totals = Totals::default();
    let mut damaged = Vec::new();
    for run in store.runs_since(since.at_ms()).await? {
        let source = Source::Run(run.id);
        match of_run(store, &source).await {
            Ok((run, None)) => totals.add(&run),
            Ok((_, Some(line))) => {
                let what = source.to_string();
                damaged.push(RecordError::Changed { what, line }.to_string());
            }
            Err(error) => damaged.push(error.to_string()),
        }
    }
    Ok((totals, damaged))
}

async fn since_then(store: &Store, since: Since, is_json: bool) -> Result<Exit> {
    let (totals, damaged) = gather(store, since).await?;
    if is_json {
        output::json_line(&json::totals(&totals, &damaged))?;
    } else {
        if totals.runs == 0 && damaged.is_empty() {
            bail!("no run began since then; `toolhold runs` lists them");
        }
        output::tell(text::totals(&totals).trim_end_matches('\n'));
    }
    for reason in damaged.iter().take(MAX_NAMED) {
        output::left_out(reason);
    }
    if damaged.len() > MAX_NAMED {
        let more = damaged.len() - MAX_NAMED;
        output::left_out(&format!("{more} more"));
    }
    Ok(Exit::of(damaged.is_empty()))
}
