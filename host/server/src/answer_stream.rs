//! The final answer while it is written: what of a model's pieces is text that a client may read already.
//!
//! In the schema contract the answer is the string `output` of a JSON object, in the simple one
//! `final_answer`; in the tools contract it is the text itself. What was said is always the beginning of
//! the answer where the model keeps its contract; where it does not, [`AnswerStream::rest`] makes up for it.

use toolhold_protocol::contract::Contract;

/// Names under which an object holds the answer.
const ANSWERS: [&str; 2] = ["output", "final_answer"];
/// A longer name is none of those.
const MAX_NAME: usize = 32;

/// Follows the replies of a run, one after the other.
#[derive(Debug)]
pub struct AnswerStream {
    is_text: bool,
    place: Place,
    depth: usize,
    /// The member of the outermost object that is being read.
    name: String,
    string: Characters,
    /// Of this reply.
    said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of every string.
    Between,
    /// In a string that is the name of a member of the outermost object.
    Name,
    Other,
    Answer,
    /// After the answer, or in something that is no JSON.
    Over,
}

/// The characters of a JSON string, one after the other.
#[derive(Debug, Default)]
struct Characters {
    is_escaped: bool,
    /// Of a `\u` escape.
    digits: Option<String>,
    high: Option<u16>,
}

enum Read {
    Character(char),
    Nothing,
    End,
    Malformed,
}

impl AnswerStream {
    pub fn new(contract: Contract) -> Self {
        Self {
            is_text: contract == Contract::Tools,
            place: Place::Between,
            depth: 0,
            name: String::new(),
            string: Characters::default(),
            said: String::new(),
        }
    }

    /// Another reply begins: what was said of the one before was no answer.
    pub fn restart(&mut self) {
        let contract = if self.is_text {
            Contract::Tools
        } else {
            Contract::Schema
        };
        *self = Self::new(contract);
    }

    /// Takes what the model wrote next, and gives what of it belongs to the answer.
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

    /// What is missing from what was said, now that the whole answer is known.
    pub fn rest<'a>(&self, answer: &'a str) -> Rest<'a> {
        match answer.strip_prefix(self.said.as_str()) {
            Some(rest) => Rest::More(rest),
            None => Rest::Instead(answer),
        }
    }

    fn read(&mut self, c: char, answer: &mut String) {
        match self.place {
            Place::Between => match c {
                '"' => {
                    self.string = Characters::default();
                    self.place = if self.depth != 1 {
                        Place::Other
                    } else if self.name.is_empty() {
                        Place::Name
                    } else if ANSWERS.contains(&self.name.as_str()) {
                        Place::Answer
                    } else {
                        Place::Other
                    };
                }
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                ',' if self.depth == 1 => self.name.clear(),
                _ => {}
            },
            Place::Over => {}
            Place::Name | Place::Other | Place::Answer => match self.string.read(c) {
                Read::Character(c) => match self.place {
                    Place::Answer => answer.push(c),
                    Place::Name if self.name.len() < MAX_NAME => self.name.push(c),
                    _ => {}
                },
                Read::Nothing => {}
                Read::End if self.place == Place::Answer => self.place = Place::Over,
                Read::End => self.place = Place::Between,
                Read::Malformed => self.place = Place::Over,
            },
        }
    }
}

/// How an answer that was said in part is completed.
#[derive(Debug, PartialEq, Eq)]
pub enum Rest<'a> {
    More(&'a str),
    /// What was said is not how it begins: this is all of it.
    Instead(&'a str),
}

impl Characters {
    fn read(&mut self, c: char) -> Read {
        if let Some(digits) = &mut self.digits {
            digits.push(c);
            if digits.len() < 4 {
                return Read::Nothing;
            }
            let unit = u16::from_str_radix(digits, 16);
            self.digits = None;
            return unit.map_or(Read::Malformed, |unit| self.unit(unit));
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
                    return Read::Nothing;
                }
                _ => return Read::Malformed,
            };
            return Read::Character(c);
        }
        match c {
            '\\' => {
                self.is_escaped = true;
                Read::Nothing
            }
            '"' => Read::End,
            c => Read::Character(c),
        }
    }

    /// A UTF-16 code unit; characters outside of the basic plane come as two.
    fn unit(&mut self, unit: u16) -> Read {
        match self.high.take() {
            Some(high) => match char::decode_utf16([high, unit]).next() {
                Some(Ok(c)) => Read::Character(c),
                _ => Read::Malformed,
            },
            None => match char::from_u32(u32::from(unit)) {
                Some(c) => Read::Character(c),
                None => {
                    self.high = Some(unit);
                    Read::Nothing
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
        assert_eq!(answer_stream.rest("Hello"), Rest::More("lo"));
        assert_eq!(answer_stream.rest("Other"), Rest::Instead("Other"));
        answer_stream.restart();
        assert_eq!(answer_stream.rest("Hello"), Rest::More("Hello"));
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
