//! `toolhold approvals`: calls that wait for a person, from any terminal.

use crate::cli::{Exit, style};
use crate::config::Config;
use crate::storage::{Decisions, journal};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::Value;
use std::path::Path;
use toolhold_agent::EventKind;
use toolhold_agent::run::approval::{Decision, Pending, Verdict};
use toolhold_agent::run::sub_run;
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
    let Some((run, pending)) = waiting(&state)
        .into_iter()
        .find(|(_, pending)| pending.call.id == call)
    else {
        bail!("no call {call:?} waits; `toolhold approvals list` shows those that do");
    };
    let decision = Decision {
        digest: pending.digest,
        verdict,
        by: Some("toolhold approvals".into()),
    };
    Decisions::of(&state, &run)
        .leave(&call, &decision)
        .context("the decision cannot be kept")?;
    println!("decided; if the run's process has ended, toolhold resume {run} goes on with it");
    Ok(Exit::Ok)
}

fn list(state: &Path) {
    for (run, pending) in waiting(state) {
        println!(
            "{}  {} {}  {}",
            style::bold(&pending.call.id),
            style::plain(&pending.call.tool),
            style::plain(&pending.arguments.to_string()),
            style::dim(&format!("run {run}"))
        );
    }
}

/// Every call that waits, with its run. A sub-agent's run is one of its own.
fn waiting(state: &Path) -> Vec<(String, Pending)> {
    let mut waiting = Vec::new();
    for path in journal::list(state) {
        // A journal that cannot be read is told by `toolhold runs`.
        let Ok(events) = journal::read(&path) else {
            continue;
        };
        let mut open = Vec::new();
        for event in &events {
            note(event.run, &event.kind, &mut open);
        }
        waiting.extend(
            open.into_iter()
                .map(|(run, pending)| (run.to_string(), pending)),
        );
    }
    waiting
}

fn note(run: Uuid, event: &EventKind, open: &mut Vec<(Uuid, Pending)>) {
    match event {
        EventKind::Sub { call, what } => note(sub_run(run, call), what, open),
        EventKind::Approval { pending, .. } => {
            open.retain(|(_, known)| known.call.id != pending.call.id);
            open.push((run, pending.clone()));
        }
        EventKind::Decided { id, decision, .. } => {
            open.retain(|(_, pending)| pending.call.id != *id || pending.digest != decision.digest);
        }
        EventKind::Done { .. } => open.retain(|(of, _)| *of != run),
        _ => {}
    }
}
