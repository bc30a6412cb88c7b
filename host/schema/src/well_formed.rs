//! Tells keywords that cannot be checked here from those that are wrong.

use crate::bounds::MAX_PATTERNS;
use crate::loosen::{LooseSchema, REFERENCES, loosened};
use crate::pattern;
use serde_json::{Value, json};

/// Maximum nesting of `patternProperties` that are left out, which are looked at one inside of the other.
const MAX_LEVELS: usize = 8;

impl LooseSchema {
    /// True if all that was left out is well formed: patterns, references and dialects that cannot be checked here. `written`
    /// is the schema as it was.
    pub fn is_well_formed(&self, written: &Value) -> bool {
        self.is_well_formed_to(written, MAX_LEVELS)
    }

    fn is_well_formed_to(&self, written: &Value, levels: usize) -> bool {
        // What is written with schemas that were left out by their names. All of them are looked at in one go, so that they
        // take no more together than one schema may.
        let mut inner: Option<Value> = None;
        for fault in &self.left_out {
            let (place, keyword) = fault.pointer.rsplit_once('/').unwrap_or_default();
            let Some(value) = written.pointer(&fault.pointer) else {
                return false;
            };
            let is_right = match keyword {
                "$schema" => value.is_string(),
                "pattern" => value.as_str().is_some_and(pattern::is_pattern),
                "patternProperties" => {
                    let inner = inner.get_or_insert_with(|| written.clone());
                    move_from_patterns(inner, place)
                }
                keyword => REFERENCES.contains(&keyword) && value.is_string(),
            };
            if !is_right {
                return false;
            }
        }
        let Some(inner) = inner else {
            return true;
        };
        match loosened(&inner) {
            None => true,
            Some(loose) => levels > 0 && loose.is_well_formed_to(&inner, levels - 1),
        }
    }
}

/// Moves the schemas of the `patternProperties` at `place` to a keyword whose names may be any. False if a name is no
/// pattern.
fn move_from_patterns(schema: &mut Value, place: &str) -> bool {
    let Some(Value::Object(keywords)) = schema.pointer_mut(place) else {
        return false;
    };
    let Some(Value::Object(named)) = keywords.shift_remove("patternProperties") else {
        return false;
    };
    // With more, none was compiled.
    if named.len() > MAX_PATTERNS || !named.keys().all(|name| pattern::is_pattern(name)) {
        return false;
    }
    let Value::Array(all) = keywords.entry("allOf").or_insert_with(|| json!([])) else {
        return false;
    };
    all.push(json!({"properties": named}));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_well_formed(schema: &Value) -> bool {
        loosened(schema).unwrap().is_well_formed(schema)
    }

    #[test]
    fn a_keyword_that_cannot_be_checked_is_told_from_one_that_is_wrong() {
        for (schema, expect) in [
            (json!({"properties": {"n": {"pattern": "^(?!x)"}}}), true),
            (json!({"properties": {"n": {"pattern": "("}}}), false),
            (json!({"properties": {"n": {"pattern": 7}}}), false),
            (json!({"properties": {"n": {"$ref": "#/$defs/gone"}}}), true),
            (json!({"type": "objekt"}), false),
            (
                json!({"properties": {"pattern": {"type": "objekt"}}}),
                false,
            ),
            (
                json!({"properties": {"n": {"pattern": "^(?!x)", "minLength": "1"}}}),
                false,
            ),
        ] {
            assert_eq!(is_well_formed(&schema), expect, "{schema}");
        }
    }

    /// The names and the schemas of `patternProperties` are left out together: both are looked at.
    #[test]
    fn schemas_by_patterns_that_cannot_be_checked_are_told_from_wrong_ones() {
        for (named, expect) in [
            (json!({"^(?!x)": {}}), true),
            (json!({"^(?!x)": true, "^a": {"type": "string"}}), true),
            (json!({"^(?!x)": {"$ref": "#/$defs/gone"}}), true),
            (
                json!({"^(?!x)": {"patternProperties": {"^(?!y)": {}}}}),
                true,
            ),
            (json!({"^a": 5}), false),
            (json!({"^a": "string"}), false),
            (json!({"(": {}}), false),
            (json!({"(": {}, "^(?!x)": {}}), false),
            (json!({"^(?!x)": null}), false),
            (json!({"^(?!x)": {"type": "objekt"}}), false),
            (json!({"^(?!x)": {"pattern": "("}}), false),
            (
                json!({"^(?!x)": {"patternProperties": {"^(?!y)": 5}}}),
                false,
            ),
        ] {
            for allowed in [json!({}), json!({"allOf": [{"minProperties": 1}]})] {
                let mut schema = allowed;
                schema["type"] = "object".into();
                schema["patternProperties"] = named.clone();
                let inside = json!({"properties": {"a/b": schema}});
                for schema in [schema, inside] {
                    assert_eq!(is_well_formed(&schema), expect, "{schema}");
                }
            }
        }
    }

    /// Each level takes a pass over the schema, of which there are few.
    #[test]
    fn deeply_nested_patterns_end() {
        let mut schema = json!({});
        for _ in 0..30 {
            schema = json!({"patternProperties": {"^(?!x)": schema}});
        }
        assert!(!is_well_formed(&schema));
    }
}
