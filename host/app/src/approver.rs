//! Who decides about calls that wait: the person at the terminal, or anyone who uses
//! `toolhold approvals`, whoever is first.

use crate::cli::approvals;
use crate::cli::style::{bold, dim, warn};
use crate::storage::Decisions;
use futures_util::future::BoxFuture;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};
use toolhold_agent::run::approval::{Approver, Decision, Pending, Verdict};
use uuid::Uuid;

/// How often somebody's decision is looked for. People wait longer than this for anything.
const EVERY: Duration = Duration::from_millis(300);

/// Asks at the terminal if there is one, and looks for decisions that were left.
#[derive(Debug)]
pub struct AppApprover {
    state: PathBuf,
    /// For one question at a time; absent if nobody is to be asked.
    terminal: Option<Mutex<Terminal>>,
}

/// What is typed, from the first question on.
type Terminal = Option<mpsc::Receiver<String>>;

/// In which a line that was typed before a question comes in.
const SETTLES: Duration = Duration::from_millis(50);

/// Lines that were typed and not read.
const TYPED: usize = 16;

impl AppApprover {
    /// `asks`: whether the terminal is free for questions.
    pub fn new(state: PathBuf, asks: bool) -> Self {
        Self {
            state,
            terminal: (asks && std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
                .then(Mutex::default),
        }
    }

    async fn left(&self, run: Uuid, pending: &Pending) -> Decision {
        let decisions = Decisions::of_run(&self.state, run);
        loop {
            let (decisions, call) = (decisions.clone(), pending.call.id.clone());
            let taken = tokio::task::spawn_blocking(move || decisions.take(&call)).await;
            if let Ok(Some(decision)) = taken {
                return decision;
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn asked(&self, terminal: &Mutex<Terminal>, pending: &Pending) -> Decision {
        let mut terminal = terminal.lock().await;
        let lines = terminal.get_or_insert_with(typed);
        // What was typed before the question is no answer to it.
        tokio::time::sleep(SETTLES).await;
        while lines.try_recv().is_ok() {}
        loop {
            question(pending);
            let Some(answer) = lines.recv().await else {
                // Nobody is at the terminal any more; a decision may still be left.
                return std::future::pending().await;
            };
            if let Some(verdict) = verdict(answer.trim()) {
                return Decision {
                    digest: pending.digest.clone(),
                    verdict,
                    by: Some("terminal".into()),
                };
            }
        }
    }
}

impl Approver for AppApprover {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let Some(terminal) = &self.terminal else {
                return self.left(run, pending).await;
            };
            tokio::select! {
                decision = self.asked(terminal, pending) => decision,
                decision = self.left(run, pending) => decision,
            }
        })
    }
}

/// The lines of standard input, read by a thread of its own from now on: a question that was answered
/// elsewhere must not take the answer to the next, and the process ends while the thread still reads.
fn typed() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(TYPED);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            // More than fits was typed while nobody was asked.
            if let Err(TrySendError::Closed(_)) = sender.try_send(line) {
                return;
            }
        }
    });
    lines
}

#[expect(
    clippy::print_stderr,
    reason = "a question to the person at the terminal"
)]
fn question(pending: &Pending) {
    eprintln!(
        "{} {}\n  {}",
        warn("approve?"),
        bold(&approvals::shown(pending)),
        dim(
            "y: yes   n REASON: no   e JSON: with these arguments   r JSON: not, take this as its result"
        )
    );
}

/// What an answer means, if it means anything.
fn verdict(answer: &str) -> Option<Verdict> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    let json = || serde_json::from_str(rest.trim()).ok();
    match word {
        "y" | "yes" => Some(Verdict::Approve),
        "n" | "no" => Some(Verdict::Refuse {
            reason: if rest.trim().is_empty() {
                "no reason given".into()
            } else {
                rest.trim().to_owned()
            },
        }),
        "e" => Some(Verdict::Edit { arguments: json()? }),
        "r" => Some(Verdict::Replace { result: json()? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_at_the_terminal() {
        assert_eq!(verdict("y"), Some(Verdict::Approve));
        assert_eq!(
            verdict("n too much"),
            Some(Verdict::Refuse {
                reason: "too much".into()
            })
        );
        assert_eq!(
            verdict("e {\"a\": 1}"),
            Some(Verdict::Edit {
                arguments: json!({"a": 1})
            })
        );
        assert_eq!(verdict("r 7"), Some(Verdict::Replace { result: json!(7) }));
        for unclear in ["", "yess", "e {", "maybe"] {
            assert_eq!(verdict(unclear), None, "{unclear}");
        }
    }
}
