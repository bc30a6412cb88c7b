//! Placeholders as they are written: where they stand in a text, and texts within a value.

use serde_json::{Map, Number, Value};
use toolhold_policy::pii::Kind;

/// What stands for text that only looks like a placeholder.
pub(super) const TEXT: &str = "text";
/// Digits of a placeholder's number.
const MAX_DIGITS: usize = 6;
/// As deep as a JSON text can be read.
const MAX_DEPTH: usize = 128;

/// `value` as JSON text has it, if that is something else.
pub(super) fn escaped(value: &str) -> Option<String> {
    let json = Value::from(value).to_string();
    let inner = json.get(1..json.len() - 1)?;
    (inner != value).then(|| inner.to_owned())
}

/// Where a text has the form of a placeholder: `<email_1>`.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = (usize, usize)> {
    text.match_indices('<').filter_map(|(start, _)| {
        let rest = text.get(start + 1..)?;
        let is_part =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
        let longest = Kind::NationalId.name().len() + Kind::Authorization.name().len() + MAX_DIGITS;
        let length = rest.bytes().take(longest).take_while(is_part).count();
        let (label, number) = rest.get(..length)?.rsplit_once('_')?;
        let is_label = label == TEXT || Kind::ALL.iter().any(|kind| kind.name() == label);
        let is_number = (1..=MAX_DIGITS).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_closed = rest.as_bytes().get(length) == Some(&b'>');
        (is_label && is_number && is_closed).then_some((start, start + length + 2))
    })
}

/// The text with placeholders replaced by what `by` says. Inserted text is not searched again.
pub(super) fn replaced<'a>(text: &str, mut by: impl FnMut(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for (start, stop) in placeholders(text) {
        if let Some(value) = text.get(start..stop).and_then(&mut by) {
            out.push_str(text.get(end..start).unwrap_or_default());
            out.push_str(value);
            end = stop;
        }
    }
    out.push_str(text.get(end..).unwrap_or_default());
    out
}

/// The value with every string in it, and every key, replaced by what `by` makes of it. A number that
/// is replaced as a whole becomes a string.
pub(super) fn strings(
    value: &Value,
    depth: usize,
    by: &mut dyn FnMut(&str) -> Option<String>,
) -> Value {
    replaced_in(value, depth, true, by)
}

/// `numbers`: whether they are replaced, too.
pub(super) fn replaced_in(
    value: &Value,
    depth: usize,
    numbers: bool,
    by: &mut dyn FnMut(&str) -> Option<String>,
) -> Value {
    let mut changed = |text: &str| by(text).unwrap_or_else(|| text.to_owned());
    match value {
        Value::Null | Value::Bool(_) => value.clone(),
        Value::String(text) => Value::String(changed(text)),
        Value::Number(_) if !numbers => value.clone(),
        Value::Number(number) => in_number(number, &mut changed),
        // Deeper than any reader goes: as a text, nothing in it is missed.
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => {
            Value::String(changed(&value.to_string()))
        }
        Value::Array(items) => {
            let items = items
                .iter()
                .map(|item| replaced_in(item, depth + 1, numbers, by));
            Value::Array(items.collect())
        }
        Value::Object(members) => {
            let mut out = Map::with_capacity(members.len());
            for (key, member) in members {
                let key = by(key).unwrap_or_else(|| key.clone());
                out.insert(key, replaced_in(member, depth + 1, numbers, by));
            }
            Value::Object(out)
        }
    }
}

fn in_number(number: &Number, changed: &mut dyn FnMut(&str) -> String) -> Value {
    let text = number.to_string();
    let hidden = changed(&text);
    if hidden == text {
        Value::Number(number.clone())
    } else {
        Value::String(hidden)
    }
}
