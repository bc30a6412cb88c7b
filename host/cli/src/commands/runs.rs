//! `toolhold runs`: past and running runs in the database.

use crate::commands::{record, run};
use crate::exit::Exit;
use crate::terminal::view::{EventPrinter, OutputOptions};
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use std::time::{Duration, Instant};
use toolhold_protocol::event::EventKind;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{Since, now_ms};
use toolhold_server::runs::{RunRefusal, cancel_orphan};
use toolhold_storage::{PrunedBy, PrunedCounts, RecordError, RunRow, Store};
use uuid::Uuid;

/// What is listed, and how.
#[derive(Debug, Args)]
pub struct RunListArgs {
    /// Show only the newest N.
    #[arg(long, value_name = "N")]
    last: Option<u32>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl RunListArgs {
    pub fn is_given(&self) -> bool {
        self.last.is_some() || self.json
    }
}

#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Follow a run of another process, from its beginning.
    Watch {
        /// Id of the run, the beginning of the id, or last.
        run: String,
        /// Print one JSON event per line.
        #[arg(long)]
        json: bool,
        /// Show what the model writes as it writes it, and what each step and call took.
        #[arg(short, long, conflicts_with = "json")]
        verbose: bool,
    },
    /// Stop a run, in whichever process it is.
    Cancel {
        /// Id of the run, the beginning of the id, or last.
        run: String,
    },
    /// Replay a run's record, without endpoint and tools, and compare the events.
    Replay {
        /// Id of the run, the beginning of the id, or last.
        run: String,
    },
    /// Show the first difference between two runs.
    Diff {
        /// Id of the first run, the beginning of the id, or last.
        left: String,
        /// The second run, in the same form.
        right: String,
    },
    /// Print a run's record as stored, one sealed event per line; `toolhold show FILE.jsonl` reads it.
    Export {
        /// Id of the run, the beginning of the id, or last.
        run: String,
    },
    /// Delete the records of ended runs, and of sessions whose turns have all ended.
    Prune {
        /// Only those that ended before then: a time ago, such as 30d, or a date.
        #[arg(long, value_name = "WHEN")]
        older_than: Since,
        /// Delete them; without this option, only their number is printed.
        #[arg(long)]
        yes: bool,
    },
}

pub async fn runs(config: &Configuration, command: RunsCommand) -> Result<Exit> {
    match command {
        RunsCommand::Watch { run, json, verbose } => {
            let shown = OutputOptions {
                json,
                verbose,
                budget: false,
            };
            watch(config, &run, shown).await
        }
        RunsCommand::Cancel { run } => cancel(config, &run).await,
        RunsCommand::Replay { run } => record::replayed(config, &run).await,
        RunsCommand::Diff { left, right } => record::diff(config, [&left, &right]).await,
        RunsCommand::Export { run } => {
            let store = host::store(config).await?;
            let run = store.find(&run).await?.run()?;
            let mut next = 0;
            loop {
                let page = store.sealed(run, next).await?;
                let Some((last, _)) = page.last() else {
                    return Ok(Exit::Ok);
                };
                next = last + 1;
                for (_, line) in &page {
                    println!("{line}");
                }
            }
        }
        RunsCommand::Prune { older_than, yes } => {
            let store = host::store(config).await?;
            let before = older_than.at_ms();
            if !yes {
                let over = store.over_before(before).await?;
                output::tell(&format!(
                    "{} were over before then; --yes deletes their record",
                    said(over)
                ));
                return Ok(Exit::Ok);
            }
            let gone = store.prune(before, PrunedBy::Person).await?;
            output::tell(&format!("{} {}", style::good("deleted:"), said(gone)));
            give_back_space(&store).await;
            Ok(Exit::Ok)
        }
    }
}

/// Gives the space of what was deleted back to the file system, and tells how much that is.
pub async fn give_back_space(store: &Store) {
    match store.give_back_space().await {
        Ok(0) => {}
        Ok(bytes) => output::remark(&format!(
            "{} were given back to the file system",
            style::bytes(bytes)
        )),
        Err(error) => output::left_out(&format!("their space, for now: {error}")),
    }
}

fn said(over: PrunedCounts) -> String {
    format!(
        "{} and {}",
        style::plural(over.runs, "run"),
        style::plural(over.sessions, "session")
    )
}

pub async fn list(config: &Configuration, args: &RunListArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let mut runs = store
        .runs_before(None, None, args.last.unwrap_or(u32::MAX))
        .await?;
    runs.reverse();
    for run in &runs {
        if args.json {
            output::json_line(&line(run))?;
        } else {
            output::tell(&format!("{}  {}", run.id, summary(run)));
        }
    }
    if runs.is_empty() {
        output::remark(&RecordError::None.to_string());
    }
    Ok(Exit::Ok)
}

fn line(run: &RunRow) -> serde_json::Value {
    let ended = run.ended.as_ref();
    json!({
        "id": run.id, "owner": run.owner, "agent": run.agent, "task": run.task, "model": run.model,
        "began_ms": run.began_ms, "is_held": run.is_held, "waits": run.waits,
        "session": run.turn.map(|(session, _)| session), "turn": run.turn.map(|(_, turn)| turn),
        "reason": ended.map(|ended| ended.reason), "ended_ms": ended.map(|ended| ended.at_ms),
        "steps": ended.map(|ended| ended.steps), "calls": ended.map(|ended| ended.calls),
        "tokens": ended.map(|ended| ended.tokens),
    })
}

fn summary(run: &RunRow) -> String {
    let waits = if run.waits {
        ", waits for a person"
    } else {
        ""
    };
    let end = match &run.ended {
        Some(ended) => format!(
            "{} after {}, {}",
            crate::terminal::view::name(ended.reason),
            style::plural(ended.steps, "step"),
            style::plural(ended.calls, "call")
        ),
        None if run.is_held => format!("going on{waits}"),
        None => format!(
            "not over{waits}; toolhold resume {} goes on with it",
            run.id
        ),
    };
    let age = style::ago(now_ms().saturating_sub(run.began_ms) / 1_000);
    let end = format!("{age:>11}  {end}");
    let short: String = run.task.chars().take(60).collect();
    format!("{}  {}", style::dim(&end), style::readable_line(&short))
}

/// Poll interval for events of another process.
const EVENT_POLL_INTERVAL: Duration = Duration::from_millis(200);

async fn watch(config: &Configuration, name: &str, shown: OutputOptions) -> Result<Exit> {
    let store = host::store(config).await?;
    let run = store.find(name).await?.run()?;
    let mut view = EventPrinter::of_run(shown);
    let mut next = 0;
    loop {
        let is_held = store.is_held(run).await?;
        let page = store.events(run, next).await?;
        for event in &page {
            next = event.seq + 1;
            view.print(event)?;
            if let EventKind::Done { reason, .. } = event.kind {
                return Ok(run::exit_of(reason));
            }
        }
        if page.is_empty() {
            if !is_held {
                bail!("no process goes on with this run; toolhold resume {run} does");
            }
            tokio::time::sleep(EVENT_POLL_INTERVAL).await;
        }
    }
}

/// Time for another process to notice a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

async fn cancel(config: &Configuration, name: &str) -> Result<Exit> {
    let store = host::store(config).await?;
    let run = store.find(name).await?.run()?;
    if is_over(&store, run).await? {
        bail!("this run is over; `toolhold show {run}` prints it");
    }
    cancel_open(&store, run).await?;
    output::tell(&format!("{} {run}", style::good("cancelled:")));
    Ok(Exit::Ok)
}

/// Cancels a run that has not ended, and waits for its end.
async fn cancel_open(store: &Store, run: Uuid) -> Result<()> {
    // First: whoever takes the run meanwhile sees the request.
    store.request_cancellation(run).await?;
    let started = Instant::now();
    while !is_over(store, run).await? {
        // Each time: the process that was told may have given the run back meanwhile, or have died.
        match cancel_orphan(store, run, None).await {
            Ok(()) => break,
            Err(RunRefusal::Record(RecordError::Held | RecordError::Over { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        if started.elapsed() >= CANCEL_TIMEOUT {
            bail!("its process was told, and has not stopped it yet");
        }
        tokio::time::sleep(EVENT_POLL_INTERVAL).await;
    }
    Ok(())
}

async fn is_over(store: &Store, run: Uuid) -> Result<bool> {
    let row = store.run(run).await?;
    Ok(row.is_none_or(|row| row.ended.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolhold_agent::{Driver, NoModules};
    use toolhold_model::NoModel;
    use toolhold_protocol::event::{Journal as _, NoJournal};
    use toolhold_protocol::settings::RunRequest;
    use toolhold_storage::{Label, Location};

    /// The process parks the run when it sees the request to cancel it. An earlier look at the lease says nothing then.
    #[tokio::test]
    async fn a_run_that_is_given_back_while_it_is_cancelled_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let long = Duration::from_secs(30);
        let store = Store::open(&location, long).await.unwrap();
        let other = Store::open(&location, long).await.unwrap();
        let request = RunRequest::new(Uuid::now_v7(), "t");
        let id = request.id;
        let driver = Driver::new(Arc::new(NoModel), Arc::new(NoModules));
        let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
        let begin = run.events.recv().await.unwrap();
        drop(run);
        let mut journal = other.journal(id, Label::default());
        journal.append(&[begin]).await.unwrap();
        assert!(store.is_held(id).await.unwrap());
        let parked = async {
            while other.requested_cancellations().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            drop(journal);
        };
        let (cancelled, ()) = tokio::join!(cancel_open(&store, id), parked);
        cancelled.unwrap();
        assert!(is_over(&store, id).await.unwrap());
    }
}
