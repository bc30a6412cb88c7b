//! Schemas as their authors wrote them, for endpoints without a grammar. Keywords of JSON Schema stay, and other keys are
//! left out: endpoints refuse unknown keys, and texts under them are not checked for hidden characters.

use serde_json::{Map, Value};

/// Keywords of definitions.
pub(super) const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 15] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value has schemas by names of the author's own.
const NAMED: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Keywords whose value is data.
const VALUES: [&str; 26] = [
    "$ref",
    "const",
    "default",
    "dependentRequired",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Returns the schema without keys that are no keywords.
pub(super) fn known(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let kept = keywords.iter().filter_map(|(keyword, value)| {
                let value = match keyword.as_str() {
                    named if NAMED.contains(&named) => known_each(value),
                    schemas if SCHEMAS.contains(&schemas) => known(value),
                    plain if VALUES.contains(&plain) => value.clone(),
                    _ => return None,
                };
                Some((keyword.clone(), value))
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(schemas) => schemas.iter().map(known).collect(),
        other => other.clone(),
    }
}

/// Returns schemas by names, each without keys that are no keywords.
pub(super) fn known_each(named: &Value) -> Value {
    match named {
        Value::Object(named) => {
            let each = named.iter();
            let each = each.map(|(name, schema)| (name.clone(), known(schema)));
            Value::Object(each.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
