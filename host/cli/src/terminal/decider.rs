//! Asks the person at the terminal about calls that wait. A decision that is recorded in the
//! database first (`toolhold approvals`, the HTTP API) counts as well.

use crate::terminal::output;
use crate::terminal::standing::StandingDecisions;
use crate::terminal::style::{bold, dim, line, warn};
use crate::terminal::view::bound_call;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};
use toolhold_agent::run::decider::Decider;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_runtime::stored_decider::{first_decision, stored_decision};
use toolhold_storage::Store;
use uuid::Uuid;

/// Asks at the terminal if there is one, and waits for recorded decisions.
#[derive(Debug)]
pub struct TerminalDecider {
    store: Store,
    /// Absent if the terminal is not asked.
    terminal: Option<Terminal>,
}

/// The terminal, for one question at a time.
#[derive(Debug, Default)]
pub struct Terminal {
    /// The typed lines, from the first question on.
    lines: Mutex<Option<mpsc::Receiver<String>>>,
    standing: StandingDecisions,
}

/// The terminal's input has ended: no more decisions come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputEnded {
    /// Whether it ended during this question.
    pub is_news: bool,
}

/// How long to wait before a question for lines that were typed earlier, so that they can be discarded.
const STALE_INPUT_WAIT: Duration = Duration::from_millis(50);

/// Lines that were typed and not read yet.
const INPUT_QUEUE_LINES: usize = 16;

/// Characters shown of an answer that was not understood.
const SHOWN_ANSWER_CHARS: usize = 40;

/// Lines that fit into 80 columns.
const ANSWERS: &str = "y: yes   n REASON: no   e JSON: with these arguments
  r JSON: not, take this as its result
  a: yes, and in this run always with these arguments
  a {\"NAME\": \"TEXT*\"}: always where the arguments fit";

impl TerminalDecider {
    /// `asks`: whether the terminal is free for questions.
    pub fn new(store: Store, asks: bool) -> Self {
        Self {
            store,
            terminal: Terminal::open().filter(|_| asks),
        }
    }

    async fn asked(&self, terminal: &Terminal, run: Uuid, pending: &Pending) -> Decision {
        match terminal.ask(run, pending).await {
            Ok(decision) => decision,
            Err(InputEnded { is_news }) => {
                if is_news {
                    gone(&pending.call.id);
                }
                std::future::pending().await
            }
        }
    }
}

impl Terminal {
    /// Whether a person is at the terminal.
    pub fn open() -> Option<Self> {
        let is_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        is_there.then(Self::default)
    }

    /// Asks until there is a valid answer.
    ///
    /// # Errors
    /// The input has ended.
    pub async fn ask(&self, run: Uuid, pending: &Pending) -> Result<Decision, InputEnded> {
        let mut lines = self.lines.lock().await;
        if let Some(decision) = self.standing.decision(run, pending) {
            return Ok(decision);
        }
        let lines = lines.get_or_insert_with(typed);
        // Lines typed before the question are no answers to it.
        tokio::time::sleep(STALE_INPUT_WAIT).await;
        while lines.try_recv().is_ok() {}
        if lines.is_closed() {
            return Err(InputEnded { is_news: false });
        }
        question(pending);
        loop {
            let Some(answer) = lines.recv().await else {
                return Err(InputEnded { is_news: true });
            };
            match decision(answer.trim(), run, pending, &self.standing) {
                Ok(decision) => return Ok(decision),
                Err(InvalidAnswer::Nothing) => question(pending),
                Err(InvalidAnswer::Because(reason)) => unclear(&reason),
            }
        }
    }
}

impl Decider for TerminalDecider {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let Some(terminal) = &self.terminal else {
                return stored_decision(&self.store, run, pending).await;
            };
            let asked = self.asked(terminal, run, pending);
            let decision = first_decision(&self.store, run, pending, asked).await;
            terminal.standing.follow(run, pending, &decision);
            decision
        })
    }
}

/// Reads the lines of standard input in a thread of its own. A question that was decided elsewhere must not
/// take the answer to the next one, and the process may end while the thread still reads.
fn typed() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(INPUT_QUEUE_LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            // Lines beyond the queue were typed while no question was open.
            if let Err(TrySendError::Closed(_)) = sender.try_send(line) {
                return;
            }
        }
    });
    lines
}

/// Why a line is not a valid answer.
#[derive(Debug, PartialEq)]
pub enum InvalidAnswer {
    /// Show the question again.
    Nothing,
    Because(String),
}

/// Reads from an answer the decision about the call, and adds to the decisions that stand.
pub fn decision(
    answer: &str,
    run: Uuid,
    pending: &Pending,
    standing: &StandingDecisions,
) -> Result<Decision, InvalidAnswer> {
    match meaning(answer)? {
        DeciderAnswer::Once(verdict) => Ok(Decision {
            digest: pending.digest.clone(),
            verdict,
            by: Some("terminal".into()),
        }),
        DeciderAnswer::Always(pattern) => {
            let decided = standing.add(run, pending, pattern);
            decided.map_err(InvalidAnswer::Because)
        }
    }
}

#[derive(Debug, PartialEq)]
enum DeciderAnswer {
    Once(Verdict),
    /// Also for calls with the same arguments, or whose arguments fit this pattern.
    Always(Option<Value>),
}

fn meaning(answer: &str) -> Result<DeciderAnswer, InvalidAnswer> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    let rest = rest.trim();
    let json = |what: &str| -> Result<Value, InvalidAnswer> {
        serde_json::from_str(rest).map_err(|error| {
            InvalidAnswer::Because(format!("what follows {word} is not JSON, {what}: {error}"))
        })
    };
    match word.to_ascii_lowercase().as_str() {
        "" => Err(InvalidAnswer::Nothing),
        "y" | "yes" => Ok(DeciderAnswer::Once(Verdict::Approve)),
        "a" | "always" if rest.is_empty() => Ok(DeciderAnswer::Always(None)),
        "a" | "always" => Ok(DeciderAnswer::Always(Some(json("the pattern")?))),
        "n" | "no" => Ok(DeciderAnswer::Once(Verdict::Refuse {
            reason: if rest.is_empty() {
                "no reason given".into()
            } else {
                rest.to_owned()
            },
        })),
        "e" => Ok(DeciderAnswer::Once(Verdict::Edit {
            arguments: json("the new arguments")?,
        })),
        "r" => Ok(DeciderAnswer::Once(Verdict::Replace {
            result: json("the result")?,
        })),
        _ => {
            let word: String = word.chars().take(SHOWN_ANSWER_CHARS).collect();
            Err(InvalidAnswer::Because(format!("{word:?} is no answer")))
        }
    }
}

pub fn question(pending: &Pending) {
    let (mark, call) = (warn("approve?"), bold(&bound_call(pending)));
    let why = pending.why.as_deref();
    let why = why.map_or(String::new(), |why| format!("\n  because {}", line(why)));
    output::say(&format!("{mark} {call}{why}\n  {}", dim(ANSWERS)));
}

pub fn unclear(reason: &str) {
    let (mark, reason) = (warn("?"), line(reason));
    output::say(&format!("  {mark} {reason}\n  {}", dim(ANSWERS)));
}

fn gone(call: &str) {
    output::say_command(
        &format!("  {}", warn("!")),
        "nothing more can be typed here; end the run with Ctrl-C, or decide elsewhere (or edit, replace, refuse): ",
        &format!("toolhold approvals approve {call}"),
        "",
    );
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
            assert_eq!(meaning(typed), Ok(DeciderAnswer::Once(meant)), "{typed}");
        }
        assert_eq!(meaning("a"), Ok(DeciderAnswer::Always(None)));
        let pattern = json!({"path": "notes/*"});
        assert_eq!(
            meaning("always {\"path\": \"notes/*\"}"),
            Ok(DeciderAnswer::Always(Some(pattern)))
        );
        assert_eq!(meaning(""), Err(InvalidAnswer::Nothing));
        for (typed, expect) in [
            ("yess", "\"yess\" is no answer"),
            ("maybe \u{1b}[2J", "\"maybe\" is no answer"),
            ("e {", "the new arguments: EOF"),
            ("r", "the result: EOF"),
            ("a notes/*", "the pattern: "),
        ] {
            let Err(InvalidAnswer::Because(reason)) = meaning(typed) else {
                panic!("{typed}");
            };
            assert!(reason.contains(expect), "{reason}");
        }
    }
}
