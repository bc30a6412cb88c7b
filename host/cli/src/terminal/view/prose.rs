//! The model's prose, taken out of the JSON of its contract.

use crate::terminal::rows::{self, Rows};
use std::io::{IsTerminal as _, Write as _};
use toolhold_policy::text::ReadablePieces;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_server::answer_stream::{AnswerNews, AnswerRest, AnswerStream};

/// The prose of one reply after the other. At a terminal it is shown on stdout while the model writes it: the
/// answer is among it, and is then not printed again. A pipe gets only the answer, when the run is over. What is held, and
/// what is shown, is decided as in the streams of a server.
///
/// Each row of it begins with a bar, so that none looks like a line of the host. It is not shown while it is written
/// where a person may be asked about a call: what a model writes must not stand below the question.
#[derive(Debug, Default)]
pub(super) struct Prose {
    stream: AnswerStream,
    /// The text of this reply beside calls, which is shown with them where no stream shows it.
    beside: AnswerStream,
    /// Whether it is shown while it is written.
    is_live: bool,
    /// The text of this reply beside calls that was not shown.
    held: String,
    /// Whether prose of this reply is on the screen, and where it ends there.
    is_shown: bool,
    /// The end of what was shown, which the next piece may belong to.
    pieces: ReadablePieces,
    rows: Rows,
}

impl Prose {
    /// `is_typed`: the answer is data, which is printed when it is whole.
    pub fn of(request: &RunRequest, tools: &BoundTools, is_typed: bool) -> Self {
        let settings = &request.settings;
        // A shield may block the answer, and placeholders in it are replaced at the end.
        let may_show = !request.policy.screens.contains(&ShieldPlace::Output)
            && settings.privacy.is_off()
            && settings.decisions.asks_nobody();
        let stream = AnswerStream::of(request, tools);
        Self {
            beside: stream.unchecked(),
            stream,
            is_live: may_show && !is_typed && std::io::stdout().is_terminal(),
            rows: Rows::new("│ "),
            ..Self::default()
        }
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &EventKind) {
        let text = self.news(event);
        if self.is_live && !text.is_empty() {
            self.show(&text);
        }
    }

    /// The part of the answer that an event brings. Each reply is shown by itself: prose of the one before was not the answer.
    fn news(&mut self, event: &EventKind) -> String {
        match event {
            EventKind::Request { .. } => {
                self.stream.forget();
                self.beside = self.stream.unchecked();
                self.held.clear();
                self.is_shown = false;
            }
            EventKind::Delta {
                delta: Delta::Content(text),
                ..
            } => self.held.push_str(&self.beside.push(text)),
            _ => {}
        }
        match self.stream.take(event) {
            AnswerNews::Text(text) => text,
            AnswerNews::Aside | AnswerNews::Nothing => String::new(),
        }
    }

    /// The prose of a reply that made calls, unless it was shown while it was written.
    pub fn beside_calls(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.is_shown { String::new() } else { held }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::bound::{Bound, Runner};
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::settings::Settings;
    use toolhold_protocol::tool::Tool;
    use uuid::Uuid;

    fn event(kind: serde_json::Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn request(step: u32) -> EventKind {
        event(json!({"event": "request", "step": step, "body": {}}))
    }

    fn wrote(text: &str) -> EventKind {
        EventKind::Delta {
            step: 1,
            delta: Delta::Content(text.to_owned()),
            from: None,
        }
    }

    fn prose(settings: Settings) -> Prose {
        let request = RunRequest {
            settings: Settings {
                contract: Contract::Tools,
                ..settings
            },
            ..RunRequest::new(Uuid::nil(), "t")
        };
        let tool = Bound {
            tool: Tool::new("news").into(),
            runner: Runner::Activity("news".into()),
        };
        Prose::of(&request, &vec![tool].into(), false)
    }

    /// The text that a terminal shows while these events come.
    fn shown(prose: &mut Prose, events: &[EventKind]) -> String {
        events.iter().map(|event| prose.news(event)).collect()
    }

    #[test]
    fn text_that_may_be_a_call_is_held_as_in_the_streams_of_a_server() {
        for (text, expect) in [
            ("It is 4.", "It is 4."),
            ("I look.\n<tool_call>{\"name\": \"news\"}", "I look."),
            (r#"{"name": "news", "arguments": {}}"#, ""),
            ("news\n{\"a\": 1}", ""),
            ("`<tool_call>` opens a call.", "`<tool_call>` opens a call."),
        ] {
            let mut prose = prose(Settings::default());
            let mut events = vec![request(1)];
            events.extend(text.chars().map(|c| wrote(&c.to_string())));
            assert_eq!(shown(&mut prose, &events), expect, "{text}");
            assert_eq!(prose.beside_calls(), expect, "{text}");
        }
    }

    #[test]
    fn text_before_a_call_that_has_to_be_made_is_shown_beside_it() {
        let mut prose = prose(Settings {
            must_call: true,
            ..Settings::default()
        });
        let events = [request(1), wrote("I look.")];
        assert_eq!(shown(&mut prose, &events), "");
        assert_eq!(prose.beside_calls(), "I look.");
    }

    #[test]
    fn each_reply_is_shown_by_itself() {
        let mut prose = prose(Settings::default());
        let events = [
            request(1),
            wrote("The answer"),
            request(1),
            wrote("The answer is 4."),
        ];
        let expect = "The answerThe answer is 4.";
        assert_eq!(shown(&mut prose, &events), expect);
    }
}
