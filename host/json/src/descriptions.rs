//! Texts of a schema that only describe: one walk for all who clean or mark what a model reads in a schema.

use serde_json::Value;

/// Meaning of a key in a schema.
#[derive(Debug, Clone, Copy)]
enum SchemaPart {
    /// A text that only describes.
    Description,
    /// Schemas by names of the author's own, which may be any word.
    Named,
    /// A value that a call must have or may be given. It stays as it is.
    Value,
    /// A schema, or several.
    Schema,
}

impl SchemaPart {
    fn of(key: &str) -> Self {
        match key {
            "description" | "title" | "$comment" => Self::Description,
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
                Self::Named
            }
            "const" | "default" | "enum" | "examples" => Self::Value,
            _ => Self::Schema,
        }
    }
}

/// Calls `see` with each description in the schema, whose depth is bounded where it was read.
pub fn each(schema: &mut Value, see: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Array(items) => {
            for item in items {
                each(item, see);
            }
        }
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (SchemaPart::of(key), value) {
                    (SchemaPart::Description, Value::String(text)) => see(text),
                    (SchemaPart::Named, Value::Object(named)) => {
                        for schema in named.values_mut() {
                            each(schema, see);
                        }
                    }
                    (SchemaPart::Value, _) => {}
                    (_, value) => each(value, see),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_text_that_describes_is_seen_and_no_value() {
        let named = |key: &str| json!({key: {"title": {"description": "a", "enum": ["e"]}}});
        let seen = |key: &str| json!({key: {"title": {"description": "seen", "enum": ["e"]}}});
        for key in [
            "properties",
            "patternProperties",
            "dependentSchemas",
            "$defs",
            "definitions",
        ] {
            let mut schema = named(key);
            each(&mut schema, &mut |text| *text = "seen".into());
            assert_eq!(schema, seen(key));
        }
        let mut schema = json!({"title": "a", "$comment": "a", "anyOf": [{"description": "a"}],
            "default": {"description": "a"}, "const": {"title": "a"}, "required": ["title"]});
        each(&mut schema, &mut |text| *text = "seen".into());
        assert_eq!(
            schema,
            json!({"title": "seen", "$comment": "seen", "anyOf": [{"description": "seen"}],
                "default": {"description": "a"}, "const": {"title": "a"}, "required": ["title"]})
        );
    }
}
