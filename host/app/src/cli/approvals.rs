//! `toolhold approvals`: calls that wait for a person, from any terminal.

use crate::cli::{Exit, style};
use crate::config::Config;
use crate::storage::{Decisions, journal};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::Value;
use std::path::Path;
use toolhold_agent::run::approval::{Decision, Pending, Verdict};
use toolhold_agent::run::sub_run;
use toolhold_agent::{Event, EventKind};
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// The calls that wait, of all runs.
    List,
    /// Let a call be made as it is.
    Approve { call: String },
    /// Let it be made with other arguments.
    Edit {
        call: String,
        /// JSON.
        arguments: String,
    },
    /// Do not make it; this is its result.
    Replace {
        call: String,
        /// JSON.
        result: String,
    },
    /// Do not make it.
    Refuse {
        call: String,
        #[arg(default_value = "no reason given")]
        reason: String,
    },
}

pub fn approvals(config: &Config, command: ApprovalsCommand) -> Result<Exit> {
    let state = config.state_folder();
    let json = |text: &str| {
        serde_json::from_str::<Value>(text).with_context(|| format!("{text:.200} is not JSON"))
    };
    let (call, verdict) = match command {
        ApprovalsCommand::List => {
            list(&state);
            return Ok(Exit::Ok);
        }
        ApprovalsCommand::Approve { call } => (call, Verdict::Approve),
        ApprovalsCommand::Edit { call, arguments } => (
            call,
            Verdict::Edit {
                arguments: json(&arguments)?,
            },
        ),
        ApprovalsCommand::Replace { call, result } => (
            call,
            Verdict::Replace {
                result: json(&result)?,
            },
        ),
        ApprovalsCommand::Refuse { call, reason } => (call, Verdict::Refuse { reason }),
    };
    let mut fitting: Vec<_> = waiting(&state)
        .into_iter()
        .filter(|waiting| waiting.pending.call.id == call)
        .collect();
    let Some(Waiting { run, of, pending }) = fitting.pop().filter(|_| fitting.is_empty()) else {
        bail!("no call {call:?} waits; `toolhold approvals list` shows those that do");
    };
    let decision = Decision {
        digest: pending.digest,
        verdict,
        by: Some("toolhold approvals".into()),
    };
    Decisions::of_run(&state, of)
        .leave(&call, &decision)
        .context("the decision cannot be kept")?;
    let path = journal::find(&state, &run.to_string())?;
    if journal::is_held(&path) {
        println!("decided; the run goes on");
    } else {
        println!("decided; its process has ended; toolhold resume {run} goes on with it");
    }
    Ok(Exit::Ok)
}

fn list(state: &Path) {
    let waiting = waiting(state);
    let mut is_open = false;
    for Waiting { run, of, pending } in &waiting {
        let call = &pending.call.id;
        let state = if Decisions::of_run(state, *of).is_left(call) {
            "  decided, and not taken up yet"
        } else {
            is_open = true;
            ""
        };
        println!(
            "{}  {}  {}",
            style::bold(call),
            shown(pending),
            style::dim(&format!("run {run}{state}"))
        );
    }
    let hint = if waiting.is_empty() {
        "no call waits for a person"
    } else if is_open {
        "decide with toolhold approvals approve CALL, or edit, replace, refuse"
    } else {
        return;
    };
    eprintln!("{}", style::dim(hint));
}

/// Whether a run of these events waits for a person.
pub fn waits(events: &[Event]) -> bool {
    let mut open = Open::default();
    for event in events {
        open.note(vec![event.run], &event.kind);
    }
    !open.calls.is_empty()
}

/// All that a decision is bound to, on one line.
pub fn shown(pending: &Pending) -> String {
    let instance = pending
        .call
        .instance
        .as_ref()
        .map_or(String::new(), |instance| format!(" for {instance}"));
    style::line(&format!(
        "{}{instance} {}",
        pending.call.tool, pending.arguments
    ))
}

/// A call that waits.
struct Waiting {
    /// The run that has a record.
    run: Uuid,
    /// The run whose call it is: that one, or a sub-agent's inside of it.
    of: Uuid,
    pending: Pending,
}

/// Every call that waits, of all runs.
fn waiting(state: &Path) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for path in journal::list(state) {
        // A journal that cannot be read is told by `toolhold runs`.
        let Ok(events) = journal::read(&path) else {
            continue;
        };
        let mut open = Open::default();
        for event in &events {
            open.note(vec![event.run], &event.kind);
        }
        waiting.extend(open.calls.into_iter().filter_map(|(runs, pending)| {
            Some(Waiting {
                run: *runs.first()?,
                of: *runs.last()?,
                pending,
            })
        }));
    }
    waiting
}

/// Calls that wait, each with the runs that it is in, the outermost first.
#[derive(Default)]
struct Open {
    calls: Vec<(Vec<Uuid>, Pending)>,
}

impl Open {
    fn note(&mut self, runs: Vec<Uuid>, event: &EventKind) {
        match event {
            EventKind::Sub { call, what } => {
                let mut inner = runs;
                inner.extend(inner.last().map(|run| sub_run(*run, call)));
                self.note(inner, what);
            }
            EventKind::Approval { pending, .. } => {
                self.calls
                    .retain(|(of, known)| *of != runs || known.call.id != pending.call.id);
                self.calls.push((runs, pending.clone()));
            }
            EventKind::Decided { id, .. } => {
                self.calls
                    .retain(|(of, pending)| *of != runs || pending.call.id != *id);
            }
            // Whatever the sub-agent of this call waited for.
            EventKind::ToolResult { id, .. } => {
                let mut inner = runs;
                inner.extend(inner.last().map(|run| sub_run(*run, id)));
                self.end(&inner);
            }
            EventKind::Done { .. } => self.end(&runs),
            // Every sub-agent ended with its process.
            EventKind::Resumed { .. } => self
                .calls
                .retain(|(of, _)| of.len() <= runs.len() || !of.starts_with(&runs)),
            _ => {}
        }
    }

    fn end(&mut self, runs: &[Uuid]) {
        self.calls.retain(|(of, _)| !of.starts_with(runs));
    }
}
