//! Arguments in the text beside a call that has none: a server took the call out of the model's text and left them there, or
//! the model wrote them where an answer stands.

use super::call_forms::name_of;
use crate::call_arguments::{CallArguments, UnreadMembers};
use crate::offered::OfferedFunction;
use serde_json::{Deserializer, Map, Value};

/// The mark that ends a thought before the text.
const END_OF_THOUGHT: &str = "</think>";
/// Maximum objects of a text that are looked at.
const MAX_OBJECTS: usize = 16;
/// Maximum bytes of a text in which names of parameters are looked for, once for each parameter of each call.
const MAX_BYTES: usize = 16 << 10;
/// Characters around the name of a parameter that format it.
const FORMATTING: [char; 6] = ['"', '\'', '`', '*', ' ', '-'];
/// Characters before the first parameter of a list, and before the next one.
const LIST_BEGINS: [char; 5] = ['\n', '{', '(', '[', ','];

/// Parts of a text that may be arguments.
#[derive(Debug)]
pub(super) struct TextArguments<'t> {
    /// The text behind a thought.
    text: &'t str,
    objects: Vec<Value>,
    /// True if an object begins and does not end.
    has_open: bool,
}

impl<'t> TextArguments<'t> {
    pub(super) fn of(content: &'t str) -> Self {
        let behind = content.rsplit_once(END_OF_THOUGHT);
        let mut found = Self {
            text: behind.map_or(content, |(_, text)| text),
            objects: Vec::new(),
            has_open: false,
        };
        let mut rest = found.text;
        for _ in 0..MAX_OBJECTS {
            let Some(start) = next_object(rest) else {
                break;
            };
            let mut values = Deserializer::from_str(start).into_iter::<Value>();
            let length = match values.next() {
                Some(Ok(value)) => {
                    found.objects.push(value);
                    values.byte_offset()
                }
                Some(Err(error)) => {
                    found.has_open |= error.is_eof();
                    1
                }
                None => break,
            };
            rest = start.get(length..).unwrap_or_default();
        }
        found
    }

    /// Returns what the text has of the arguments of a call of `name`. `function`: the one that is offered under this name.
    pub(super) fn kind(&self, name: &str, function: Option<&OfferedFunction>) -> UnreadMembers {
        let parameters = function.map(|function| function.parameters.as_slice());
        let parameters = parameters.unwrap_or_default();
        let objects = self.objects.iter();
        let of_objects = objects
            .map(|object| kind_of(object, name, parameters))
            .max();
        let head = self.text.get(..self.text.floor_char_boundary(MAX_BYTES));
        let head = head.unwrap_or(self.text);
        let is_any = self.has_open || parameters.iter().any(|parameter| gives(head, parameter));
        let own = if is_any {
            UnreadMembers::Unknown
        } else {
            UnreadMembers::None
        };
        own.max(of_objects.unwrap_or_default())
    }
}

/// The text from the next place where an object may begin.
fn next_object(text: &str) -> Option<&str> {
    let mut begins = text.match_indices('{');
    begins.find_map(|(at, _)| {
        let start = text.get(at..)?;
        let inner = start.strip_prefix('{')?.trim_start();
        inner.starts_with(['"', '}']).then_some(start)
    })
}

/// Kind of an object: arguments of these parameters, a copy of the call with its arguments, or another object, which may have
/// them.
fn kind_of(object: &Value, name: &str, parameters: &[String]) -> UnreadMembers {
    let members = object.as_object();
    if members.is_none_or(Map::is_empty) {
        return UnreadMembers::None;
    }
    let is_own = |key: &String| parameters.contains(key);
    if members.is_some_and(|members| members.keys().all(is_own)) {
        return UnreadMembers::Arguments;
    }
    if name_of(object) != Some(name) {
        return UnreadMembers::Unknown;
    }
    match CallArguments::read(object).text.trim() {
        "" | "{}" | "null" => UnreadMembers::None,
        _ => UnreadMembers::Arguments,
    }
}

/// Whether a text has a value for a parameter: `KEY=VALUE`, `"KEY": VALUE` in an object, a list or on a line, or the key in a
/// tag.
fn gives(text: &str, parameter: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let mut places = text.match_indices(parameter);
    !parameter.is_empty()
        && places.any(|(at, _)| {
            let before = text.get(..at).unwrap_or_default();
            let after = text.get(at + parameter.len()..).unwrap_or_default();
            if before.ends_with(is_of_name) || after.starts_with(is_of_name) {
                return false;
            }
            let before = before.trim_end_matches(FORMATTING);
            let begins = before.is_empty() || before.ends_with(LIST_BEGINS);
            let after = after.trim_start_matches(FORMATTING);
            let is_assigned = after.starts_with('=') && !after.starts_with("==");
            let is_in_tag = after.starts_with('>') || after.starts_with("</");
            is_assigned || is_in_tag || (begins && after.starts_with(':'))
        })
}
