//! The solution object of the `schema` contract, member by member.

use super::{ReplyPart, call_object};
use serde_json::Value;
use std::collections::HashSet;
use std::mem;
use toolhold_json::rules::ReadingRules;
use toolhold_json::scan::{SPACE, Scan};

/// The member whose elements are given out one by one.
const CALLS: &str = "calls";

/// Takes the text of one solution (docs/protocol.md, 4).
#[derive(Debug, Clone, Default)]
pub(in crate::contract) struct SolutionReader {
    place: SolutionPosition,
    /// The value that is being read; where it stands is `place`.
    scan: Option<Scan>,
    names: HashSet<String>,
    calls: usize,
    rules: ReadingRules,
}

#[derive(Debug, Clone, Default)]
enum SolutionPosition {
    #[default]
    BeforeObject,
    /// Where an object or a list may end that has no element yet.
    FirstName,
    Name,
    Colon(String),
    Value(String),
    FirstCall,
    Call,
    AfterCall,
    AfterValue,
    AfterObject,
}

impl SolutionReader {
    pub(in crate::contract) fn under(rules: ReadingRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Takes the next text.
    ///
    /// # Errors
    /// What is wrong with it. Nothing more may be pushed then.
    pub(in crate::contract) fn push(
        &mut self,
        mut text: &str,
        out: &mut Vec<ReplyPart>,
    ) -> Result<(), String> {
        while !text.is_empty() {
            text = match &mut self.scan {
                None => self.token(text)?,
                Some(scan) => match scan.push(text)? {
                    None => "",
                    Some((value, rest)) => {
                        self.scan = None;
                        self.take(value, out)?;
                        rest
                    }
                },
            };
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let place = match &self.place {
            SolutionPosition::Colon(name) | SolutionPosition::Value(name) => name.len(),
            _ => 0,
        };
        let names: usize = self.names.iter().map(String::len).sum();
        place + names + self.scan.as_ref().map_or(0, Scan::held)
    }

    /// Takes white space and then one character of structure, or finds that a value begins. Returns
    /// the rest.
    fn token<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let text = match self.place {
            // Around the object any white space goes, as in [`Solution::parse`].
            SolutionPosition::BeforeObject | SolutionPosition::AfterObject => text.trim_start(),
            _ => text.trim_start_matches(SPACE),
        };
        let mut rest = text.chars();
        let Some(first) = rest.next() else {
            return Ok("");
        };
        let (place, outside) = match (mem::take(&mut self.place), first) {
            (SolutionPosition::BeforeObject, '{') => (SolutionPosition::FirstName, None),
            (SolutionPosition::FirstName | SolutionPosition::AfterValue, '}') => {
                (SolutionPosition::AfterObject, None)
            }
            (SolutionPosition::Colon(name), ':') => (SolutionPosition::Value(name), None),
            (SolutionPosition::Value(name), '[') if name == CALLS => {
                (SolutionPosition::FirstCall, None)
            }
            (place @ (SolutionPosition::FirstName | SolutionPosition::Name), '"')
            | (place @ SolutionPosition::Value(_), _) => (place, Some(1)),
            (SolutionPosition::FirstCall | SolutionPosition::AfterCall, ']') => {
                (SolutionPosition::AfterValue, None)
            }
            (place @ (SolutionPosition::FirstCall | SolutionPosition::Call), '{') => {
                (place, Some(2))
            }
            (SolutionPosition::AfterCall, ',') => (SolutionPosition::Call, None),
            (SolutionPosition::AfterValue, ',') => (SolutionPosition::Name, None),
            _ => return Err(format!("{first:?} is unexpected where it stands")),
        };
        self.place = place;
        match outside {
            None => Ok(rest.as_str()),
            Some(outside) => {
                self.scan = Some(Scan::new(outside).under(self.rules));
                Ok(text)
            }
        }
    }

    /// Takes the value that stands at `place`.
    fn take(&mut self, value: Value, out: &mut Vec<ReplyPart>) -> Result<(), String> {
        self.place = match (mem::take(&mut self.place), value) {
            (SolutionPosition::FirstName | SolutionPosition::Name, Value::String(name)) => {
                if !self.names.insert(name.clone()) {
                    return Err(format!("{name:?} is there twice; write it once"));
                }
                SolutionPosition::Colon(name)
            }
            (SolutionPosition::Value(name), value) if name != CALLS => {
                out.push(ReplyPart::Field { name, value });
                SolutionPosition::AfterValue
            }
            (SolutionPosition::Value(_), Value::Null) => SolutionPosition::AfterValue,
            (SolutionPosition::FirstCall | SolutionPosition::Call, Value::Object(mut call)) => {
                let Some(Value::String(tool)) = call.shift_remove("_tool") else {
                    return Err("a call lacks \"_tool\", the name of the tool to call".into());
                };
                out.push(ReplyPart::Call {
                    index: self.calls,
                    call: call_object(tool, call),
                });
                self.calls += 1;
                SolutionPosition::AfterCall
            }
            _ => return Err("\"calls\" must be a list".into()),
        };
        Ok(())
    }
}
