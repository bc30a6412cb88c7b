//! The solution object of the `schema` contract, member by member.

use super::{Piece, call_object};
use serde_json::Value;
use std::collections::HashSet;
use std::mem;
use toolhold_json::scan::{SPACE, Scan};

/// The member whose elements are given out one by one.
const CALLS: &str = "calls";

/// Takes the text of one solution (docs/protocol.md, 4).
#[derive(Debug, Default)]
pub(in crate::contract) struct SolutionReader {
    place: Place,
    /// The value that is being read; where it stands is `place`.
    scan: Option<Scan>,
    names: HashSet<String>,
    calls: usize,
}

#[derive(Debug, Default)]
enum Place {
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
    /// Takes the next text.
    ///
    /// # Errors
    /// What is wrong with it. Nothing more may be pushed then.
    pub(in crate::contract) fn push(
        &mut self,
        mut text: &str,
        out: &mut Vec<Piece>,
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
            Place::Colon(name) | Place::Value(name) => name.len(),
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
            Place::BeforeObject | Place::AfterObject => text.trim_start(),
            _ => text.trim_start_matches(SPACE),
        };
        let mut rest = text.chars();
        let Some(first) = rest.next() else {
            return Ok("");
        };
        let (place, outside) = match (mem::take(&mut self.place), first) {
            (Place::BeforeObject, '{') => (Place::FirstName, None),
            (Place::FirstName | Place::AfterValue, '}') => (Place::AfterObject, None),
            (Place::Colon(name), ':') => (Place::Value(name), None),
            (Place::Value(name), '[') if name == CALLS => (Place::FirstCall, None),
            (place @ (Place::FirstName | Place::Name), '"') | (place @ Place::Value(_), _) => {
                (place, Some(1))
            }
            (Place::FirstCall | Place::AfterCall, ']') => (Place::AfterValue, None),
            (place @ (Place::FirstCall | Place::Call), '{') => (place, Some(2)),
            (Place::AfterCall, ',') => (Place::Call, None),
            (Place::AfterValue, ',') => (Place::Name, None),
            _ => return Err(format!("{first:?} is unexpected where it stands")),
        };
        self.place = place;
        match outside {
            None => Ok(rest.as_str()),
            Some(outside) => {
                self.scan = Some(Scan::new(outside));
                Ok(text)
            }
        }
    }

    /// Takes the value that stands at `place`.
    fn take(&mut self, value: Value, out: &mut Vec<Piece>) -> Result<(), String> {
        self.place = match (mem::take(&mut self.place), value) {
            (Place::FirstName | Place::Name, Value::String(name)) => {
                if !self.names.insert(name.clone()) {
                    return Err(format!("{name:?} is there twice; write it once"));
                }
                Place::Colon(name)
            }
            (Place::Value(name), value) if name != CALLS => {
                out.push(Piece::Field { name, value });
                Place::AfterValue
            }
            (Place::Value(_), Value::Null) => Place::AfterValue,
            (Place::FirstCall | Place::Call, Value::Object(mut call)) => {
                let Some(Value::String(tool)) = call.shift_remove("_tool") else {
                    return Err("a call lacks \"_tool\", the name of the tool to call".into());
                };
                out.push(Piece::Call {
                    index: self.calls,
                    call: call_object(tool, call),
                });
                self.calls += 1;
                Place::AfterCall
            }
            _ => return Err("\"calls\" must be a list".into()),
        };
        Ok(())
    }
}
