//! `toolhold eval capture`: tasks from recorded runs.

use crate::exit::Exit;
use crate::terminal::output::NoteMark;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use toolhold_devkit::eval::capture::{self, CapturedTasks};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::Since;
use toolhold_storage::{RunRow, Source};

#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Runs that began since then: 90m, 2h or 7d ago, or a date such as 2026-11-20 (UTC).
    #[arg(long, value_name = "WHEN")]
    since: Since,
    /// Only runs of this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Most tasks, of the newest runs.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    most: u16,
}

/// Prints the tasks of the newest runs as one JSON object, which `toolhold eval FILE.json` takes.
pub async fn capture(config: &Configuration, args: &CaptureArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let redaction = host::redaction(config);
    let mut runs = store.runs_since(args.since.at_ms()).await?;
    runs.retain(|run| is_meant(run, args.agent.as_deref()));
    let all = runs.len();
    let mut tasks = CapturedTasks::default();
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs.iter().rev() {
        if tasks.len() >= usize::from(args.most) {
            break;
        }
        let task = match store.read(&Source::Run(run.id)).await {
            Ok(events) => capture::task(&events, &redaction).map_err(|why| why.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match task {
            Ok(task) => {
                if !tasks.add(task) {
                    let text =
                        "a file of tasks holds no more; a later --since leaves older runs out";
                    output::note(NoteMark::Warn("cut off:"), text);
                    break;
                }
            }
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
    }
    for (why, count) in left_out {
        let runs = style::plural(count as u64, "run");
        output::note(NoteMark::Dim("left out:"), &format!("{runs}: {why}"));
    }
    if tasks.is_empty() {
        bail!("no run of {all} that began since then makes a task; `toolhold runs` lists them");
    }
    let found = style::plural(tasks.len() as u64, "task");
    output::remark(&format!(
        "{found}; expected are the tools that were called, and the form of the answer: add what else must hold"
    ));
    let description = format!("Captured by toolhold eval capture, from {all} runs");
    output::json(&tasks.into_set(description))?;
    Ok(Exit::Ok)
}

/// Whether it ended, and is of this agent.
fn is_meant(run: &RunRow, agent: Option<&str>) -> bool {
    run.ended.is_some() && agent.is_none_or(|agent| run.agent == agent)
}
