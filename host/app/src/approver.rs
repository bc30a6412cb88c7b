//! Who decides about calls that wait: the person at the terminal, or anyone who uses
//! `toolhold approvals`, whoever is first.

use crate::cli::approvals;
use crate::cli::style::{bold, dim, line, warn};
use crate::storage::Store;
use futures_util::future::BoxFuture;
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};
use toolhold_agent::run::approval::{Approver, Decision, Pending, Verdict};
use uuid::Uuid;

/// How often a decision is looked for that somebody left in another process: at first, and for a call that
/// waits long. Many may wait, and people wait longer than this for anything.
const SOON: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_secs(2);

/// Asks at the terminal if there is one, and looks for decisions that were left.
#[derive(Debug)]
pub struct AppApprover {
    store: Store,
    /// For one question at a time; absent if nobody is to be asked.
    terminal: Option<Mutex<Terminal>>,
}

/// What is typed, from the first question on.
type Terminal = Option<mpsc::Receiver<String>>;

/// In which a line that was typed before a question comes in.
const SETTLES: Duration = Duration::from_millis(50);

/// Lines that were typed and not read.
const TYPED: usize = 16;

/// Characters of an answer that is none.
const SHOWN: usize = 40;

const ANSWERS: &str =
    "y: yes   n REASON: no   e JSON: with these arguments   r JSON: not, take this as its result";

/// Waits for a decision that somebody leaves in the database.
pub async fn left(store: &Store, run: Uuid, pending: &Pending) -> Decision {
    let mut pause = SOON;
    loop {
        let decided = store.decides();
        // A database that is away for a while comes back; the run's journal says when it does not.
        if let Ok(Some(decision)) = store.decision(run, &pending.call.id).await {
            return decision;
        }
        // One that comes from this process is taken up at once.
        let _ = tokio::time::timeout(pause, decided).await;
        pause = (pause * 5 / 4).min(LATER);
    }
}

impl AppApprover {
    /// `asks`: whether the terminal is free for questions.
    pub fn new(store: Store, asks: bool) -> Self {
        Self {
            store,
            terminal: (asks && std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
                .then(Mutex::default),
        }
    }

    async fn asked(&self, terminal: &Mutex<Terminal>, pending: &Pending) -> Decision {
        let mut terminal = terminal.lock().await;
        let lines = terminal.get_or_insert_with(typed);
        // What was typed before the question is no answer to it.
        tokio::time::sleep(SETTLES).await;
        while lines.try_recv().is_ok() {}
        if lines.is_closed() {
            // That was said when the input ended.
            return std::future::pending().await;
        }
        question(pending);
        loop {
            let Some(answer) = lines.recv().await else {
                gone(&pending.call.id);
                return std::future::pending().await;
            };
            match verdict(answer.trim()) {
                Ok(verdict) => {
                    return Decision {
                        digest: pending.digest.clone(),
                        verdict,
                        by: Some("terminal".into()),
                    };
                }
                Err(Unclear::Nothing) => question(pending),
                Err(Unclear::Because(reason)) => unclear(&reason),
            }
        }
    }
}

impl Approver for AppApprover {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let Some(terminal) = &self.terminal else {
                return left(&self.store, run, pending).await;
            };
            tokio::select! {
                decision = self.asked(terminal, pending) => decision,
                decision = left(&self.store, run, pending) => decision,
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

/// Why a line is no answer.
#[derive(Debug, PartialEq)]
pub enum Unclear {
    /// Somebody wants to see the question again.
    Nothing,
    Because(String),
}

/// What an answer means.
pub fn verdict(answer: &str) -> Result<Verdict, Unclear> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    let rest = rest.trim();
    let json = |what: &str| {
        serde_json::from_str(rest).map_err(|error| {
            Unclear::Because(format!("what follows {word} is not JSON, {what}: {error}"))
        })
    };
    match word.to_ascii_lowercase().as_str() {
        "" => Err(Unclear::Nothing),
        "y" | "yes" => Ok(Verdict::Approve),
        "n" | "no" => Ok(Verdict::Refuse {
            reason: if rest.is_empty() {
                "no reason given".into()
            } else {
                rest.to_owned()
            },
        }),
        "e" => Ok(Verdict::Edit {
            arguments: json("the new arguments")?,
        }),
        "r" => Ok(Verdict::Replace {
            result: json("the result")?,
        }),
        _ => {
            let word: String = word.chars().take(SHOWN).collect();
            Err(Unclear::Because(format!("{word:?} is no answer")))
        }
    }
}

pub fn question(pending: &Pending) {
    say(&format!(
        "{} {}\n  {}",
        warn("approve?"),
        bold(&approvals::shown(pending)),
        dim(ANSWERS)
    ));
}

pub fn unclear(reason: &str) {
    say(&format!(
        "  {} {}\n  {}",
        warn("?"),
        line(reason),
        dim(ANSWERS)
    ));
}

fn gone(call: &str) {
    say(&format!(
        "  {} nothing more can be typed here: decide elsewhere with `toolhold approvals approve {call}` (or edit, \
         replace, refuse), or end the run with Ctrl-C",
        warn("!"),
    ));
}

#[expect(
    clippy::print_stderr,
    reason = "a question to the person at the terminal"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_at_the_terminal() {
        for (typed, meant) in [
            ("y", Verdict::Approve),
            ("Yes", Verdict::Approve),
            (
                "n too much",
                Verdict::Refuse {
                    reason: "too much".into(),
                },
            ),
            (
                "e {\"a\": 1}",
                Verdict::Edit {
                    arguments: json!({"a": 1}),
                },
            ),
            ("r 7", Verdict::Replace { result: json!(7) }),
        ] {
            assert_eq!(verdict(typed), Ok(meant), "{typed}");
        }
        assert_eq!(verdict(""), Err(Unclear::Nothing));
        for (typed, expect) in [
            ("yess", "\"yess\" is no answer"),
            ("maybe \u{1b}[2J", "\"maybe\" is no answer"),
            ("e {", "the new arguments: EOF"),
            ("r", "the result: EOF"),
        ] {
            let Err(Unclear::Because(reason)) = verdict(typed) else {
                panic!("{typed}");
            };
            assert!(reason.contains(expect), "{reason}");
        }
    }
}
