//! The function calls of the `tools` contract.

use super::{ReplyPart, SolutionPart};
use crate::contract::tools;
use serde_json::Value;
use std::sync::Arc;
use toolhold_json::rules::ReadingRules;
use toolhold_json::scan::{SPACE, Scan};
use toolhold_protocol::function_names::ToolNames;

/// Takes the fragments of function calls and gives out the calls in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct FunctionReader {
    slots: Vec<Slot>,
    /// Slots that were given out.
    given: usize,
    /// How many of them were calls of tools.
    calls: usize,
    /// The other members of the solution that were given.
    fields: Vec<&'static str>,
    pub(super) names: Option<Arc<ToolNames>>,
    rules: ReadingRules,
}

#[derive(Debug, Clone)]
struct Slot {
    name: Option<String>,
    scan: Scan,
    arguments: Option<Value>,
}

impl FunctionReader {
    /// The reader, before its first piece, by these rules.
    pub(super) fn under(self, rules: ReadingRules) -> Self {
        Self { rules, ..self }
    }

    /// # Errors
    /// What is wrong with the calls. Nothing more may be pushed then.
    pub(super) fn push(
        &mut self,
        index: usize,
        name: Option<&str>,
        arguments: &str,
        out: &mut Vec<ReplyPart>,
    ) -> Result<(), String> {
        if index == self.slots.len() {
            self.slots.push(Slot {
                name: None,
                scan: Scan::new(0).under(self.rules),
                arguments: None,
            });
        }
        let slot = self
            .slots
            .get_mut(index)
            .ok_or("a function call has an index that skips one")?;
        slot.push(name, arguments)?;
        self.give(false, out)
    }

    /// The reply has ended.
    pub(super) fn finish(&mut self, out: &mut Vec<ReplyPart>) -> Result<(), String> {
        self.give(true, out)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.slots.iter().map(|slot| slot.scan.held()).sum()
    }

    /// Gives out what is complete and has nothing incomplete before it.
    fn give(&mut self, ended: bool, out: &mut Vec<ReplyPart>) -> Result<(), String> {
        let begun = self.slots.len();
        let is_early = !self.rules.are_from_4();
        while let Some(slot) = self.slots.get_mut(self.given) {
            let followed = self.given + 1 < begun;
            if !slot.is_complete(is_early, followed, ended)? {
                break;
            }
            let name = slot.name.as_deref().unwrap_or_default();
            let arguments = slot.arguments.replace(Value::Null).unwrap_or_default();
            self.given += 1;
            match tools::given(name, arguments, self.names.as_deref(), self.rules)? {
                SolutionPart::Call(call) => {
                    out.push(ReplyPart::Call {
                        index: self.calls,
                        call,
                    });
                    self.calls += 1;
                }
                SolutionPart::Field(name, _) if self.fields.contains(&name) => {
                    return Err(format!("{name} was given twice"));
                }
                SolutionPart::Field(name, value) => {
                    self.fields.push(name);
                    out.push(ReplyPart::field(name, value));
                }
            }
        }
        Ok(())
    }
}

impl Slot {
    fn push(&mut self, name: Option<&str>, arguments: &str) -> Result<(), String> {
        if let (None, Some(name)) = (&self.name, name) {
            self.name = Some(name.to_owned());
        }
        let mut rest = arguments;
        if self.arguments.is_none()
            && let Some((value, after)) = self.scan.push(arguments)?
        {
            self.arguments = Some(value);
            self.scan = Scan::new(0);
            rest = after;
        }
        match &self.arguments {
            Some(_) if !rest.trim_start_matches(SPACE).is_empty() => {
                Err("arguments go on after their end".into())
            }
            _ => Ok(()),
        }
    }

    /// `followed`: another call has begun. `ended`: the reply has. A call without arguments is not complete before, unless
    /// `early`, as in runs whose record has format 3: endpoints send them under another index or behind an empty object, and whether a piece of the reply fits
    /// no call is known at its end.
    fn is_complete(&mut self, early: bool, followed: bool, ended: bool) -> Result<bool, String> {
        let is_end = ended || (early && followed && self.scan.is_empty());
        if self.arguments.is_none() && is_end {
            self.arguments = Some(self.scan.finish()?.unwrap_or_default());
        }
        let is_given = match &self.arguments {
            None => false,
            Some(Value::Null) => early,
            Some(Value::Object(arguments)) => early || !arguments.is_empty(),
            Some(_) => true,
        };
        Ok(ended || (is_given && self.name.is_some()))
    }
}
