//! Redaction of JSON Schemas: a member's name there is a property's, and what stands under it is no secret.

use super::{Masking, REDACTED_VALUE, Redaction, is_secret};
use serde_json::{Map, Value};

/// Keywords whose members are schemas under names.
const NAMED_SCHEMAS: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords that hold values of what the schema describes.
const VALUES: [&str; 5] = ["const", "default", "enum", "examples", "example"];
/// Those of them that are a list of values.
const LISTS: [&str; 2] = ["enum", "examples"];

impl Redaction {
    /// A redacted copy of a JSON Schema, which is one, too. Texts are redacted as everywhere; the values that it names
    /// for a property such as `password` are replaced, and the property's schema stays.
    pub fn schema(&self, schema: &Value) -> Value {
        self.schema_at(schema, false, 0)
    }

    /// A redacted copy of schemas by name.
    pub fn schemas(&self, schemas: &Value) -> Value {
        self.named_at(schemas, 0)
    }

    /// `of_secret`: it describes a property whose value is a secret.
    fn schema_at(&self, schema: &Value, of_secret: bool, depth: usize) -> Value {
        if depth > Self::DEEPEST {
            // A schema that everything fits.
            return Value::Bool(true);
        }
        match schema {
            Value::Object(keywords) => {
                let keywords = keywords.iter().map(|(name, value)| {
                    let value = match name.as_str() {
                        name if NAMED_SCHEMAS.contains(&name) => self.named_at(value, depth + 1),
                        name if VALUES.contains(&name) => {
                            self.values_at(name, value, of_secret, depth + 1)
                        }
                        _ => self.schema_at(value, of_secret, depth + 1),
                    };
                    (name.clone(), value)
                });
                Value::Object(keywords.collect::<Map<_, _>>())
            }
            Value::Array(schemas) => {
                let schemas = schemas.iter();
                schemas
                    .map(|schema| self.schema_at(schema, of_secret, depth + 1))
                    .collect()
            }
            // A bound may have as many digits as a card's number.
            Value::Number(_) => schema.clone(),
            other => self.masked_at(other.clone(), depth),
        }
    }

    fn named_at(&self, schemas: &Value, depth: usize) -> Value {
        let Value::Object(schemas) = schemas else {
            return self.masked_at(schemas.clone(), depth);
        };
        let schemas = schemas.iter().map(|(name, schema)| {
            let of_secret = is_secret(name, schema);
            let name = self.masked(name).into_owned();
            (name, self.schema_at(schema, of_secret, depth + 1))
        });
        Value::Object(schemas.collect::<Map<_, _>>())
    }

    fn values_at(&self, keyword: &str, values: &Value, of_secret: bool, depth: usize) -> Value {
        match (of_secret, LISTS.contains(&keyword)) {
            (false, _) => self.masked_at(values.clone(), depth),
            (true, true) => vec![Value::from(REDACTED_VALUE)].into(),
            (true, false) => REDACTED_VALUE.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_property_with_the_name_of_a_secret_keeps_its_schema() {
        let redaction = Redaction::default();
        let schema = json!({"type": "object", "properties": {
            "token": {"type": "string", "minLength": 1},
            "session": {"type": "object", "properties": {"password": {"$ref": "#/$defs/password"}}},
            "card": {"type": "integer", "maximum": 4_111_111_111_111_111_u64},
        }, "required": ["token"], "$defs": {"password": {"type": "string"}}});
        assert_eq!(redaction.schema(&schema), schema);
        let by_name = json!({"sign_in": schema, "token": {"type": "object"}});
        assert_eq!(redaction.schemas(&by_name), by_name);
    }

    #[test]
    fn the_values_that_a_schema_names_are_redacted() {
        let redaction = Redaction::new([("crm".to_owned(), "hunter2-hunter2".to_owned())]);
        let schema = json!({"description": "Of ada@example.org", "properties": {
            "token": {"enum": ["abc", "def"], "default": "abc", "anyOf": [{"const": "abc"}]},
            "login": {"default": {"password": "abc", "name": "hunter2-hunter2"}},
            "default": {"properties": {"token": {"type": "string"}}},
        }});
        let redacted = redaction.schema(&schema);
        let expected = json!({"description": "Of <email>", "properties": {
            "token": {"enum": ["<secret>"], "default": "<secret>", "anyOf": [{"const": "<secret>"}]},
            "login": {"default": {"password": "<secret>", "name": "[secret crm]"}},
            "default": {"properties": {"token": {"type": "string"}}},
        }});
        assert_eq!(redacted, expected);
    }

    #[test]
    fn a_deep_schema_is_cut_to_one_that_everything_fits() {
        let deep = (0..200).fold(
            json!({"const": "ada@example.org"}),
            |inner, _| json!({"not": inner}),
        );
        let text = Redaction::default().schema(&deep).to_string();
        assert!(text.contains("true") && !text.contains("ada"), "{text}");
    }
}
