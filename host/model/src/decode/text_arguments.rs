//! Arguments in the text beside a call that has none: a server took the call out of the model's text and left them there, or
//! the model wrote them where an answer stands.

use super::call_forms::name_of;
use crate::call_arguments::{ARGUMENT_MEMBERS, CallArguments, UnreadMembers};
use crate::offered::OfferedFunction;
use crate::thought_marks::THOUGHT_MARKS;
use serde_json::{Deserializer, Map, Value};

/// Maximum objects of a text that are looked at.
const MAX_OBJECTS: usize = 16;
/// Maximum bytes of a text in which names of parameters are looked for, once for each parameter of each call.
const MAX_BYTES: usize = 16 << 10;
/// Characters around the name of a parameter that format it.
const FORMATTING: [char; 6] = ['"', '\'', '`', '*', ' ', '-'];
/// Characters before the first parameter of a list, and before the next one.
const LIST_BEGINS: [char; 5] = ['\n', '{', '(', '[', ','];
/// Quotes around the name of a parameter that is an attribute of a tag.
const QUOTES: [char; 2] = ['"', '\''];
/// Maximum bytes of the name of an element that holds the name of a parameter.
const MAX_ELEMENT: usize = 64;
/// Parts of the names of elements that hold the name of a parameter.
const KEY_ELEMENTS: [&str; 3] = ["key", "name", "param"];

/// Parts of a text that may be arguments.
#[derive(Debug)]
pub(super) struct TextArguments<'t> {
    /// The text behind thoughts.
    text: &'t str,
    objects: Vec<Value>,
    /// True if an object begins and does not end.
    has_open: bool,
}

impl<'t> TextArguments<'t> {
    pub(super) fn of(content: &'t str) -> Self {
        let mut found = Self {
            text: behind_thoughts(content),
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
        let are_all_named = function.is_some_and(|function| function.are_all_named);
        let objects = self.objects.iter();
        let of_objects = objects
            .map(|object| match kind_of(object, name, parameters) {
                UnreadMembers::Unknown if are_all_named && !may_have(object, parameters) => {
                    UnreadMembers::None
                }
                kind => kind,
            })
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

/// The text without thoughts before it; nothing where the last one does not end.
fn behind_thoughts(content: &str) -> &str {
    let marks = THOUGHT_MARKS.iter();
    let ends = marks.filter_map(|(_, close)| Some(content.rfind(*close)? + close.len()));
    let behind = ends.max().and_then(|end| content.get(end..));
    let text = behind.unwrap_or(content);
    let start = text.trim_start();
    let mut marks = THOUGHT_MARKS.iter();
    if marks.any(|(open, _)| start.starts_with(open)) {
        ""
    } else {
        text
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

/// Whether an object may have a value for one of these parameters: under its name, or under a name of arguments wherever in
/// it.
fn may_have(object: &Value, parameters: &[String]) -> bool {
    let members = object.as_object().into_iter().flatten();
    let mut names = members.map(|(name, _)| name);
    names.any(|name| parameters.contains(name)) || has_arguments(object)
}

/// Whether a value has a member that is called as arguments are. Its depth is bounded by the reader of JSON.
fn has_arguments(value: &Value) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| ARGUMENT_MEMBERS.contains(&name.as_str()) || has_arguments(value)),
        Value::Array(items) => items.iter().any(has_arguments),
        _ => false,
    }
}

/// Whether a text has a value for a parameter: `KEY=VALUE`, `"KEY": VALUE` in an object, a list or on a line, or the key in a
/// tag.
fn gives(text: &str, parameter: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let mut places = text.match_indices(parameter);
    // A name of formatting characters alone stands everywhere.
    !parameter.trim_matches(FORMATTING).is_empty()
        && places.any(|(at, _)| {
            let before = text.get(..at).unwrap_or_default();
            let after = text.get(at + parameter.len()..).unwrap_or_default();
            if before.ends_with(is_of_name) || after.starts_with(is_of_name) {
                return false;
            }
            if is_in_tag(before, after) {
                return true;
            }
            let before = before.trim_end_matches(FORMATTING);
            let begins = before.is_empty() || before.ends_with(LIST_BEGINS);
            let after = after.trim_start_matches(FORMATTING);
            let value = after.strip_prefix('=');
            let is_assigned = value.is_some_and(|value| !value.starts_with(['=', '>']));
            is_assigned || (begins && after.starts_with(':'))
        })
}

/// Whether the name of a parameter between these texts is in a tag (`<KEY>`, `<parameter=KEY>`, `<parameter name="KEY">`) or in
/// the element of a name (`<arg_key>KEY</arg_key>`). An arrow or a comparison in prose is none.
fn is_in_tag(before: &str, after: &str) -> bool {
    if let Some(rest) = after.strip_prefix("</") {
        let head = rest.get(..rest.floor_char_boundary(MAX_ELEMENT));
        let end = head.and_then(|head| head.split_once('>'));
        let (element, _) = end.unwrap_or_default();
        let of_key = KEY_ELEMENTS.iter().any(|part| element.contains(part));
        return of_key && before.ends_with(&format!("<{element}>"));
    }
    let quote = after.chars().next().filter(|c| QUOTES.contains(c));
    let (before, after) = match quote {
        Some(quote) => (before.strip_suffix(quote), after.strip_prefix(quote)),
        None => (Some(before), Some(after)),
    };
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let is_attribute = before.ends_with('=');
    let is_name = quote.is_none() && (before.ends_with('<') || before.ends_with("</"));
    after.starts_with('>') && (is_attribute || is_name)
}
