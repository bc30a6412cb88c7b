//! `toolhold approvals`: calls that wait for a person, from any terminal.

use crate::exit::Exit;
use crate::terminal::view::bound_call;
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::Value;
use toolhold_protocol::decision::{Decision, Verdict};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_storage::{DecideOutcome, Store, WaitingDecision};

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List the pending calls of all runs.
    List,
    /// Show a pending call with all of its arguments.
    Show {
        /// Id of the call.
        call: String,
    },
    /// Approve a call as it is.
    Approve {
        /// Id of the call.
        call: String,
    },
    /// Approve a call with other arguments.
    Edit {
        /// Id of the call.
        call: String,
        /// New arguments, as JSON.
        arguments: String,
    },
    /// Replace a call by this result, without making it.
    Replace {
        /// Id of the call.
        call: String,
        /// Result of the call, as JSON.
        result: String,
    },
    /// Refuse a call.
    Refuse {
        /// Id of the call.
        call: String,
        /// Reason of the refusal; the model reads it.
        #[arg(default_value = "no reason given")]
        reason: String,
    },
}

pub async fn approvals(config: &Configuration, command: ApprovalsCommand) -> Result<Exit> {
    let store = host::store(config).await?;
    let json = |text: &str, what: &str| {
        serde_json::from_str::<Value>(text).with_context(|| format!("{what} not JSON"))
    };
    let (call, verdict) = match command {
        ApprovalsCommand::List => {
            list(&store).await?;
            return Ok(Exit::Ok);
        }
        ApprovalsCommand::Show { call } => {
            let waiting = waiting_call(&store, &call).await?;
            if show(&[waiting]) {
                output::remark(HOW_TO_DECIDE);
            }
            return Ok(Exit::Ok);
        }
        ApprovalsCommand::Approve { call } => (call, Verdict::Approve),
        ApprovalsCommand::Edit { call, arguments } => (
            call,
            Verdict::Edit {
                arguments: json(&arguments, "the arguments are")?,
            },
        ),
        ApprovalsCommand::Replace { call, result } => (
            call,
            Verdict::Replace {
                result: json(&result, "the result is")?,
            },
        ),
        ApprovalsCommand::Refuse { call, reason } => (call, Verdict::Refuse { reason }),
    };
    let waiting = waiting_call(&store, &call).await?;
    let decision = Decision {
        digest: waiting.pending.digest.clone(),
        verdict,
        by: Some("toolhold approvals".into()),
    };
    let stored = store.decide(waiting.within, &call, &decision).await;
    let first = match stored.context("the decision cannot be kept")? {
        DecideOutcome::Stored => None,
        DecideOutcome::Already(first) => Some(first),
        DecideOutcome::Gone => {
            let taken = store.decision_taken(waiting.run, &call, &decision.digest);
            let Some(first) = taken.await? else {
                bail!(
                    "nothing was decided: the call {call:?} does not wait any longer as it did; `toolhold approvals \
                     list` shows those that wait"
                );
            };
            Some(first)
        }
    };
    if let Some(first) = first.filter(|first| *first != decision) {
        bail!(
            "nothing was changed: it was decided before about the call {call:?}: {}",
            style::line(&first.in_words())
        );
    }
    let run = waiting.run;
    if store.is_held(run).await? {
        output::tell("decided; the run goes on");
    } else {
        // As it is: a command to copy is not broken.
        println!("decided; its process has ended; toolhold resume {run} goes on with it");
    }
    Ok(Exit::Ok)
}

/// The remark below calls about which nothing is decided.
const HOW_TO_DECIDE: &str = "decide with toolhold approvals approve CALL, or edit, replace, refuse";

/// The only call of this id that waits.
async fn waiting_call(store: &Store, call: &str) -> Result<WaitingDecision> {
    let mut fitting = store.waiting_as(call, None).await?;
    let waiting = fitting.pop().filter(|_| fitting.is_empty());
    waiting.with_context(|| {
        format!("no call {call:?} waits; `toolhold approvals list` shows those that do")
    })
}

/// Waiting calls that are read at once.
const PAGE_CALLS: u32 = 100;

async fn list(store: &Store) -> Result<()> {
    let (mut is_open, mut place) = (false, None);
    loop {
        let waiting = store.waiting(None, place.as_ref(), PAGE_CALLS).await?;
        is_open |= show(&waiting);
        let Some(last) = waiting.last() else {
            break;
        };
        place = Some(last.place.clone());
    }
    let hint = if place.is_none() {
        "no call waits for a person"
    } else if is_open {
        HOW_TO_DECIDE
    } else {
        return Ok(());
    };
    output::remark(hint);
    Ok(())
}

/// Prints a page of waiting calls. Returns whether one of them is not decided.
fn show(waiting: &[WaitingDecision]) -> bool {
    let mut is_open = false;
    for WaitingDecision {
        run,
        pending,
        is_decided,
        ..
    } in waiting
    {
        let call = &pending.call.id;
        let state = if *is_decided {
            "  decided, and not taken up yet"
        } else {
            is_open = true;
            ""
        };
        output::tell(&format!(
            "{}  {}  {}",
            style::bold(&style::line(call)),
            bound_call(pending),
            style::dim(&format!("run {run}{state}"))
        ));
        if let Some(why) = &pending.why {
            output::tell(&format!("  because {}", style::line(why)));
        }
    }
    is_open
}
