//! Functions that a request offers: their names, and those of their parameters.

use serde_json::{Map, Value};

/// Maximum parameters of a function whose names are kept; no function that a model can call has more.
const MAX_PARAMETERS: usize = 64;

/// A function that a request offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedFunction {
    pub(crate) name: String,
    /// Whether the function has no parameters: no arguments of its calls can be missing.
    pub(crate) takes_nothing: bool,
    /// Names of its parameters: those that its schema has under `properties`.
    pub(crate) parameters: Vec<String>,
    /// True if it has no other parameters: its schema says nothing of any that are not among these names.
    pub(crate) are_all_named: bool,
}

impl OfferedFunction {
    /// `parameters`: JSON Schema of its arguments.
    pub(crate) fn new(name: &str, parameters: &Value) -> Self {
        let named = parameters.get("properties").and_then(Value::as_object);
        let names = named.into_iter().flat_map(Map::keys);
        let count = named.map_or(0, Map::len);
        Self {
            name: name.to_owned(),
            takes_nothing: is_of_nothing(parameters),
            parameters: names.take(MAX_PARAMETERS).cloned().collect(),
            are_all_named: (1..=MAX_PARAMETERS).contains(&count) && !speaks_of_others(parameters),
        }
    }
}

/// Keywords that may name further properties, or allow them.
const OF_OTHERS: [&str; 11] = [
    "$dynamicRef",
    "$ref",
    "allOf",
    "anyOf",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "oneOf",
    "patternProperties",
    "then",
];

/// Whether a schema says of properties that are not under `properties` something else than that there are none.
fn speaks_of_others(schema: &Value) -> bool {
    let may_be = |keyword: &str| schema.get(keyword).is_some_and(|others| *others != false);
    ["additionalProperties", "unevaluatedProperties"]
        .into_iter()
        .chain(OF_OTHERS)
        .any(may_be)
}

/// Whether a schema names no property, and says nothing of properties without a name but that there are none.
fn is_of_nothing(schema: &Value) -> bool {
    let is_harmless = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        "type" => value == "object",
        "properties" => value.as_object().is_some_and(Map::is_empty),
        "required" => value.as_array().is_some_and(Vec::is_empty),
        "additionalProperties" => *value == Value::Bool(false),
        keyword => ["$id", "$schema", "description", "title"].contains(&keyword),
    };
    let members = schema.as_object();
    members.is_some_and(|members| members.iter().all(is_harmless))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_all_named_where_the_schema_says_nothing_of_others() {
        let many: Map<String, Value> = (0..=MAX_PARAMETERS)
            .map(|at| (format!("p{at}"), json!({})))
            .collect();
        for (parameters, expected) in [
            (json!({"properties": {"x": {}}}), true),
            (
                json!({"properties": {"x": {}}, "additionalProperties": false}),
                true,
            ),
            (
                json!({"properties": {"x": {}}, "additionalProperties": {"type": "string"}}),
                false,
            ),
            (
                json!({"properties": {"x": {}}, "anyOf": [{"properties": {"y": {}}}]}),
                false,
            ),
            (json!({"properties": {}}), false),
            (json!({"properties": many}), false),
            (json!({"type": "object"}), false),
            (json!({"$ref": "#/$defs/x"}), false),
            (json!(true), false),
        ] {
            let function = OfferedFunction::new("f", &parameters);
            assert_eq!(function.are_all_named, expected, "{parameters}");
        }
    }

    #[test]
    fn a_function_without_parameters_is_known_by_its_schema() {
        for (parameters, expected) in [
            (json!({"type": "object"}), true),
            (
                json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
                true,
            ),
            (json!({"type": "object", "title": "None"}), true),
            (json!({"properties": {"x": {}}}), false),
            (
                json!({"type": "object", "additionalProperties": true}),
                false,
            ),
            (json!({"$ref": "#/$defs/x"}), false),
            (json!({"type": "object", "patternProperties": {}}), false),
            (json!(true), false),
            (json!(null), false),
        ] {
            let function = OfferedFunction::new("f", &parameters);
            assert_eq!(function.takes_nothing, expected, "{parameters}");
        }
    }
}
