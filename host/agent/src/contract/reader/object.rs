//! The object of the `simple` contract, among whatever else the model wrote.

use serde_json::{Map, Value};
use toolhold_json::rules::ReadingRules;
use toolhold_json::scan::{SPACE, Scan};

/// Finds the first JSON object that has one of the wanted members. An object inside another is none
/// of its own: a call that stands in an argument is data.
#[derive(Debug, Clone)]
pub(in crate::contract) struct ObjectFinder {
    rules: ReadingRules,
    wanted: &'static [&'static str],
    place: ObjectPosition,
    /// The beginning of the text before the object, without white space before it.
    before: String,
}

/// Maximum bytes that are kept of the text before the object: enough to tell a fence from prose.
const MAX_BEFORE: usize = 16;

#[derive(Debug, Clone)]
enum ObjectPosition {
    Prose,
    /// After a brace, which begins an object if a string or its end follows.
    Brace,
    Object(Scan),
    Done,
}

impl ObjectFinder {
    pub(in crate::contract) fn under(rules: ReadingRules, wanted: &'static [&'static str]) -> Self {
        Self {
            rules,
            wanted,
            place: ObjectPosition::Prose,
            before: String::new(),
        }
    }

    /// Whether the object stands in a fence with nothing before it, and whether other text stands before it.
    pub(in crate::contract) fn stands_in(&self) -> (bool, bool) {
        let is_language = |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || c == '_';
        let before = self.before.trim();
        let fence = before.strip_prefix("```");
        let is_fenced = fence.is_some_and(|language| language.chars().all(is_language));
        (is_fenced, !before.is_empty() && !is_fenced)
    }

    fn passes(&mut self, text: &str) {
        let text = if self.before.is_empty() {
            text.trim_start()
        } else {
            text
        };
        let room = MAX_BEFORE.saturating_sub(self.before.len());
        self.before.extend(text.chars().take(room));
    }

    /// Takes the next text. Gives the object once; what follows it is prose.
    ///
    /// # Errors
    /// A fault in an object that was begun. The search ends there: looking for another inside it
    /// could find a call where the model wrote data.
    pub(in crate::contract) fn push(
        &mut self,
        mut text: &str,
    ) -> Result<Option<Map<String, Value>>, String> {
        while !text.is_empty() {
            match &mut self.place {
                ObjectPosition::Done => return Ok(None),
                ObjectPosition::Prose => {
                    let Some((before, rest)) = text.split_once('{') else {
                        self.passes(text);
                        return Ok(None);
                    };
                    self.passes(before);
                    self.place = ObjectPosition::Brace;
                    text = rest;
                }
                ObjectPosition::Brace => {
                    text = text.trim_start_matches(SPACE);
                    if text.starts_with(['"', '}']) {
                        let mut scan = Scan::new(0).under(self.rules);
                        scan.push("{")?;
                        self.place = ObjectPosition::Object(scan);
                    } else if !text.is_empty() {
                        self.passes("{");
                        self.place = ObjectPosition::Prose;
                    }
                }
                ObjectPosition::Object(scan) => {
                    let Some((value, rest)) = scan.push(text)? else {
                        return Ok(None);
                    };
                    if let Value::Object(object) = value
                        && self.wanted.iter().any(|name| object.contains_key(*name))
                    {
                        self.place = ObjectPosition::Done;
                        return Ok(Some(object));
                    }
                    self.passes("{}");
                    self.place = ObjectPosition::Prose;
                    text = rest;
                }
            }
        }
        Ok(None)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        match &self.place {
            ObjectPosition::Object(scan) => scan.held(),
            _ => 0,
        }
    }

    /// The object in a complete text.
    ///
    /// # Errors
    /// What is wrong with it, or that there is none, in words that the model can act on.
    pub(in crate::contract) fn find(&mut self, text: &str) -> Result<Map<String, Value>, String> {
        match self.push(text) {
            Ok(Some(object)) => Ok(object),
            Err(reason) => Err(format!("the object in the reply is not JSON: {reason}")),
            Ok(None) if matches!(self.place, ObjectPosition::Object(_)) => {
                Err("the object in the reply has no end".into())
            }
            Ok(None) => Err(format!(
                "the reply holds no JSON object with {}; write one",
                self.wanted.join(" or ")
            )),
        }
    }
}
