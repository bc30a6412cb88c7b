//! Decides which text of a model's replies is the answer, while it is streamed. Every API that shows text before a run is
//! over shows what [`AnswerStream`] gives, and nothing else.
//!
//! The answer is the string `output` of a JSON object in the schema contract, the string `final_answer` in
//! the simple contract, and the text itself in the tools contract. In all of them it comes without the thoughts before it,
//! and text is given out when it is certain to be a part of the answer:
//!
//! - A text that begins like a call, and what follows the mark of a call, is held: whether it is one, the complete reply
//!   shows (docs/protocol.md, 4.10). So is white space that may be the end of the answer, which has none.
//! - Of a run whose output is checked before it counts (against a schema, for citations, by advisors), and of replies that
//!   have to call a tool, all is held.
//!
//! Three things cannot be known ahead. A model may say something beside a call of one of the run's own tools, or a thought
//! whose opening mark its template wrote: these stay, and the answer follows. And a reply may break off: of the next one, the part is given that goes beyond the text so far.
//! If it does not begin with this text, the client cannot be given the answer in this stream
//! ([`AnswerRest::Contradiction`]).

use crate::stop_texts::StopTexts;
use std::mem;
use toolhold_agent::contract::{ReplyOpening, ReplyText, ThoughtFilter, mark_in, opening_of};
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_protocol::bound::{BoundTools, Runner};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::knowledge::CitationRule;
use toolhold_protocol::settings::RunRequest;

/// The member of an object that holds the answer of the simple contract.
const FINAL_ANSWER: &str = "final_answer";
/// Members that hold the answer of the schema contract, which also takes an object of the simple one.
const ANSWERS: [&str; 2] = ["output", FINAL_ANSWER];
/// Members with calls. Beside these there is no answer.
const CALLS: &str = "calls";
const TOOL_NAME: &str = "tool_name";
/// Length bound of a member's name while it is read; a longer name is none of these.
const MAX_NAME: usize = 32;

/// Follows the replies of one run, in order.
#[derive(Debug, Default)]
pub struct AnswerStream {
    contract: Contract,
    /// True if the run's output counts only when something has looked at the whole of it.
    is_checked: bool,
    /// True if the text of a reply is no answer yet, because a call has to be made before.
    awaits_call: bool,
    /// True if that call is one of the client's, with which the run ends.
    awaits_client: bool,
    /// True once such a call was made.
    is_called: bool,
    /// True while another model is asked for one call.
    is_aside: bool,
    /// The step of the reply that is under way.
    step: u32,
    /// True if calls of this step were made or refused: its text is no answer of the run.
    has_calls: bool,
    thoughts: ThoughtFilter,
    reply: ReplyAnswer,
    /// Texts before which the answer ends.
    stops: StopTexts,
    /// Text that was given out, of this reply, or of one that broke off before it.
    said: String,
    /// Bytes of it with which this reply begins as well.
    repeated: usize,
    /// True if this reply has another text.
    is_other: bool,
    /// True if the text that was given out was a thought whose opening mark the endpoint's template wrote.
    was_thought: bool,
}

/// The answer in the text of one reply without its thoughts.
#[derive(Debug, Default)]
struct ReplyAnswer {
    /// Kind of the text that the reply begins with.
    opening: ReplyOpening,
    /// Text that may be the beginning of a call.
    held: String,
    /// White space before it.
    blanks: String,
    lexer: JsonLexer,
    /// Brackets that are open.
    depth: usize,
    string: JsonString,
    /// The member of the outermost object that is being read.
    name: String,
    /// Behind a call in the object.
    has_calls: bool,
    /// After the answer, or in a text that is not JSON.
    is_over: bool,
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

/// The effect of an event of a run on its answer.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerNews {
    Nothing,
    /// The next part of the answer.
    Text(String),
    /// The text so far was said beside calls. It is complete, and the answer is another one.
    Aside,
}

/// How a partly streamed answer is completed.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerRest<'a> {
    /// The part that follows the text so far.
    More(&'a str),
    /// The whole answer: the text so far was said beside calls, or was a thought that had no opening mark.
    Apart(&'a str),
    /// The text so far is not the beginning of the answer, and cannot be taken back.
    Contradiction,
}

impl AnswerStream {
    pub fn new(contract: Contract) -> Self {
        Self {
            contract,
            ..Self::default()
        }
    }

    fn of(request: &RunRequest, tools: &BoundTools) -> Self {
        let mut runners = tools.iter().map(|bound| &bound.runner);
        let retrieval = request.retrieval.as_ref();
        let mut context = request.context.iter();
        Self {
            is_checked: request.output_schema.is_some()
                || retrieval.is_some_and(|it| it.citations == CitationRule::Require)
                || context.any(|message| matches!(message, Message::Advisor(_))),
            awaits_call: request.settings.must_call,
            awaits_client: runners.any(|runner| *runner == Runner::Client),
            ..Self::new(request.settings.contract)
        }
    }

    /// Ends the answer before the first of these texts.
    #[must_use]
    pub fn stopping(mut self, stops: StopTexts) -> Self {
        self.stops = stops;
        self
    }

    /// The text that was given out.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &EventKind) -> AnswerNews {
        match event {
            EventKind::Run { request, tools, .. } => {
                let stops = mem::take(&mut self.stops);
                *self = Self::of(request, tools).stopping(stops);
            }
            EventKind::Request { step, .. } => {
                let was_aside = self.is_beside_answer() && !self.said.is_empty();
                self.begin(*step);
                if was_aside {
                    return AnswerNews::Aside;
                }
            }
            EventKind::Fallback { tool, stage, .. } => {
                let is_asked = matches!(stage, Stage::Asked { .. } | Stage::Failed { .. });
                self.is_aside = is_asked && tool.is_some();
            }
            // Calls of earlier steps may begin while the model writes.
            EventKind::Plan { step, .. } => self.has_calls |= *step == self.step,
            EventKind::ToolStart { step, .. } => {
                self.has_calls |= *step == self.step;
                self.is_called = !self.awaits_client;
            }
            EventKind::Delta {
                delta: Delta::Content(text),
                ..
            } => {
                let text = self.push(text);
                if !text.is_empty() {
                    return AnswerNews::Text(text);
                }
            }
            _ => {}
        }
        AnswerNews::Nothing
    }

    /// Begins the next reply. The text of one that called tools was its own; that of another one is still to be completed.
    fn begin(&mut self, step: u32) {
        if self.is_beside_answer() {
            self.said.clear();
        }
        self.was_thought = false;
        self.step = step;
        self.has_calls = false;
        self.awaits_call &= !self.is_called;
        self.is_called = false;
        self.thoughts = ThoughtFilter::default();
        self.begin_again();
    }

    /// True if the text that was given out is that of this reply, and stands beside its calls.
    fn is_beside_calls(&self) -> bool {
        self.has_calls && !self.is_other && self.repeated == self.said.len()
    }

    /// True if the text that was given out is of this reply, and no part of the answer.
    fn is_beside_answer(&self) -> bool {
        self.was_thought || self.is_beside_calls()
    }

    /// Begins the answer of this reply, of which there is nothing so far.
    fn begin_again(&mut self) {
        self.reply = ReplyAnswer::default();
        self.stops = self.stops.anew();
        self.repeated = 0;
        self.is_other = false;
    }

    /// Takes the next piece of a reply, and returns its part of the answer.
    pub fn push(&mut self, text: &str) -> String {
        if self.awaits_call || self.is_checked || self.is_aside {
            return String::new();
        }
        let mut answer = String::new();
        for part in self.thoughts.push(text) {
            match part {
                ReplyText::Answer(text) => self.reply.push(self.contract, &text, &mut answer),
                ReplyText::Restart => {
                    answer.clear();
                    self.was_thought |= self.repeated > 0 && self.repeated == self.said.len();
                    self.begin_again();
                }
            }
        }
        let answer = self.stops.push(answer);
        self.say(answer)
    }

    /// The reply has ended: what may have been the beginning of a mark is a part of its text.
    pub fn finish(&mut self) -> String {
        let mut answer = String::new();
        if let Some(text) = self.thoughts.finish() {
            self.reply.push(self.contract, &text, &mut answer);
        }
        self.reply.finish(&mut answer);
        let answer = self.stops.push(answer);
        self.say(answer)
    }

    /// The part of `text`, the next one of this reply's answer, that goes beyond what was given out.
    fn say(&mut self, text: String) -> String {
        if self.is_other || self.was_thought {
            return String::new();
        }
        let known = self.said.get(self.repeated..).unwrap_or_default();
        let new = match text.strip_prefix(known) {
            Some("") | None if known.starts_with(&text) => {
                self.repeated += text.len();
                return String::new();
            }
            Some(new) => new.to_owned(),
            None => {
                self.is_other = true;
                return String::new();
            }
        };
        self.said.push_str(&new);
        self.repeated = self.said.len();
        new
    }

    /// The part of the final answer that was not given out yet. `is_whole`: the run came to it by itself, and was not stopped
    /// before. Of a run that was stopped, nothing follows a text that broke off.
    pub fn rest<'a>(&self, answer: &'a str, is_whole: bool) -> AnswerRest<'a> {
        match answer.strip_prefix(self.said.as_str()) {
            Some(rest) if !self.was_thought => AnswerRest::More(rest),
            _ if self.is_beside_answer() => AnswerRest::Apart(answer),
            _ if is_whole => AnswerRest::Contradiction,
            _ => AnswerRest::More(""),
        }
    }
}

impl ReplyAnswer {
    fn push(&mut self, contract: Contract, text: &str, answer: &mut String) {
        match contract {
            Contract::Tools => self.read_text(text, answer),
            Contract::Schema => self.read_json(&ANSWERS, text, answer),
            Contract::Simple => self.read_json(&[FINAL_ANSWER], text, answer),
        }
    }

    /// The text that is known to be no call, without white space around it.
    fn read_text(&mut self, text: &str, answer: &mut String) {
        if self.opening == ReplyOpening::Marks {
            return;
        }
        self.held.push_str(text);
        if self.opening == ReplyOpening::Undecided {
            self.opening = opening_of(&self.held);
            if self.opening == ReplyOpening::Text {
                self.held = self.held.trim_start().to_owned();
            }
        }
        match self.opening {
            ReplyOpening::Undecided => {}
            ReplyOpening::Marks => self.held.clear(),
            ReplyOpening::Text => self.pass_held(answer),
        }
    }

    /// Passes on what was held, up to the mark of a call and to white space at the end.
    fn pass_held(&mut self, answer: &mut String) {
        let mut text = mem::take(&mut self.held);
        if let Some(mark) = mark_in(&text) {
            self.held = text.split_off(mark.at);
            if mark.is_whole {
                self.opening = ReplyOpening::Marks;
                self.held.clear();
            }
        }
        let certain = text.trim_end();
        let blanks = text.get(certain.len()..).unwrap_or_default();
        if !certain.is_empty() {
            answer.push_str(&self.blanks);
            answer.push_str(certain);
            self.blanks.clear();
        }
        self.blanks.push_str(blanks);
    }

    fn finish(&mut self, answer: &mut String) {
        let text = mem::take(&mut self.held);
        let text = text.trim();
        if !text.is_empty() {
            answer.push_str(&self.blanks);
            answer.push_str(text);
        }
        self.blanks.clear();
    }

    /// The strings of these members of the outermost object.
    fn read_json(&mut self, answers: &[&str], mut text: &str, answer: &mut String) {
        while !self.is_over
            && let Some(token) = self.lexer.next(&mut text)
        {
            match token {
                JsonToken::Between('{' | '[') => {
                    self.depth += 1;
                    self.has_calls |= self.depth > 2 && self.name == CALLS;
                }
                JsonToken::Between('}' | ']') => self.depth = self.depth.saturating_sub(1),
                JsonToken::Between(',') if self.depth == 1 => self.name.clear(),
                JsonToken::Between(_) => {}
                JsonToken::Begin => self.string = self.begun(answers),
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

    /// The kind of the string that begins.
    fn begun(&mut self, answers: &[&str]) -> JsonString {
        if self.depth != 1 {
            return JsonString::Other;
        }
        self.has_calls |= self.name == TOOL_NAME;
        match self.name.as_str() {
            "" => JsonString::Name,
            name if answers.contains(&name) && !self.has_calls => JsonString::Answer,
            _ => JsonString::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use toolhold_protocol::bound::Bound;
    use toolhold_protocol::knowledge::Retrieval;
    use toolhold_protocol::settings::Settings;
    use toolhold_protocol::tool::Tool;
    use uuid::Uuid;

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
        for (reply, answer) in [
            (r#"{"tool_name": "t", "final_answer": "no"}"#, ""),
            (r#"{"output": "no"} {"final_answer": "yes"}"#, ""),
            (r#"{"final_answer": "yes"}"#, "yes"),
        ] {
            assert_eq!(said(Contract::Simple, &[reply]), answer, "{reply}");
        }
        let beside = r#"{"calls": [{"_tool": "t"}], "output": "no"}"#;
        assert_eq!(said(Contract::Schema, &[beside]), "");
    }

    /// Wherever the text is cut.
    #[test]
    fn neither_thoughts_nor_white_space_nor_calls_around_a_text_are_the_answer() {
        for (text, answer) in [
            ("hello world\n", "hello world"),
            ("\n\nhello\n\nworld ", "hello\n\nworld"),
            ("```py\nx=1\n```\n", "```py\nx=1\n```"),
            ("<think>hm, 7?</think>\nIt is 4.", "It is 4."),
            (
                "<think>a</think>\n<reasoning>b</reasoning>\n\nIt is 4.\n",
                "It is 4.",
            ),
            ("<think>It never ends", ""),
            (
                "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
                "It is 4.",
            ),
            (
                "I look.\n<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
                "I look.",
            ),
            ("I look.\n</s>\n[TOOL_CALLS][{", "I look."),
            ("a < b [c] `d` <e>", "a < b [c] `d` <e>"),
        ] {
            for (at, _) in text.char_indices() {
                let (head, tail) = text.split_at(at);
                let heard = said(Contract::Tools, &[head, tail]);
                assert_eq!(heard, answer, "{text} at {at}");
            }
        }
        let thought = "<think>{\"output\": \"no\"}</think>{\"output\": \"yes\"}";
        assert_eq!(said(Contract::Schema, &[thought]), "yes");
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
            assert_eq!(answer_stream.rest(text, true), AnswerRest::More(text));
        }
    }

    #[test]
    fn other_text_is_streamed_when_it_is_known() {
        for (text, at) in [
            // `Here` may begin a mark of Granite.
            ("Hello", "Hel"),
            (" \nHello", " \nHel"),
            ("No", "N"),
            ("<p>Hello</p>", "<p>"),
            ("< 5", "< "),
            ("[WARNING] It", "[WARNING]"),
            ("[1, 2]", "[1"),
            ("```rust", "```r"),
            ("<answer>It is 4.", "<answer>It "),
            ("<think>So</think>It", "<think>So</think>I"),
            ("- a list", "-"),
        ] {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            let shown = text.strip_prefix("<think>So</think>").unwrap_or(text);
            assert_eq!(said(Contract::Tools, &letters), shown.trim());
            let mut answer_stream = AnswerStream::new(Contract::Tools);
            let mut read = String::new();
            let first = letters.iter().find(|letter| {
                read.push_str(letter);
                !answer_stream.push(letter).is_empty()
            });
            assert!(first.is_some(), "{text}");
            assert_eq!(read, at, "{text}");
        }
    }

    fn event(kind: serde_json::Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn request(step: u32) -> EventKind {
        event(json!({"event": "request", "step": step, "body": {}}))
    }

    fn started(step: u32) -> EventKind {
        event(
            json!({"event": "tool_start", "step": step, "id": "a", "tool": "m.write", "arguments": {}}),
        )
    }

    fn wrote(text: &str) -> EventKind {
        EventKind::Delta {
            step: 1,
            delta: Delta::Content(text.to_owned()),
            from: None,
        }
    }

    fn settings() -> Settings {
        Settings {
            contract: Contract::Tools,
            ..Settings::default()
        }
    }

    /// A run with these settings and tools.
    fn stream_of(settings: Settings, tools: Vec<Bound>) -> AnswerStream {
        let request = RunRequest {
            settings,
            ..RunRequest::new(Uuid::nil(), "t")
        };
        AnswerStream::of(&request, &tools.into())
    }

    /// The text that these events give.
    fn heard(answer_stream: &mut AnswerStream, events: &[EventKind]) -> String {
        let news = events.iter().map(|event| match answer_stream.take(event) {
            AnswerNews::Text(text) => text,
            AnswerNews::Aside => "|".into(),
            AnswerNews::Nothing => String::new(),
        });
        news.collect()
    }

    #[test]
    fn nothing_is_streamed_before_a_call_that_has_to_be_made() {
        let must_call = Settings {
            must_call: true,
            ..settings()
        };
        let events = [
            request(1),
            wrote("I know."),
            request(2),
            wrote("I call."),
            started(2),
            request(3),
            wrote("It is 4."),
        ];
        let mut own = stream_of(must_call.clone(), Vec::new());
        assert_eq!(heard(&mut own, &events), "It is 4.");
        // A call that is not the client's is not the one.
        let bound = |name: &str, runner| Bound {
            tool: Tool::new(name).into(),
            runner,
        };
        let tools = vec![
            bound("own", Runner::Activity("own".into())),
            bound("weather", Runner::Client),
        ];
        let mut clients = stream_of(must_call, tools);
        assert_eq!(heard(&mut clients, &events), "");
    }

    #[test]
    fn nothing_is_streamed_of_an_output_that_is_checked() {
        let plain = RunRequest {
            settings: settings(),
            ..RunRequest::new(Uuid::nil(), "t")
        };
        let of_schema = RunRequest {
            output_schema: Some(json!({})),
            ..plain.clone()
        };
        let cited = RunRequest {
            retrieval: Some(Retrieval {
                citations: CitationRule::Require,
                ..Retrieval::default()
            }),
            ..plain.clone()
        };
        let none = BoundTools::default();
        for (run, text) in [(plain, "Sorry"), (of_schema, ""), (cited, "")] {
            let mut answer_stream = AnswerStream::of(&run, &none);
            let events = [request(1), wrote("Sorry")];
            assert_eq!(heard(&mut answer_stream, &events), text);
            let answer = r#"{"name":"Bern"}"#;
            let rest = answer_stream.rest(answer, true);
            let expected = match text {
                "" => AnswerRest::More(answer),
                _ => AnswerRest::Contradiction,
            };
            assert_eq!(rest, expected);
        }
    }

    /// A text that the client has is never given twice.
    #[test]
    fn a_reply_after_one_that_broke_off_continues_its_text() {
        let broken = [request(1), wrote("The answer is ")];
        for (next, more, rest) in [
            (&["The answer is 42."][..], " 42.", AnswerRest::More("")),
            (&["The ans", "wer", " is 42."], " 42.", AnswerRest::More("")),
            (&["The an"], "", AnswerRest::More(" 42.")),
            (&["It is", " 42."], "", AnswerRest::Contradiction),
            (&["The answer: 42."], "", AnswerRest::Contradiction),
        ] {
            let mut answer_stream = stream_of(settings(), Vec::new());
            assert_eq!(heard(&mut answer_stream, &broken), "The answer is");
            let mut events = vec![request(1)];
            events.extend(next.iter().map(|text| wrote(text)));
            assert_eq!(heard(&mut answer_stream, &events), more, "{next:?}");
            let answer = match rest {
                AnswerRest::Contradiction => next.concat(),
                _ => "The answer is 42.".to_owned(),
            };
            assert_eq!(answer_stream.rest(&answer, true), rest, "{next:?}");
        }
        // Of a run that was stopped there is no other text.
        let mut answer_stream = stream_of(settings(), Vec::new());
        heard(&mut answer_stream, &broken);
        assert_eq!(
            answer_stream.rest("Out of time", false),
            AnswerRest::More("")
        );
    }

    #[test]
    fn a_text_beside_calls_is_complete_and_not_the_answer() {
        let mut answer_stream = stream_of(settings(), Vec::new());
        // A call of an earlier step says nothing of this reply.
        let events = [request(2), wrote("I look."), started(1)];
        assert_eq!(heard(&mut answer_stream, &events), "I look.");
        assert_eq!(
            answer_stream.rest("It is 4.", true),
            AnswerRest::Contradiction
        );
        let events = [started(2), request(3), wrote("It is 4.")];
        assert_eq!(heard(&mut answer_stream, &events), "|It is 4.");
        assert_eq!(answer_stream.rest("It is 4.", true), AnswerRest::More(""));
        let events = [started(3)];
        assert_eq!(heard(&mut answer_stream, &events), "");
        let stopped = AnswerRest::Apart("Out of steps");
        assert_eq!(answer_stream.rest("Out of steps", false), stopped);
        // What broke off was not said beside the calls of another reply.
        let mut answer_stream = stream_of(settings(), Vec::new());
        let events = [
            request(1),
            wrote("I think"),
            request(1),
            wrote("I look."),
            started(1),
            request(2),
            wrote("It is 4."),
        ];
        assert_eq!(heard(&mut answer_stream, &events), "I think");
        assert_eq!(
            answer_stream.rest("It is 4.", true),
            AnswerRest::Contradiction
        );
    }

    /// The prompt held the mark that opens the thought.
    #[test]
    fn an_answer_follows_a_thought_without_its_first_mark() {
        let mut answer_stream = AnswerStream::new(Contract::Tools);
        assert_eq!(answer_stream.push("Hm, 7?\n</thi"), "Hm, 7?");
        assert_eq!(answer_stream.push("nk>\nIt is 4."), "");
        assert_eq!(
            answer_stream.rest("It is 4.", true),
            AnswerRest::Apart("It is 4.")
        );
    }

    #[test]
    fn a_streamed_answer_ends_before_a_stop() {
        let stops = StopTexts::read(&json!("END")).unwrap();
        let mut answer_stream = AnswerStream::new(Contract::Tools).stopping(stops);
        assert_eq!(answer_stream.push("It is 4.E"), "It is 4.");
        assert_eq!(answer_stream.push("ND and more"), "");
        let rest = answer_stream.rest("It is 4.", true);
        assert_eq!(rest, AnswerRest::More(""));
    }

    #[test]
    fn missing_text_is_completed_at_the_end() {
        let mut answer_stream = AnswerStream::new(Contract::Schema);
        answer_stream.push(r#"{"output": "Hel"#);
        assert_eq!(answer_stream.rest("Hello", true), AnswerRest::More("lo"));
        let other = answer_stream.rest("Other", true);
        assert_eq!(other, AnswerRest::Contradiction);
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
