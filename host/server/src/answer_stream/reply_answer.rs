//! The answer in the text of one reply: that text, or a string of its JSON.

use std::mem;
use toolhold_agent::contract::{CallSearch, OfferedNames, ReplyOpening};
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_protocol::contract::Contract;

/// The member of an object that holds the answer of the simple contract.
const FINAL_ANSWER: &str = "final_answer";
/// Members that hold the answer of the schema contract, which also takes an object of the simple one.
const ANSWERS: [&str; 2] = ["output", FINAL_ANSWER];
/// Members with calls. Beside these there is no answer.
const CALLS: &str = "calls";
const TOOL_NAME: &str = "tool_name";
/// Length bound of a member's name while it is read; a longer name is none of these.
const MAX_NAME: usize = 32;

/// The answer in the text of one reply without its thoughts.
#[derive(Debug, Default)]
pub(super) struct ReplyAnswer {
    /// The tools that it may call.
    names: OfferedNames,
    /// Kind of the text that the reply begins with.
    opening: ReplyOpening,
    /// Finds the marks of calls behind its begin.
    search: CallSearch,
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

/// The string that is read now.
#[derive(Debug, Default, Clone, Copy)]
enum JsonString {
    /// The name of a member of the outermost object.
    Name,
    Answer,
    #[default]
    Other,
}

impl ReplyAnswer {
    pub(super) fn new(names: OfferedNames) -> Self {
        Self {
            search: CallSearch::of(names.clone()),
            names,
            ..Self::default()
        }
    }

    /// True if its text ends at what may be a call.
    pub(super) fn ends_at_call(&self) -> bool {
        self.opening == ReplyOpening::Marks
    }

    pub(super) fn push(&mut self, contract: Contract, text: &str, answer: &mut String) {
        let Some(text) = self.past_opening(contract, text) else {
            return;
        };
        match contract {
            Contract::Tools => self.pass(text, answer),
            Contract::Schema => self.read_json(&ANSWERS, &text, answer),
            Contract::Simple => self.read_json(&[FINAL_ANSWER], &text, answer),
        }
    }

    /// The text with what was held of the reply's begin, once that is known to be no call. Forms of calls without a mark are
    /// looked for where an answer is text: an object in another contract is its solution.
    fn past_opening(&mut self, contract: Contract, text: &str) -> Option<String> {
        if self.opening == ReplyOpening::Marks {
            return None;
        }
        self.held.push_str(text);
        if self.opening == ReplyOpening::Undecided {
            self.opening = match contract {
                Contract::Tools => self.names.opening_of(&self.held),
                Contract::Schema | Contract::Simple => ReplyOpening::before_json(&self.held),
            };
            if self.opening == ReplyOpening::Text {
                self.held = self.held.trim_start().to_owned();
            }
        }
        match self.opening {
            ReplyOpening::Undecided => None,
            ReplyOpening::Marks => {
                self.held.clear();
                None
            }
            ReplyOpening::Text => Some(mem::take(&mut self.held)),
        }
    }

    /// Passes on a text, up to the mark of a call and to white space at the end.
    fn pass(&mut self, mut text: String, answer: &mut String) {
        let prose = self.search.pass(&text);
        self.held = if prose.bytes == 0 {
            mem::take(&mut text)
        } else {
            text.split_off(prose.bytes)
        };
        if prose.is_before_call {
            self.opening = ReplyOpening::Marks;
            self.held.clear();
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

    pub(super) fn finish(&mut self, contract: Contract, answer: &mut String) {
        // The name of a tool alone is a call, too.
        if self.search.is_at_call() {
            self.opening = ReplyOpening::Marks;
            self.held.clear();
        }
        let text = mem::take(&mut self.held);
        let text = text.trim();
        // Without a whole mark there is no object behind it.
        if contract == Contract::Tools && !text.is_empty() {
            answer.push_str(&self.blanks);
            answer.push_str(text);
        }
        self.blanks.clear();
    }

    /// Reads objects, and the text before them up to the mark of a call: arguments of a call are no answer.
    fn read_json(&mut self, answers: &[&str], mut text: &str, answer: &mut String) {
        while !self.is_over && !text.is_empty() {
            if self.depth > 0 {
                self.read_object(answers, &mut text, answer);
                continue;
            }
            // No mark has a brace, and a brace behind one decides: what is held has none.
            let end = text.find('{').map_or(text.len(), |at| at + 1);
            let (head, rest) = text.split_at_checked(end).unwrap_or((text, ""));
            let prose = self.search.pass_before_json(head);
            if prose.is_before_call {
                self.opening = ReplyOpening::Marks;
                return;
            }
            let (mut passed, held) = head.split_at_checked(prose.bytes).unwrap_or((head, ""));
            self.held.push_str(held);
            while !self.is_over && !passed.is_empty() {
                self.read_object(answers, &mut passed, answer);
            }
            text = rest;
        }
    }

    /// Takes the strings of these members of the outermost object, up to its end.
    fn read_object(&mut self, answers: &[&str], text: &mut &str, answer: &mut String) {
        while !self.is_over
            && let Some(token) = self.lexer.next(text)
        {
            match token {
                JsonToken::Between('{' | '[') => {
                    self.depth += 1;
                    self.has_calls |= self.depth > 2 && self.name == CALLS;
                }
                JsonToken::Between('}' | ']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return;
                    }
                }
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
