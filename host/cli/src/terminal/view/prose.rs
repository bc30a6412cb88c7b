//! The model's prose, taken out of the JSON of its contract.

use crate::terminal::rows::{self, Rows};
use std::io::{IsTerminal as _, Write as _};
use toolhold_policy::text::ReadablePieces;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_server::answer_stream::{AnswerRest, AnswerStream};

/// The prose of one reply after the other. At a terminal it is shown on stdout while the model writes it: the
/// answer is among it, and is then not printed again. A pipe gets only the answer, when the run is over.
///
/// Each row of it begins with a bar, so that none looks like a line of the host. It is not shown while it is written
/// where a person may be asked about a call: what a model writes must not stand below the question.
#[derive(Debug, Default)]
pub(super) struct Prose {
    contract: Contract,
    stream: AnswerStream,
    /// Whether it is shown while it is written.
    is_live: bool,
    /// The prose of this reply that was not shown.
    held: String,
    /// Whether prose of this reply is on the screen, and where it ends there.
    is_shown: bool,
    /// The end of what was shown, which the next piece may belong to.
    pieces: ReadablePieces,
    rows: Rows,
}

impl Prose {
    /// `is_typed`: the answer is data, which is printed when it is whole.
    pub fn of(request: &RunRequest, is_typed: bool) -> Self {
        let settings = &request.settings;
        // A shield may block the answer, and placeholders in it are replaced at the end.
        let may_show = !request.policy.screens.contains(&ShieldPlace::Output)
            && settings.privacy.is_off()
            && settings.decisions.asks_nobody();
        Self {
            contract: settings.contract,
            stream: AnswerStream::new(settings.contract),
            is_live: may_show && !is_typed && std::io::stdout().is_terminal(),
            rows: Rows::new("│ "),
            ..Self::default()
        }
    }

    /// A reply begins. Prose of the one before was not the answer.
    pub fn restart(&mut self) {
        self.stream = AnswerStream::new(self.contract);
        self.held.clear();
        self.is_shown = false;
    }

    pub fn push(&mut self, text: &str) {
        let said = self.stream.push(text);
        if said.is_empty() {
            return;
        }
        if self.is_live {
            self.show(&said);
        } else {
            self.held.push_str(&said);
        }
    }

    /// The prose of a reply that made calls, unless it was shown while it was written.
    pub fn beside_calls(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Completes the answer on the screen. Returns `false` if nothing of it is there, so that all of it is to be
    /// printed.
    pub fn completes(&mut self, answer: &str) -> bool {
        if !self.is_shown {
            return false;
        }
        match self.stream.rest(answer, true) {
            AnswerRest::More(rest) => {
                if !rest.is_empty() {
                    self.show(rest);
                }
                self.end_line();
                true
            }
            AnswerRest::Apart(_) | AnswerRest::Contradiction => false,
        }
    }

    /// Whether prose of this reply is on the screen.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    pub fn end_line(&mut self) {
        let rest = self.pieces.end();
        if !rest.is_empty() {
            self.print_rows(&rest);
        }
        if self.rows.end() {
            print("\n");
        }
    }

    fn show(&mut self, text: &str) {
        let shown = self.pieces.push(text);
        self.print_rows(&shown);
        self.is_shown = true;
    }

    fn print_rows(&mut self, text: &str) {
        let width = rows::width(&std::io::stdout());
        print(&self.rows.push(text, width));
    }
}

/// A closed terminal does not end a run.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
