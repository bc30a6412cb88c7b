//! Reads one value, and notes what had to be repaired.

use super::RepairKind;
use super::{TextEnd, is_odd_space};
use crate::depth::MAX_DEPTH;
use crate::numbers;
use crate::rules::ReadingRules;
use crate::string::{StringDecoder, StringPart};
use serde_json::{Map, Value};

pub(super) struct RepairReader<'a> {
    pub(super) rest: &'a str,
    pub(super) end: TextEnd,
    pub(super) rules: ReadingRules,
    pub(super) repairs: Vec<RepairKind>,
}

impl RepairReader<'_> {
    pub(super) fn note(&mut self, repair: RepairKind) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Option<()> {
        loop {
            let rest = self.rest.trim_start();
            let skipped = &self.rest[..self.rest.len() - rest.len()];
            if is_odd_space(skipped) {
                self.note(RepairKind::OddSpace);
            }
            self.rest = rest;
            let comment = if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else if self.rest.starts_with("/*") {
                self.rest.find("*/")? + 2
            } else {
                return Some(());
            };
            self.rest = &self.rest[comment..];
            self.note(RepairKind::Comment);
        }
    }

    pub(super) fn value(&mut self, depth: usize) -> Option<Value> {
        self.space()?;
        match self.peek()? {
            '{' | '[' if depth >= MAX_DEPTH => None,
            '{' => self.object(depth).map(Value::Object),
            '[' => self.list(depth).map(Value::Array),
            '"' | '\'' | '“' | '”' | '‘' | '’' => self.string().map(Value::String),
            '-' | '+' | '.' | '0'..='9' => self.number(),
            _ => self.literal(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        self.next();
        let mut fields = Map::new();
        loop {
            if self.is_closed('}', fields.is_empty())? {
                return Some(fields);
            }
            let key = match self.peek()? {
                '"' | '\'' | '“' | '”' | '‘' | '’' => self.string()?,
                _ => self.bare_key()?,
            };
            self.space()?;
            if !self.take(":") {
                return None;
            }
            let value = self.value(depth + 1)?;
            match fields.get(&key) {
                Some(known) if *known != value => return None,
                Some(_) => self.note(RepairKind::DoubledKey),
                None => {}
            }
            fields.insert(key, value);
        }
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        self.next();
        let mut items = Vec::new();
        loop {
            if self.is_closed(']', items.is_empty())? {
                return Some(items);
            }
            items.push(self.value(depth + 1)?);
        }
    }

    /// Reads what may stand between two members: nothing before the first, one comma between others.
    /// Whether the container ends here.
    fn is_closed(&mut self, bracket: char, is_first: bool) -> Option<bool> {
        self.space()?;
        let has_comma = !is_first && self.take(",");
        self.space()?;
        match self.peek() {
            Some(next) if next == bracket => {
                self.next();
                if has_comma {
                    self.note(RepairKind::TrailingComma);
                }
                Some(true)
            }
            Some('}' | ']' | ',') => None,
            Some(_) => {
                if !is_first && !has_comma {
                    self.note(RepairKind::MissingComma);
                }
                Some(false)
            }
            // In an empty container the first member may be missing.
            None if self.end == TextEnd::Own && !has_comma && !is_first => {
                self.note(RepairKind::Unclosed);
                Some(true)
            }
            None => None,
        }
    }

    fn bare_key(&mut self) -> Option<String> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.')))?;
        let (key, rest) = self.rest.split_at(end);
        if key.is_empty() {
            return None;
        }
        self.rest = rest;
        self.note(RepairKind::BareKey);
        Some(key.to_owned())
    }

    fn string(&mut self) -> Option<String> {
        let close: &[char] = match self.next()? {
            '"' => &['"'],
            '\'' => {
                self.note(RepairKind::SingleQuotes);
                &['\'']
            }
            '“' | '”' => {
                self.note(RepairKind::SmartQuotes);
                &['”', '“']
            }
            _ => {
                self.note(RepairKind::SmartQuotes);
                &['’', '‘']
            }
        };
        let mut text = String::new();
        let mut decoder = StringDecoder::default();
        loop {
            let c = match decoder.next(&mut self.rest)? {
                StringPart::Plain(c) if close.contains(&c) => return Some(text),
                StringPart::Plain(c) => {
                    if c < ' ' {
                        self.note(RepairKind::LineBreakInText);
                    }
                    c
                }
                StringPart::Escaped(c) => c,
                StringPart::Stray('\'') => {
                    self.note(RepairKind::EscapedSingleQuote);
                    '\''
                }
                // `\d` of a regular expression: nothing else can be meant.
                StringPart::Stray(c) => {
                    self.note(RepairKind::StrayBackslash);
                    text.push('\\');
                    c
                }
                StringPart::HalfPair(_) | StringPart::CutUnit => return None,
            };
            text.push(c);
        }
    }

    fn number(&mut self) -> Option<Value> {
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        // At the end of the text there may have been more digits.
        let end = self.rest.find(|c| !belongs(c))?;
        let (written, rest) = self.rest.split_at(end);
        let value = match serde_json::from_str(written) {
            Ok(value) => {
                numbers::check_literal_under(self.rules, written).ok()?;
                value
            }
            Err(_) => {
                let plain = written.strip_prefix('+').unwrap_or(written);
                let zero = if plain.starts_with('.') { "0" } else { "" };
                let plain = format!("{zero}{}", plain.strip_suffix('.').unwrap_or(plain));
                let value = serde_json::from_str(&plain).ok()?;
                numbers::check_literal_under(self.rules, &plain).ok()?;
                self.note(RepairKind::OddNumber);
                value
            }
        };
        self.rest = rest;
        Some(value)
    }

    fn literal(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric())?;
        let (word, rest) = self.rest.split_at(end);
        let value = match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => return None,
        };
        if word.starts_with(char::is_uppercase) {
            self.note(RepairKind::PythonLiteral);
        }
        self.rest = rest;
        Some(value)
    }
}
