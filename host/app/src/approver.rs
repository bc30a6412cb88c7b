//! Who decides about calls that wait: the person at the terminal, or anyone who uses
//! `toolhold approvals`, whoever is first.

use crate::cli::style::{bold, dim, plain, warn};
use crate::storage::Decisions;
use futures_util::future::BoxFuture;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::Mutex;
use toolhold_agent::run::approval::{Approver, Decision, Pending, Verdict};
use uuid::Uuid;

/// How often somebody's decision is looked for. People wait longer than this for anything.
const EVERY: Duration = Duration::from_millis(300);

/// Asks at the terminal if there is one, and looks for decisions that were left.
#[derive(Debug)]
pub struct AppApprover {
    state: PathBuf,
    /// One question at a time.
    terminal: Mutex<()>,
    asks: bool,
}

impl AppApprover {
    /// `asks`: whether the terminal is free for questions.
    pub fn new(state: PathBuf, asks: bool) -> Self {
        Self {
            state,
            terminal: Mutex::default(),
            asks: asks && std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
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

    async fn asked(&self, pending: &Pending) -> Decision {
        let _turn = self.terminal.lock().await;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        loop {
            question(pending);
            let Ok(Some(answer)) = lines.next_line().await else {
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
            if !self.asks {
                return self.left(run, pending).await;
            }
            tokio::select! {
                decision = self.asked(pending) => decision,
                decision = self.left(run, pending) => decision,
            }
        })
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a question to the person at the terminal"
)]
fn question(pending: &Pending) {
    eprintln!(
        "{} {} {}\n  {}",
        warn("approve?"),
        bold(&plain(&pending.call.tool)),
        plain(&pending.arguments.to_string()),
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
