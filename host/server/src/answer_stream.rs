//! Extracts the final answer from a model's reply while the reply is streamed.
//!
//! The answer is the string `output` of a JSON object in the schema contract, the string `final_answer` in
//! the simple contract, and the text itself in the tools contract. As long as the model keeps its contract,
//! the streamed text is a prefix of the answer; otherwise [`AnswerStream::rest`] returns the correction.
//!
//! A text that begins like a call is not streamed: whether it is one, the complete reply shows
//! (docs/protocol.md, 4.10).

use crate::stop_texts::StopTexts;
use std::mem;
use toolhold_agent::contract::{ReplyOpening, opening_of};
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::Settings;

/// Members of an object that hold the answer.
const ANSWERS: [&str; 2] = ["output", "final_answer"];
/// Length bound of a member's name while it is read; a longer name is none of [`ANSWERS`].
const MAX_NAME: usize = 32;

/// Follows the replies of one run, in order.
#[derive(Debug, Default)]
pub struct AnswerStream {
    is_text: bool,
    /// Kind of the text that a reply begins with.
    opening: ReplyOpening,
    /// The beginning of a text, as long as it may be text or a call.
    held: String,
    lexer: JsonLexer,
    /// Brackets that are open.
    depth: usize,
    string: JsonString,
    /// The member of the outermost object that is being read.
    name: String,
    /// After the answer, or in a text that is not JSON.
    is_over: bool,
    /// Text streamed of this reply.
    said: String,
    /// Texts before which the answer ends.
    stops: StopTexts,
    /// True if the text of a reply is no answer yet, because a call has to be made before.
    awaits_call: bool,
    /// True once a call was made.
    is_called: bool,
}

/// What the string is that is being read.
#[derive(Debug, Default, Clone, Copy)]
enum JsonString {
    /// The name of a member of the outermost object.
    Name,
    Answer,
    #[default]
    Other,
}

impl AnswerStream {
    pub fn new(contract: Contract) -> Self {
        Self {
            is_text: contract == Contract::Tools,
            ..Self::default()
        }
    }

    /// Follows the replies of a run with these settings. One that has to call a tool has no answer before that.
    pub fn of(settings: &Settings) -> Self {
        Self {
            awaits_call: settings.must_call,
            ..Self::new(settings.contract)
        }
    }

    /// Ends the answer before the first of these texts.
    #[must_use]
    pub fn stopping(mut self, stops: StopTexts) -> Self {
        self.stops = stops;
        self
    }

    /// A call was made: the next reply may hold the answer.
    pub fn called(&mut self) {
        self.is_called = true;
    }

    /// Starts the next reply. Text of the previous reply was not the answer.
    pub fn restart(&mut self) {
        *self = Self {
            is_text: self.is_text,
            stops: self.stops.anew(),
            awaits_call: self.awaits_call && !self.is_called,
            ..Self::default()
        };
    }

    /// Takes the next piece of a reply, and returns its part of the answer.
    pub fn push(&mut self, text: &str) -> String {
        if self.awaits_call {
            return String::new();
        }
        let answer = if self.is_text {
            self.known_text(text)
        } else {
            let mut answer = String::new();
            self.read(text, &mut answer);
            answer
        };
        let answer = self.stops.push(answer);
        self.said.push_str(&answer);
        answer
    }

    /// The text that is known to be no call, with what was held before it.
    fn known_text(&mut self, text: &str) -> String {
        if self.opening == ReplyOpening::Undecided {
            self.held.push_str(text);
            self.opening = opening_of(&self.held);
            return match self.opening {
                ReplyOpening::Text => mem::take(&mut self.held),
                ReplyOpening::Marks => {
                    self.held = String::new();
                    String::new()
                }
                ReplyOpening::Undecided => String::new(),
            };
        }
        match self.opening {
            ReplyOpening::Text => text.to_owned(),
            _ => String::new(),
        }
    }

    /// The part of the final answer that was not streamed yet.
    pub fn rest<'a>(&self, answer: &'a str) -> AnswerRest<'a> {
        match answer.strip_prefix(self.said.as_str()) {
            Some(rest) => AnswerRest::More(rest),
            None => AnswerRest::Instead(answer),
        }
    }

    fn read(&mut self, mut text: &str, answer: &mut String) {
        while !self.is_over
            && let Some(token) = self.lexer.next(&mut text)
        {
            match token {
                JsonToken::Between('{' | '[') => self.depth += 1,
                JsonToken::Between('}' | ']') => self.depth = self.depth.saturating_sub(1),
                JsonToken::Between(',') if self.depth == 1 => self.name.clear(),
                JsonToken::Between(_) => {}
                JsonToken::Begin => {
                    self.string = match self.name.as_str() {
                        _ if self.depth != 1 => JsonString::Other,
                        "" => JsonString::Name,
                        name if ANSWERS.contains(&name) => JsonString::Answer,
                        _ => JsonString::Other,
                    }
                }
                JsonToken::Inside(StringPart::Plain(c) | StringPart::Escaped(c)) => {
                    match self.string {
                        JsonString::Answer => answer.push(c),
                        JsonString::Name if self.name.len() < MAX_NAME => self.name.push(c),
                        JsonString::Name | JsonString::Other => {}
                    }
                }
                JsonToken::Inside(_) => self.is_over = true,
                JsonToken::End => self.is_over = matches!(self.string, JsonString::Answer),
            }
        }
    }
}

/// How a partly streamed answer is completed.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerRest<'a> {
    More(&'a str),
    /// The streamed text is not a prefix of the answer: this is the whole answer.
    Instead(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn said(contract: Contract, pieces: &[&str]) -> String {
        let mut answer_stream = AnswerStream::new(contract);
        pieces
            .iter()
            .map(|piece| answer_stream.push(piece))
            .collect()
    }

    #[test]
    fn the_answer_is_heard_and_nothing_else() {
        for (reply, answer) in [
            (r#"{"calls": [], "output": "Hello"}"#, "Hello"),
            (
                r#"{"calls": [{"_tool": "t", "output": "no"}], "output": null}"#,
                "",
            ),
            (r#"{"output": {"output": "no"}}"#, ""),
            (r#"{"final_answer": "a \"b\" \\ \n c"}"#, "a \"b\" \\ \n c"),
            (r#"{"reason": "output", "output": "yes"}"#, "yes"),
            (r#"{"output": "\ud83e\udd80!", "output": "twice"}"#, "🦀!"),
            (r#"```json {"output": "fenced"}"#, "fenced"),
            (r#"{"output": "bad \x escape"}"#, "bad "),
            (
                r#"{"output": "half a pair: \ud83dA\ude00"}"#,
                "half a pair: ",
            ),
            (r#"{"output": "half a pair: \ude00A"}"#, "half a pair: "),
            (r#"{"output": "half a pair: \ud83d"}"#, "half a pair: "),
            (r#"{"output": "no digits: \u+041"}"#, "no digits: "),
            ("no JSON at all", ""),
        ] {
            assert_eq!(said(Contract::Schema, &[reply]), answer, "{reply}");
            let letters: Vec<String> = reply.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(said(Contract::Schema, &letters), answer, "{reply}");
        }
        assert_eq!(said(Contract::Tools, &["plain ", "{text}"]), "plain {text}");
    }

    /// A piece of a call is no piece of an answer, wherever the text is cut.
    #[test]
    fn text_that_may_be_a_call_is_held() {
        for text in [
            "<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
            " \n<|tool_call_start|>[news(q=1)]<|tool_call_end|>",
            "<|new_call|>{\"name\": \"news\", \"arguments\": {}}<|/new_call|>",
            "[TOOL_REQUEST]{\"name\": \"news\"}[END_TOOL_REQUEST]",
            "<answer>{\"name\": \"news\", \"arguments\": {}}</answer>",
            "</s><tool_calls>[",
            "<|new",
        ] {
            for (at, _) in text.char_indices() {
                let (head, tail) = text.split_at(at);
                assert_eq!(said(Contract::Tools, &[head, tail]), "", "{text} at {at}");
            }
            let mut answer_stream = AnswerStream::new(Contract::Tools);
            answer_stream.push(text);
            assert_eq!(answer_stream.rest(text), AnswerRest::More(text));
        }
    }

    #[test]
    fn other_text_is_streamed_when_it_is_known() {
        for (text, at) in [
            ("Hello", "H"),
            (" \nHello", " \nH"),
            ("<p>Hello</p>", "<p>"),
            ("< 5", "< "),
            ("[WARNING] It", "[WARNING]"),
            ("[1, 2]", "[1"),
            ("```rust", "```r"),
            ("<answer>It is 4.", "<answer>It "),
            ("<think>So", "<think>"),
            ("- a list", "-"),
        ] {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(said(Contract::Tools, &letters), text);
            let mut answer_stream = AnswerStream::new(Contract::Tools);
            let mut read = String::new();
            let first = letters.iter().find_map(|letter| {
                read.push_str(letter);
                let text = answer_stream.push(letter);
                (!text.is_empty()).then_some(text)
            });
            assert_eq!((first.as_deref(), read.as_str()), (Some(at), at), "{text}");
        }
    }

    #[test]
    fn nothing_is_streamed_before_a_call_that_has_to_be_made() {
        let settings = Settings {
            contract: Contract::Tools,
            must_call: true,
            ..Settings::default()
        };
        let mut answer_stream = AnswerStream::of(&settings);
        assert_eq!(answer_stream.push("I know."), "");
        answer_stream.restart();
        assert_eq!(answer_stream.push("I call."), "");
        answer_stream.called();
        answer_stream.restart();
        assert_eq!(answer_stream.push("It is 4."), "It is 4.");
    }

    #[test]
    fn a_streamed_answer_ends_before_a_stop() {
        let stops = StopTexts::read(&json!("END")).unwrap();
        let mut answer_stream = AnswerStream::new(Contract::Tools).stopping(stops);
        assert_eq!(answer_stream.push("It is 4.E"), "It is 4.");
        assert_eq!(answer_stream.push("ND and more"), "");
        assert_eq!(answer_stream.rest("It is 4."), AnswerRest::More(""));
    }

    #[test]
    fn missing_text_is_completed_at_the_end() {
        let mut answer_stream = AnswerStream::new(Contract::Schema);
        answer_stream.push(r#"{"output": "Hel"#);
        assert_eq!(answer_stream.rest("Hello"), AnswerRest::More("lo"));
        assert_eq!(answer_stream.rest("Other"), AnswerRest::Instead("Other"));
        answer_stream.restart();
        assert_eq!(answer_stream.rest("Hello"), AnswerRest::More("Hello"));
    }

    proptest! {
        #[test]
        fn any_text_is_said_as_it_is(text in ".*") {
            let reply = json!({"calls": [], "output": text}).to_string();
            prop_assert_eq!(said(Contract::Schema, &[&reply]), text);
        }

        #[test]
        fn a_cut_changes_nothing(
            reply in r#"\{"(a|calls|output)": ("b"|\[\{\}\]|1), "(output|final_answer)": "(\\u(d83d|de0|[0-9a-g]{3})[0e]?|[\\"un1-eé😀\n]){0,12}"#,
        ) {
            let whole = said(Contract::Schema, &[&reply]);
            for (at, _) in reply.char_indices() {
                let (head, tail) = reply.split_at(at);
                prop_assert_eq!(&said(Contract::Schema, &[head, tail]), &whole, "cut at {}", at);
            }
        }
    }
}
