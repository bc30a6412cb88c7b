//! Extracts the final answer from a model's reply while the reply is streamed.
//!
//! The answer is the string `output` of a JSON object in the schema contract, the string `final_answer` in
//! the simple contract, and the text itself in the tools contract. As long as the model keeps its contract,
//! the streamed text is a prefix of the answer; otherwise [`AnswerStream::rest`] returns the correction.

use toolhold_protocol::contract::Contract;

/// Members of an object that hold the answer.
const ANSWERS: [&str; 2] = ["output", "final_answer"];
/// Length bound of a member's name while it is read; a longer name is none of [`ANSWERS`].
const MAX_NAME: usize = 32;

/// Follows the replies of one run, in order.
#[derive(Debug)]
pub struct AnswerStream {
    is_text: bool,
    place: StreamPosition,
    depth: usize,
    /// The member of the outermost object that is being read.
    name: String,
    string: Characters,
    /// Text streamed of this reply.
    said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPosition {
    /// Outside of every string.
    Between,
    /// In the name of a member of the outermost object.
    Name,
    Other,
    Answer,
    /// After the answer, or in a text that is not JSON.
    Over,
}

/// Decodes a JSON string character by character.
#[derive(Debug, Default)]
struct Characters {
    is_escaped: bool,
    /// Hex digits of a `\u` escape.
    digits: Option<String>,
    high: Option<u16>,
}

enum CharRead {
    Character(char),
    Nothing,
    End,
    Malformed,
}

impl AnswerStream {
    pub fn new(contract: Contract) -> Self {
        Self {
            is_text: contract == Contract::Tools,
            place: StreamPosition::Between,
            depth: 0,
            name: String::new(),
            string: Characters::default(),
            said: String::new(),
        }
    }

    /// Starts the next reply. Text of the previous reply was not the answer.
    pub fn restart(&mut self) {
        let contract = if self.is_text {
            Contract::Tools
        } else {
            Contract::Schema
        };
        *self = Self::new(contract);
    }

    /// Takes the next piece of a reply, and returns its part of the answer.
    pub fn push(&mut self, text: &str) -> String {
        if self.is_text {
            self.said.push_str(text);
            return text.to_owned();
        }
        let mut answer = String::new();
        for c in text.chars() {
            self.read(c, &mut answer);
        }
        self.said.push_str(&answer);
        answer
    }

    /// The part of the final answer that was not streamed yet.
    pub fn rest<'a>(&self, answer: &'a str) -> AnswerRest<'a> {
        match answer.strip_prefix(self.said.as_str()) {
            Some(rest) => AnswerRest::More(rest),
            None => AnswerRest::Instead(answer),
        }
    }

    fn read(&mut self, c: char, answer: &mut String) {
        match self.place {
            StreamPosition::Between => match c {
                '"' => {
                    self.string = Characters::default();
                    self.place = if self.depth != 1 {
                        StreamPosition::Other
                    } else if self.name.is_empty() {
                        StreamPosition::Name
                    } else if ANSWERS.contains(&self.name.as_str()) {
                        StreamPosition::Answer
                    } else {
                        StreamPosition::Other
                    };
                }
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                ',' if self.depth == 1 => self.name.clear(),
                _ => {}
            },
            StreamPosition::Over => {}
            StreamPosition::Name | StreamPosition::Other | StreamPosition::Answer => {
                match self.string.read(c) {
                    CharRead::Character(c) => match self.place {
                        StreamPosition::Answer => answer.push(c),
                        StreamPosition::Name if self.name.len() < MAX_NAME => self.name.push(c),
                        _ => {}
                    },
                    CharRead::Nothing => {}
                    CharRead::End if self.place == StreamPosition::Answer => {
                        self.place = StreamPosition::Over;
                    }
                    CharRead::End => self.place = StreamPosition::Between,
                    CharRead::Malformed => self.place = StreamPosition::Over,
                }
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

impl Characters {
    fn read(&mut self, c: char) -> CharRead {
        if let Some(digits) = &mut self.digits {
            digits.push(c);
            if digits.len() < 4 {
                return CharRead::Nothing;
            }
            let unit = u16::from_str_radix(digits, 16);
            self.digits = None;
            return unit.map_or(CharRead::Malformed, |unit| self.unit(unit));
        }
        if self.is_escaped {
            self.is_escaped = false;
            let c = match c {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                '"' | '\\' | '/' => c,
                'u' => {
                    self.digits = Some(String::new());
                    return CharRead::Nothing;
                }
                _ => return CharRead::Malformed,
            };
            return CharRead::Character(c);
        }
        match c {
            '\\' => {
                self.is_escaped = true;
                CharRead::Nothing
            }
            '"' => CharRead::End,
            c => CharRead::Character(c),
        }
    }

    /// Takes a UTF-16 code unit; characters outside of the basic plane are two units.
    fn unit(&mut self, unit: u16) -> CharRead {
        match self.high.take() {
            Some(high) => match char::decode_utf16([high, unit]).next() {
                Some(Ok(c)) => CharRead::Character(c),
                _ => CharRead::Malformed,
            },
            None => match char::from_u32(u32::from(unit)) {
                Some(c) => CharRead::Character(c),
                None => {
                    self.high = Some(unit);
                    CharRead::Nothing
                }
            },
        }
    }
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
            ("no JSON at all", ""),
        ] {
            assert_eq!(said(Contract::Schema, &[reply]), answer, "{reply}");
            let letters: Vec<String> = reply.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(said(Contract::Schema, &letters), answer, "{reply}");
        }
        assert_eq!(said(Contract::Tools, &["plain ", "{text}"]), "plain {text}");
    }

    #[test]
    fn what_was_not_said_is_made_up_for() {
        let mut answer_stream = AnswerStream::new(Contract::Schema);
        answer_stream.push(r#"{"output": "Hel"#);
        assert_eq!(answer_stream.rest("Hello"), AnswerRest::More("lo"));
        assert_eq!(answer_stream.rest("Other"), AnswerRest::Instead("Other"));
        answer_stream.restart();
        assert_eq!(answer_stream.rest("Hello"), AnswerRest::More("Hello"));
    }

    proptest! {
        #[test]
        fn any_text_is_said_as_it_is(text in ".*", cuts in proptest::collection::vec(0usize..40, 0..20)) {
            let reply = json!({"calls": [], "output": text}).to_string();
            let mut answer_stream = AnswerStream::new(Contract::Schema);
            let (mut said, mut rest) = (String::new(), reply.as_str());
            for cut in cuts {
                let at = rest.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(rest.len());
                said += &answer_stream.push(&rest[..at]);
                rest = &rest[at..];
            }
            said += &answer_stream.push(rest);
            prop_assert_eq!(said, text);
        }
    }
}
