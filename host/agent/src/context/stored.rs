//! Results that were too long to be shown whole, by the key with which the model reads the rest.

use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The tool by which the model reads them.
pub const READ_RESULT: &str = "read_result";
/// Maximum bytes kept per run; the oldest results are dropped first.
const MAX_BYTES: usize = 32 << 20;

/// What calls returned, as JSON text, newest last.
#[derive(Debug, Default)]
pub struct Stored {
    results: VecDeque<(String, String)>,
    bytes: usize,
}

impl Stored {
    pub fn keep(&mut self, key: &str, text: String) {
        if text.len() > MAX_BYTES || self.find(key).is_some() {
            return;
        }
        self.bytes += text.len();
        self.results.push_back((key.to_owned(), text));
        while self.bytes > MAX_BYTES {
            if let Some((_, oldest)) = self.results.pop_front() {
                self.bytes -= oldest.len();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    pub fn contains(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// All of a result.
    pub fn find(&self, key: &str) -> Option<&str> {
        let found = self.results.iter().find(|(known, _)| known == key);
        found.map(|(_, text)| text.as_str())
    }

    /// Answers a call of [`READ_RESULT`] with at most `max` characters of what is wanted, of the
    /// result as `shown` makes it.
    ///
    /// # Errors
    /// There is no such result, or it has no such part; in words that the model can act on.
    pub fn read(
        &self,
        arguments: &Value,
        max: usize,
        shown: impl FnOnce(&str) -> String,
    ) -> Result<Value, String> {
        let key = arguments["key"].as_str().unwrap_or_default();
        let Some(whole) = self.find(key) else {
            let mut known: Vec<_> = self.results.iter().map(|(key, _)| key.as_str()).collect();
            known.reverse();
            known.truncate(10);
            return Err(format!(
                "no result is kept under {key:.60?}; the newest keys are {}",
                known.join(", ")
            ));
        };
        let whole = shown(whole);
        let part = match arguments["path"].as_str().filter(|path| !path.is_empty()) {
            None => whole,
            Some(path) => part(&whole, path)?,
        };
        let characters = part.chars().count();
        let from = match arguments["find"].as_str().filter(|text| !text.is_empty()) {
            Some(text) => place(&part, text).ok_or_else(|| {
                format!("{text:.60?} is nowhere in it; it has {characters} characters")
            })?,
            None => arguments["from"]
                .as_u64()
                .and_then(|from| usize::try_from(from).ok())
                .unwrap_or(0),
        };
        if from > characters {
            return Err(format!("it has only {characters} characters"));
        }
        let text: String = part.chars().skip(from).take(max.max(1)).collect();
        let to = from + text.chars().count();
        let mut read = Map::from_iter([("text".to_owned(), json!(text))]);
        if from > 0 || to < characters {
            read.insert("from".into(), json!(from));
            read.insert("to".into(), json!(to));
            read.insert("of".into(), json!(characters));
        }
        Ok(Value::Object(read))
    }
}

/// The parameters of [`READ_RESULT`].
pub fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "The key that the result was cut with."},
            "path": {"type": "string", "description": "A part of it, as in items[3].name; all of it if left out."},
            "find": {"type": "string", "description": "Begin where this text is."},
            "from": {"type": "integer", "minimum": 0, "description": "Begin at this character."},
        },
        "required": ["key"],
        "additionalProperties": false,
    })
}

/// The character at which `text` is in `whole`.
fn place(whole: &str, text: &str) -> Option<usize> {
    let byte = whole.find(text)?;
    Some(whole.get(..byte)?.chars().count())
}

fn part(whole: &str, path: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(whole)
        .map_err(|_| "it is plain text, which has no parts; leave path out".to_owned())?;
    let mut here = &value;
    let steps = path.trim_start_matches('†').split(['.', '[', ']']);
    for step in steps.filter(|step| !step.is_empty()) {
        let next = match here {
            Value::Object(fields) => fields.get(step),
            Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
            _ => None,
        };
        here = next.ok_or_else(|| {
            let there = match here {
                Value::Object(fields) => {
                    let names: Vec<_> = fields.keys().take(20).map(String::as_str).collect();
                    format!("there are {}", names.join(", "))
                }
                Value::Array(items) => format!("there are {} items, counted from 0", items.len()),
                _ => "that is a single value".to_owned(),
            };
            format!("there is no {step:.60?} on the way of {path:.200?}; {there}")
        })?;
    }
    Ok(match here {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_by_place_by_path_and_by_text() {
        let mut stored = Stored::default();
        let value = json!({"items": [{"name": "ä"}, {"name": "second"}], "note": "x".repeat(50)});
        stored.keep("call_1", value.to_string());
        let read = |arguments: Value| stored.read(&arguments, 10, str::to_owned);
        let whole = value.to_string().chars().count();
        for (arguments, expected) in [
            (
                json!({"key": "call_1"}),
                Ok(json!({"text": "{\"items\":[", "from": 0, "to": 10, "of": whole})),
            ),
            (
                json!({"key": "call_1", "from": whole - 2}),
                Ok(json!({"text": "\"}", "from": whole - 2, "to": whole, "of": whole})),
            ),
            (
                json!({"key": "call_1", "path": "items[1].name"}),
                Ok(json!({"text": "second"})),
            ),
            (
                json!({"key": "call_1", "path": "items[0].name"}),
                Ok(json!({"text": "ä"})),
            ),
            (
                json!({"key": "call_1", "path": "note", "find": "xx"}),
                Ok(json!({"text": "xxxxxxxxxx", "from": 0, "to": 10, "of": 50})),
            ),
            (json!({"key": "call_1", "path": "items[7]"}), Err("2 items")),
            (
                json!({"key": "call_1", "path": "item"}),
                Err("there are items, note"),
            ),
            (json!({"key": "call_1", "find": "zz"}), Err("nowhere")),
            (json!({"key": "call_1", "from": 10_000}), Err("only")),
            (json!({"key": "call_2"}), Err("the newest keys are call_1")),
        ] {
            match (read(arguments.clone()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{arguments}"),
                (Err(reason), Err(expected)) => {
                    assert!(reason.contains(expected), "{arguments}: {reason}");
                }
                (found, _) => panic!("{arguments}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_oldest_go_first() {
        let mut stored = Stored::default();
        for n in 0..5 {
            stored.keep(&n.to_string(), "x".repeat(10 << 20));
        }
        let kept: Vec<_> = (0..5).filter(|n| stored.contains(&n.to_string())).collect();
        assert_eq!(kept, [2, 3, 4]);
    }
}
