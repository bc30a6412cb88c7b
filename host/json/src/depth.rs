//! How deep JSON from outside may be nested.
//!
//! A record puts levels of its own around what clients, models and tools write, and `serde_json` reads at most
//! [`READABLE`] levels. The bound leaves room for those of the record, so every record can be read again.

use std::error::Error;
use std::fmt::{self, Display, Formatter, Write as _};
use toolhold_text::cut;

/// Maximum levels of arrays and objects in a value from outside. The room above is for the levels that events, chat
/// completion bodies and composed schemas wrap it in.
pub const MAX_DEPTH: usize = 100;
/// Maximum levels of a text that `serde_json` reads.
pub const READABLE: usize = 127;

/// Names that an error has of the way to what is nested too deep: the outer ones tell which part it is.
const MAX_NAMES: usize = 6;
/// Maximum characters of each of these names.
const MAX_NAME_CHARS: usize = 40;

/// A text is nested deeper than it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooDeep {
    /// Begin of the way to it, such as `tools[0].function.parameters`; empty where it has no names.
    pub place: String,
    pub limit: usize,
}

impl Display for TooDeep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(
            f,
            "it is nested deeper than {limit} levels; write it flatter, or its deep parts as text"
        )
    }
}

impl Error for TooDeep {}

/// Checks a JSON text from outside, by its brackets.
///
/// # Errors
/// It has more than [`MAX_DEPTH`] levels.
pub fn check(text: &[u8]) -> Result<(), TooDeep> {
    check_to(text, MAX_DEPTH)
}

/// [`check`], with another limit.
///
/// # Errors
/// It has more than `limit` levels.
pub fn check_to(text: &[u8], limit: usize) -> Result<(), TooDeep> {
    if is_within(text, limit) {
        return Ok(());
    }
    let place = place(text, limit);
    Err(TooDeep { place, limit })
}

/// Without a note of the way: nearly all texts are flat.
fn is_within(text: &[u8], limit: usize) -> bool {
    let mut depth: usize = 0;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    true
}

fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// An open array or object.
enum OpenLevel<'t> {
    /// Number of the element.
    List(usize),
    /// Name of the member, as it is written.
    Members(&'t [u8]),
}

/// The way to the first array or object below `limit` others.
fn place(text: &[u8], limit: usize) -> String {
    let mut open = Vec::new();
    let mut string: &[u8] = &[];
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'[' | b'{' => {
                if open.len() == limit {
                    break;
                }
                open.push(match byte {
                    b'[' => OpenLevel::List(0),
                    _ => OpenLevel::Members(&[]),
                });
            }
            b']' | b'}' => {
                open.pop();
            }
            b',' => {
                if let Some(OpenLevel::List(index)) = open.last_mut() {
                    *index += 1;
                }
            }
            b':' => {
                if let Some(OpenLevel::Members(name)) = open.last_mut() {
                    *name = string;
                }
            }
            b'"' => {
                let mut bytes = rest.iter();
                skip_string(&mut bytes);
                let after = bytes.as_slice();
                // With the quote behind it.
                string = rest.get(..rest.len() - after.len()).unwrap_or_default();
                rest = after;
            }
            _ => {}
        }
    }
    let mut place = String::new();
    for level in open.iter().take(MAX_NAMES) {
        match level {
            OpenLevel::List(index) => {
                let _ = write!(place, "[{index}]");
            }
            OpenLevel::Members(name) => {
                if !place.is_empty() {
                    place.push('.');
                }
                let name = String::from_utf8_lossy(name.strip_suffix(b"\"").unwrap_or(name));
                place.push_str(&cut(&name, MAX_NAME_CHARS));
            }
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({"[{": inner}),
        })
    }

    #[test]
    fn the_outer_names_tell_what_is_too_deep() {
        let deep = nested(MAX_DEPTH).to_string();
        let text = format!(r#"{{"a\"]":"[[","tools":[1,{{"of":[]}},{{"function":{deep}}}]}}"#);
        let error = check(text.as_bytes()).unwrap_err();
        assert_eq!(error.place, "tools[2].function.[{[0].[{");
        let named = |name: &str| {
            check(format!(r#"{{"{name}":{deep}}}"#).as_bytes())
                .unwrap_err()
                .place
        };
        assert!(named(&"n".repeat(5_000)).len() < 200);
        assert_eq!(check(b"[[[}]]"), Ok(()));
    }

    #[test]
    fn readable_json_is_what_the_reader_reads() {
        for (levels, is_read) in [(MAX_DEPTH, true), (READABLE, true), (READABLE + 1, false)] {
            let text = nested(levels).to_string();
            assert_eq!(check_to(text.as_bytes(), READABLE).is_ok(), is_read);
            assert_eq!(serde_json::from_str::<Value>(&text).is_ok(), is_read);
            assert_eq!(check(text.as_bytes()).is_ok(), levels == MAX_DEPTH);
        }
    }

    fn levels(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn a_text_has_the_levels_of_its_value(
            keys in prop::collection::vec("[\\[\\]{}\",:\\\\a]{0,4}", 0..8), limit in 0_usize..8, wild in "\\PC{0,40}",
        ) {
            let value = keys.iter().fold(json!("[{"), |inner, key| json!({key: inner, "x": [key]}));
            let text = value.to_string();
            prop_assert_eq!(check_to(text.as_bytes(), limit).is_ok(), levels(&value) <= limit);
            let _ = check_to(wild.as_bytes(), 1);
        }
    }
}
