//! Compiled schemas of tools, which all runs of the process share: a schema is compiled once for each version of a tool,
//! and not for each run that offers it.
//!
//! The key is the schema itself, so a tool that changes has another one, and the same schema of two tools is one. What
//! was not used for longest makes room: schemas also come from clients.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use toolhold_schema::{SchemaFault, Validator};

/// Most schemas that are kept: those of a few hundred tools.
const MAX_SCHEMAS: usize = 1_024;
/// Most bytes of one that is kept, as text. Compiled it takes up to a few hundred times as much.
const MAX_SCHEMA_BYTES: usize = 16 << 10;
/// Most bytes of all that are kept, as text.
const MAX_BYTES: usize = 1 << 20;

fn shared() -> MutexGuard<'static, CompiledSchemas> {
    static SHARED: LazyLock<Mutex<CompiledSchemas>> = LazyLock::new(Mutex::default);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The validator of `schema`, compiled now or earlier.
///
/// # Errors
/// As [`Validator::new`].
pub fn validator(schema: &Value) -> Result<Arc<Validator>, SchemaFault> {
    let text = schema.to_string();
    if text.len() > MAX_SCHEMA_BYTES || has_pattern(&text) {
        return Validator::new(schema).map(Arc::new);
    }
    if let Some(known) = shared().find(&text) {
        return Ok(known);
    }
    // Without the lock: it takes milliseconds. Of two that do it at the same time one is kept.
    let compiled = Arc::new(Validator::new(schema)?);
    shared().keep(text, compiled.clone());
    Ok(compiled)
}

/// The compiled form of a pattern can be as large as all that is kept otherwise.
fn has_pattern(schema: &str) -> bool {
    schema.contains("\"pattern")
}

/// By their texts.
#[derive(Debug, Default)]
struct CompiledSchemas {
    by_text: HashMap<String, CompiledSchema>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct CompiledSchema {
    validator: Arc<Validator>,
    last_use: u64,
}

impl CompiledSchemas {
    fn find(&mut self, text: &str) -> Option<Arc<Validator>> {
        self.uses += 1;
        let known = self.by_text.get_mut(text)?;
        known.last_use = self.uses;
        Some(known.validator.clone())
    }

    fn keep(&mut self, text: String, validator: Arc<Validator>) {
        while self.by_text.len() >= MAX_SCHEMAS || self.bytes + text.len() > MAX_BYTES {
            let oldest = self.by_text.iter().min_by_key(|(_, known)| known.last_use);
            let Some(oldest) = oldest.map(|(text, _)| text.clone()) else {
                break;
            };
            self.by_text.remove(&oldest);
            self.bytes -= oldest.len();
        }
        self.uses += 1;
        let last_use = self.uses;
        let bytes = text.len();
        let known = CompiledSchema {
            validator,
            last_use,
        };
        if self.by_text.insert(text, known).is_none() {
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_schema_is_compiled_once_and_another_version_is_another_schema() {
        let schema =
            |least: u64| json!({"type": "object", "title": "once", "minProperties": least});
        let first = validator(&schema(1)).unwrap();
        assert!(Arc::ptr_eq(&first, &validator(&schema(1)).unwrap()));
        let other = validator(&schema(2)).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
        assert!(first.check(&json!({"a": 1})).is_ok() && other.check(&json!({"a": 1})).is_err());
        // What does not compile is told each time.
        for _ in 0..2 {
            assert!(validator(&json!({"type": 5, "title": "once"})).is_err());
        }
        let large = json!({"const": "x".repeat(MAX_SCHEMA_BYTES)});
        let with_pattern = json!({"pattern": "^a$"});
        for unkept in [large, with_pattern] {
            let one = validator(&unkept).unwrap();
            assert!(!Arc::ptr_eq(&one, &validator(&unkept).unwrap()));
        }
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let compiled = || Arc::new(Validator::new(&json!({})).unwrap());
        let mut kept = CompiledSchemas::default();
        for n in 0..3 * MAX_SCHEMAS {
            kept.keep(n.to_string(), compiled());
            assert!(kept.find("0").is_some());
        }
        assert_eq!(kept.by_text.len(), MAX_SCHEMAS);
        assert!(kept.find("1").is_none());
        for n in 0..200 {
            kept.keep(format!("{n:0>MAX_SCHEMA_BYTES$}"), compiled());
        }
        let bytes: usize = kept.by_text.keys().map(String::len).sum();
        assert_eq!(bytes, kept.bytes);
        assert!(bytes <= MAX_BYTES);
    }
}
