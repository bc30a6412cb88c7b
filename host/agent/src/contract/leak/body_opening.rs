//! Whether the text behind the mark of a call may still become a call, for readers who are shown a reply while it is written.
//!
//! A text that [`inside`](super::inside) reads as calls, when the reply is complete, begins in one of two ways:
//!
//! - with the first characters of a form: JSON, a fence, the tag of a call, `call:`, a message of Harmony, and in a list the mark
//!   of a call;
//! - with the name of a tool, which is one word ([`is_one_word`](super::body::is_one_word)), and one of [`BEHIND_NAME`] behind
//!   it: arguments begin with these, and so do all marks.
//!
//! No other text begins a call, with any text behind it. Each character is read once, however small the pieces are.

use super::bare_opening::OfferedNames;
use super::framed::FENCE;
use super::gemma::CALL;
use super::marks::{Mark, is_begun, opening, past_around};
use super::tags;
use crate::contract::harmony::{self, HeaderMatch};
use std::mem;
use toolhold_json::rules::ReadingRules;

/// The rules by which a reply that is written now is read.
const RULES: ReadingRules = ReadingRules::Current;
/// First characters of what may follow the name of a tool.
const BEHIND_NAME: [char; 5] = ['(', '{', '[', '<', '`'];

/// The kind of the text behind a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// There is too little of it to tell.
    Undecided,
    /// Perhaps a call, which the complete reply shows.
    Call,
    /// No call.
    Other,
}

/// The beginning of the text behind a mark. A mark that holds the name of the tool is part of the text.
#[derive(Debug, Clone)]
pub(super) struct BodyOpening {
    /// The tools that may be called.
    names: OfferedNames,
    /// True if calls with marks of their own may stand in it.
    is_list: bool,
    form: FormOpening,
    /// Absent where the text begins with no name.
    name: Option<NameOpening>,
}

/// The beginning of a form other than a name.
#[derive(Debug, Clone, Default)]
enum FormOpening {
    /// The text so far, with which a form may begin.
    Begun(String),
    /// The name in the tag of a call.
    Tag(NameOpening),
    /// The header of a message of Harmony.
    Header(String),
    #[default]
    Other,
}

impl BodyOpening {
    pub(super) fn of(mark: &Mark, names: OfferedNames) -> Self {
        Self {
            names,
            is_list: mark.is_list,
            form: FormOpening::Begun(String::new()),
            name: Some(NameOpening::default()),
        }
    }

    /// Takes the next character, and returns the kind of the text so far.
    pub(super) fn push(&mut self, c: char) -> BodyKind {
        match (self.push_form(c), self.push_name(c)) {
            (BodyKind::Call, _) | (_, BodyKind::Call) => BodyKind::Call,
            (BodyKind::Other, BodyKind::Other) => BodyKind::Other,
            _ => BodyKind::Undecided,
        }
    }

    fn push_form(&mut self, c: char) -> BodyKind {
        let (form, kind) = match mem::take(&mut self.form) {
            FormOpening::Begun(head) => begun(head, c, self.is_list),
            FormOpening::Tag(name) => tagged(name, c, &self.names),
            FormOpening::Header(head) => header(head, c),
            FormOpening::Other => (FormOpening::Other, BodyKind::Other),
        };
        self.form = form;
        kind
    }

    fn push_name(&mut self, c: char) -> BodyKind {
        let Some(name) = &mut self.name else {
            return BodyKind::Other;
        };
        if BEHIND_NAME.contains(&c) && name.may_be_of(&self.names) {
            return BodyKind::Call;
        }
        if name.push(c) {
            return BodyKind::Undecided;
        }
        self.name = None;
        BodyKind::Other
    }
}

/// Returns the form that the text `head`, with `c` behind it, begins with.
fn begun(mut head: String, c: char, is_list: bool) -> (FormOpening, BodyKind) {
    if head.is_empty() && c.is_whitespace() {
        return (FormOpening::Begun(head), BodyKind::Undecided);
    }
    head.push(c);
    let text = head.as_str();
    let has_mark = || opening(RULES, text).is_some() || past_around(RULES, text).is_empty();
    if ["{", "[", FENCE, CALL].contains(&text) || (is_list && has_mark()) {
        return (FormOpening::Other, BodyKind::Call);
    }
    if tags::openings(RULES).any(|tag| tag == text) {
        let name = NameOpening::default();
        return (FormOpening::Tag(name), BodyKind::Undecided);
    }
    if harmony::MARKS.contains(&text) {
        return (FormOpening::Header(head), BodyKind::Undecided);
    }
    let words = [FENCE, CALL].into_iter().chain(harmony::MARKS);
    let mut forms = words.chain(tags::openings(RULES));
    if forms.any(|form| form.starts_with(text)) || (is_list && is_begun(RULES, text)) {
        (FormOpening::Begun(head), BodyKind::Undecided)
    } else {
        (FormOpening::Other, BodyKind::Other)
    }
}

/// Returns the form of a text in the tag of a call, where `c` stands behind `name`.
fn tagged(mut name: NameOpening, c: char, names: &OfferedNames) -> (FormOpening, BodyKind) {
    // Broken tags lack their end before the arguments, and other marks may stand in them.
    if c == '{' || (['>', '<', '['].contains(&c) && name.may_be_of(names)) {
        (FormOpening::Other, BodyKind::Call)
    } else if c != '>' && name.push(c) {
        (FormOpening::Tag(name), BodyKind::Undecided)
    } else {
        (FormOpening::Other, BodyKind::Other)
    }
}

/// Returns the form of a text that begins with a mark of Harmony: `head`, with `c` behind it.
fn header(mut head: String, c: char) -> (FormOpening, BodyKind) {
    head.push(c);
    let kind = if c == '{' {
        BodyKind::Call
    } else if c == '>' || head.len() >= harmony::MAX_OPENING {
        // With one of both a header ends.
        match harmony::begins(&head) {
            HeaderMatch::With(header) if header.recipient.is_some() => BodyKind::Call,
            HeaderMatch::With(_) | HeaderMatch::WithNone => BodyKind::Other,
            HeaderMatch::Open => BodyKind::Undecided,
        }
    } else if c.is_whitespace() && !harmony::may_have_channel(&head) {
        BodyKind::Other
    } else {
        BodyKind::Undecided
    };
    if kind == BodyKind::Undecided {
        (FormOpening::Header(head), kind)
    } else {
        (FormOpening::Other, kind)
    }
}

/// The name of a tool, which is one word, perhaps with white space around it.
#[derive(Debug, Clone, Default)]
struct NameOpening {
    has_text: bool,
    /// True behind the word and white space.
    is_ended: bool,
    /// Letters and digits of the word, as names are compared.
    letters: String,
    /// Bytes of the letters before the number that may stand behind a name: `NAME:0`.
    before_number: Option<usize>,
}

impl NameOpening {
    /// Takes the next character. Returns false if a second word begins with it.
    fn push(&mut self, c: char) -> bool {
        if c.is_whitespace() {
            self.is_ended = self.has_text;
            return true;
        }
        self.has_text = true;
        if c == ':' {
            self.before_number = Some(self.letters.len());
        } else if c.is_alphanumeric() {
            if !c.is_ascii_digit() {
                self.before_number = None;
            }
            self.letters.extend(c.to_lowercase());
        }
        !self.is_ended
    }

    /// Whether the word may mean a tool.
    fn may_be_of(&self, names: &OfferedNames) -> bool {
        let before_number = self.before_number.and_then(|end| self.letters.get(..end));
        let mut spellings = [Some(self.letters.as_str()), before_number]
            .into_iter()
            .flatten();
        self.has_text && spellings.any(|letters| names.may_end(letters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::leak::body::CallableNames;
    use crate::contract::leak::inside;
    use crate::contract::leak::marks::marks;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::sync::Arc;
    use toolhold_json::repair::TextEnd;
    use toolhold_protocol::function_names::ToolNames;
    use toolhold_protocol::tool::Tool;

    const TOOLS: [&str; 3] = ["weather.now", "news", "a_b.c_d"];

    /// The kind of a text behind a mark, and the bytes of it that tell.
    fn kind(mark: &Mark, text: &str) -> (BodyKind, usize) {
        let mut body = BodyOpening::of(mark, OfferedNames::of(TOOLS));
        for (at, c) in text.char_indices() {
            let kind = body.push(c);
            if kind != BodyKind::Undecided {
                return (kind, at + c.len_utf8());
            }
        }
        (BodyKind::Undecided, text.len())
    }

    fn known(open: &str) -> &'static Mark {
        marks(RULES).find(|mark| mark.open == open).unwrap()
    }

    #[test]
    fn prose_behind_a_mark_is_known_by_its_first_words() {
        for (open, text, told) in [
            ("<tool_call>", " opens a call.", " opens a"),
            ("<tool_call>", ", which opens a call", ", w"),
            ("<tool_call>", "` is Hermes's.", "` i"),
            ("<tool_call>", " and </tool_call> are", " and <"),
            ("<tool_call>", "</tool_call> are", "</tool_call> a"),
            ("<tool_call>", " (Hermes) is", " (Hermes) i"),
            ("<tool_call>", "call it", "call i"),
            ("[TOOL_CALLS]", "\" is Mistral's", "\" i"),
            ("<tool_calls>", " is a list", " is a"),
            ("<function=", "<function=NAME>{", "<function=NAME>{"),
            ("<function=", "<function=NAME> is", "<function=NAME> i"),
            ("<function=", "<function= opens a", "<function= opens a"),
            ("<|channel|>", "<|channel|> is one", "<|channel|> is "),
            ("<|channel|>", "<|channel|>x y", "<|channel|>x y"),
            (
                "<|channel|>",
                "<|channel|>final<|message|> It",
                "<|channel|>final<|message|> I",
            ),
        ] {
            let mark = known(open);
            let (kind, bytes) = kind(mark, text);
            // A word with brackets goes on to its end.
            let is_open = text.ends_with('{');
            let expected = if is_open {
                BodyKind::Undecided
            } else {
                BodyKind::Other
            };
            assert_eq!((kind, &text[..bytes]), (expected, told), "{open}{text}");
        }
    }

    #[test]
    fn a_call_behind_a_mark_is_known_by_its_first_characters() {
        for (open, text) in [
            ("<tool_call>", "\n{"),
            ("<tool_call>", "\n```"),
            ("<tool_call>", "news<"),
            ("<tool_call>", "\"news\" <"),
            ("<tool_call>", "tools.weather-now ("),
            ("<tool_call>", "functions.news:0{"),
            ("<tool_call>", "print("),
            ("<tool_call>", "read_result{"),
            ("<tool_call>", "finish_solution{"),
            ("<tool_call>", "call:"),
            ("<tool_call>", "<function=news>"),
            ("<tool_call>", "<｜DSML｜invoke name=\"weather-now\">"),
            ("<tool_calls>", "<tool_call>"),
            ("<tool_calls>", "</s>"),
            ("<｜tool▁call▁begin｜>", "function<"),
            (
                "<|channel|>",
                "<|channel|>commentary to=news <|constrain|>json<|message|>",
            ),
            (
                "<|start|>assistant",
                "<|start|>assistant to=news<|channel|>commentary<|message|>",
            ),
        ] {
            let found = kind(known(open), text);
            assert_eq!(found, (BodyKind::Call, text.len()), "{open}{text}");
        }
    }

    /// Without known names, each word may be one.
    #[test]
    fn a_brace_behind_a_mark_begins_arguments_where_no_names_are_known() {
        for text in [
            "{",
            " other{",
            " other {",
            "<function=other>",
            "-{",
            "<function={",
        ] {
            let mut body = BodyOpening::of(known("<tool_call>"), OfferedNames::default());
            let mut kind = BodyKind::Undecided;
            for c in text.chars() {
                kind = body.push(c);
            }
            assert_eq!(kind, BodyKind::Call, "{text}");
        }
    }

    proptest! {
        /// Text that is read as calls is prose neither while it comes nor when it is complete.
        #[test]
        fn a_text_that_is_read_as_calls_is_never_taken_for_prose(
            parts in prop::collection::vec(select(vec![
                "{\"name\": \"news\", \"arguments\": {}}", "[{\"name\": \"news\"}]", "{}", "{\"q\": 1}", "[", "]", "(", ")", "q=1",
                "news", "weather_now", "weather-now", "functions.news:0", "to=news", "print", "default_api.", "function", "Then ",
                "`", "```", "```json\n", "\"", ":", "é", " ", "\n", "call:news{", "}", "[ARGS]", "[CALL_ID]", "<tool_sep>",
                "<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "<arg_key>q</arg_key>", "<arg_value>1</arg_value>", "<function=",
                "<function=news>", "</function>", "<invoke name=\"news\">", "</invoke>", "<parameter=q>1</parameter>", "<tool_call>",
                "</tool_call>", "</s>", "<|im_end|>", "<|channel|>", "<|start|>assistant", "commentary", "analysis",
                " to=functions.news", "<|constrain|>json", "<|message|>", "<|call|>",
            ]), 0..8),
            mark in select(marks(RULES).collect::<Vec<_>>()),
        ) {
            let tools = TOOLS.map(|name| Arc::new(Tool::new(name)));
            let names = Arc::new(ToolNames::new(&tools, &[]));
            let body = if mark.is_named { mark.open } else { "" }.to_owned() + &parts.concat();
            for offer in [CallableNames::of(&tools), CallableNames::of(&tools).named(Some(&names))] {
                if inside(mark, &body, &offer, TextEnd::Own).is_some() {
                    let (kind, _) = kind(mark, &body);
                    prop_assert_ne!(kind, BodyKind::Other, "{}{:?}", mark.open, body);
                }
            }
        }
    }
}
