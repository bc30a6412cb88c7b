//! JSON Schemas for clients: wrapped into objects where a session requires it, without features that this
//! server lacks, and without data that `[shields]` hide.

use super::mask::Mask;
use serde_json::{Map, Value, json};

/// Depth bound of the recursive walk; deeper schemas are not changed.
pub const MAX_DEPTH: usize = 64;
/// Keywords whose values are maps of schemas.
const BY_NAME: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords whose meaning does not depend on their siblings.
const ALONE: [&str; 23] = [
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "type",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// A schema as an object schema, where only those are allowed.
#[derive(Debug, PartialEq)]
pub enum ObjectSchema {
    Same(Value),
    /// The schema of the wrapping object's property.
    Wrapped(Value),
    /// The schema has references to itself that break when it is wrapped.
    Nothing,
}

/// `schema` if it describes objects, else an object schema with it as `property`.
pub fn of_object(schema: &Value, property: &str, is_required: bool) -> ObjectSchema {
    if is_required && schema.get("type").and_then(Value::as_str) == Some("object") {
        return ObjectSchema::Same(schema.clone());
    }
    if !refers_only(schema, &to_definition, MAX_DEPTH) {
        return ObjectSchema::Nothing;
    }
    let mut inner = schema.clone();
    let mut outer = json!({"type": "object"});
    for shared in ["$schema", "$defs", "definitions"] {
        let taken = inner
            .as_object_mut()
            .and_then(|keywords| keywords.shift_remove(shared));
        if let Some(taken) = taken {
            outer[shared] = taken;
        }
    }
    outer["properties"] = json!({property: inner});
    if is_required {
        outer["required"] = json!([property]);
    }
    ObjectSchema::Wrapped(outer)
}

/// Removes `x-mcp-header`, which asks clients to repeat arguments in headers that this server does not
/// compare.
pub fn unmirrored(mut schema: Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return schema;
    };
    match &mut schema {
        Value::Object(keywords) => {
            keywords.retain(|keyword, value| keyword != "x-mcp-header" || !value.is_string());
            for value in keywords.values_mut() {
                *value = unmirrored(value.take(), depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = unmirrored(item.take(), depth);
            }
        }
        _ => {}
    }
    schema
}

/// `schema` without hidden data. Texts are masked. A constraint cannot be masked, because no client could
/// send the masked value; so a constraint that holds hidden data is loosened. Everything that satisfies
/// `schema` satisfies the result, and calls are still validated against `schema`.
pub fn masked(schema: Value, mask: &Mask) -> Value {
    if mask.is_off() {
        return schema;
    }
    let schema = described(schema, mask, MAX_DEPTH);
    let definitions = ["$defs", "definitions"];
    let mut definitions = definitions.iter().filter_map(|name| schema.get(name));
    let loose = SchemaLoosener {
        mask,
        has_definitions: definitions.all(|own| is_clean(own, mask, MAX_DEPTH)),
    };
    loose.of(schema, MAX_DEPTH)
}

/// Masks texts in a schema, and removes optional values such as examples.
fn described(mut schema: Value, mask: &Mask, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return schema;
    };
    match &mut schema {
        Value::Object(keywords) => {
            keywords.retain(|keyword, value| {
                !matches!(keyword.as_str(), "default" | "examples" | "example")
                    || !mask.hides_in(value)
            });
            for (keyword, value) in keywords.iter_mut() {
                match (keyword.as_str(), &mut *value) {
                    ("title" | "description" | "$comment", Value::String(words)) => {
                        *words = mask.text(words).into_owned();
                    }
                    ("const" | "enum" | "default" | "examples" | "example", _) => {}
                    (keyword, Value::Object(schemas)) if BY_NAME.contains(&keyword) => {
                        for schema in schemas.values_mut() {
                            *schema = described(schema.take(), mask, depth);
                        }
                    }
                    _ => *value = described(value.take(), mask, depth),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = described(item.take(), mask, depth);
            }
        }
        _ => {}
    }
    schema
}

/// Loosens constraints that hold hidden data.
struct SchemaLoosener<'a> {
    mask: &'a Mask,
    /// Whether the schema's own definitions can be shown and referred to.
    has_definitions: bool,
}

impl SchemaLoosener<'_> {
    fn of(&self, schema: Value, depth: usize) -> Value {
        if self.may_stay(&schema) {
            return schema;
        }
        let (Value::Object(keywords), Some(depth)) = (schema, depth.checked_sub(1)) else {
            return Value::Bool(true);
        };
        // A constraint on further items is dropped if the items before cannot be shown.
        let is_list = !keywords.contains_key("prefixItems");
        // Properties that are not shown count as additional properties.
        let is_closed = !keywords.contains_key("patternProperties")
            && match keywords.get("properties") {
                Some(Value::Object(own)) => own.keys().all(|name| !self.mask.hides(name)),
                _ => true,
            };
        let mut left = Map::new();
        for (keyword, value) in keywords {
            let told = match (keyword.as_str(), value) {
                ("properties", Value::Object(own)) => own
                    .into_iter()
                    .filter(|(name, _)| !self.mask.hides(name))
                    .map(|(name, schema)| (name, self.of(schema, depth)))
                    .collect(),
                ("items", schema @ Value::Object(_)) if is_list => self.of(schema, depth),
                ("required", Value::Array(names)) => names
                    .into_iter()
                    .filter(|name| !self.mask.hides_in(name))
                    .collect(),
                ("additionalProperties", value @ Value::Bool(_)) if is_closed => value,
                ("$defs" | "definitions", value) if self.has_definitions => value,
                (keyword, value) if ALONE.contains(&keyword) && self.may_stay(&value) => value,
                _ => continue,
            };
            left.insert(keyword, told);
        }
        left.into()
    }

    fn may_stay(&self, schema: &Value) -> bool {
        let is_told = |to: &str| self.has_definitions && to_definition(to);
        is_clean(schema, self.mask, MAX_DEPTH) && refers_only(schema, &is_told, MAX_DEPTH)
    }
}

/// Whether a schema holds no hidden data. Its numbers are bounds, except required values.
fn is_clean(schema: &Value, mask: &Mask, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match schema {
        Value::Object(keywords) => keywords.iter().all(|(keyword, value)| {
            !mask.hides(keyword)
                && match keyword.as_str() {
                    "const" | "enum" => !mask.hides_in(value),
                    _ => is_clean(value, mask, depth),
                }
        }),
        Value::Array(items) => items.iter().all(|item| is_clean(item, mask, depth)),
        Value::String(text) => !mask.hides(text),
        _ => true,
    }
}

fn to_definition(to: &str) -> bool {
    to.starts_with("#/$defs/") || to.starts_with("#/definitions/")
}

/// Whether a schema has no id, and all its references satisfy `may`.
fn refers_only(schema: &Value, may: &dyn Fn(&str) -> bool, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match schema {
        Value::Object(keywords) => {
            keywords
                .iter()
                .all(|(keyword, value)| match (keyword.as_str(), value) {
                    ("$ref", Value::String(to)) => may(to),
                    ("$id" | "$anchor" | "$dynamicRef" | "$dynamicAnchor", Value::String(_)) => {
                        false
                    }
                    _ => refers_only(value, may, depth),
                })
        }
        Value::Array(items) => items.iter().all(|item| refers_only(item, may, depth)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolhold_policy::pii::Kind;
    use toolhold_protocol::privacy::Privacy;
    use toolhold_schema::Validator;

    const MAIL: &str = "ada@example.org";

    fn mask() -> Mask {
        Mask::of(&Privacy {
            hide: [Kind::Email, Kind::Card].into(),
            ..Privacy::default()
        })
    }

    #[test]
    fn words_are_masked_and_demands_stay() {
        for (schema, told) in [
            (
                json!({"type": "object", "title": "Of ada@example.org", "properties": {
                    "description": {"type": "string", "description": "Ask ada@example.org.", "maxLength": 4},
                    "n": {"maximum": 4_111_111_111_111_111_u64},
                }, "required": ["description"], "additionalProperties": false}),
                json!({"type": "object", "title": "Of <email>", "properties": {
                    "description": {"type": "string", "description": "Ask <email>.", "maxLength": 4},
                    "n": {"maximum": 4_111_111_111_111_111_u64},
                }, "required": ["description"], "additionalProperties": false}),
            ),
            // Values that a client would send if it trusted the schema.
            (
                json!({"type": "string", "default": MAIL, "examples": [MAIL, "b"]}),
                json!({"type": "string"}),
            ),
            (
                json!({"oneOf": [{"const": 1, "title": MAIL}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"$comment": MAIL}}}),
                json!({"oneOf": [{"const": 1, "title": "<email>"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"$comment": "<email>"}}}),
            ),
            (json!(true), json!(true)),
        ] {
            assert_eq!(masked(schema.clone(), &mask()), told, "{schema}");
            assert_eq!(masked(schema.clone(), &Mask::default()), schema);
        }
    }

    #[test]
    fn where_a_demand_holds_data_less_is_demanded() {
        for (schema, told) in [
            (
                json!({"type": "object", "properties": {
                    "to": {"type": "string", "enum": [MAIL, "b"], "description": "Who."},
                    "n": {"enum": [1, 2]},
                }, "required": ["to"], "additionalProperties": false, "not": {"required": ["n"]}}),
                json!({"type": "object", "properties": {
                    "to": {"type": "string", "description": "Who."},
                    "n": {"enum": [1, 2]},
                }, "required": ["to"], "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "properties": {MAIL: {}, "n": {}}, "required": [MAIL, "n"], "additionalProperties": false}),
                json!({"type": "object", "properties": {"n": {}}, "required": ["n"]}),
            ),
            (
                json!({"type": "array", "items": {"not": {"const": MAIL}, "minLength": 1}}),
                json!({"type": "array", "items": {"minLength": 1}}),
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/a"}, "n": {"const": 4_111_111_111_111_111_u64}},
                    "$defs": {"a": {"pattern": MAIL}}}),
                json!({"properties": {"a": {}, "n": {}}}),
            ),
            (
                json!({"anyOf": [{"const": MAIL}, {"$ref": "#"}]}),
                json!({}),
            ),
            (
                json!({"prefixItems": [{"const": MAIL}], "items": {"type": "integer"}}),
                json!({}),
            ),
        ] {
            assert_eq!(masked(schema.clone(), &mask()), told, "{schema}");
        }
    }

    #[test]
    fn a_schema_too_deep_to_be_looked_at_is_not_told() {
        let deep = (0..100).fold(json!({"const": MAIL}), |inner, _| json!({"items": inner}));
        assert!(!masked(deep, &mask()).to_string().contains(MAIL));
    }

    #[test]
    fn a_schema_of_something_else_is_that_of_a_property() {
        let text = json!({"type": "string"});
        assert_eq!(
            of_object(&text, "input", false),
            ObjectSchema::Wrapped(json!({"type": "object", "properties": {"input": text}}))
        );
        let object = json!({"type": "object"});
        assert_eq!(
            of_object(&object, "input", true),
            ObjectSchema::Same(object.clone())
        );
        assert_eq!(
            of_object(&object, "input", false),
            ObjectSchema::Wrapped(json!({"type": "object", "properties": {"input": object}}))
        );
        assert_eq!(
            of_object(&json!({"items": {"$ref": "#"}}), "a", true),
            ObjectSchema::Nothing
        );
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let words = prop_oneof![Just(MAIL), Just("b"), Just("c")];
        let leaf = prop_oneof![
            Just(json!(true)),
            words.clone().prop_map(|word| json!({"const": word})),
            prop::collection::vec(words.clone(), 1..3).prop_map(|words| json!({"enum": words})),
            words
                .clone()
                .prop_map(|word| json!({"title": word, "type": "string"})),
            words
                .clone()
                .prop_map(|word| json!({"required": [word], "type": "object"})),
            Just(json!({"type": "integer", "maximum": 3})),
            words
                .clone()
                .prop_map(|word| json!({"$ref": format!("#/$defs/{word}")})),
        ];
        leaf.prop_recursive(3, 24, 3, move |inner| {
            let some = prop::collection::vec(inner.clone(), 1..3);
            let closed = any::<bool>();
            prop_oneof![
                inner.clone().prop_map(|inner| json!({"not": inner})),
                inner.clone().prop_map(|inner| json!({"items": inner})),
                some.clone().prop_map(|some| json!({"anyOf": some})),
                some.prop_map(|some| json!({"oneOf": some})),
                (words.clone(), inner.clone(), inner, closed).prop_map(|(name, one, other, closed)| {
                    json!({"properties": {name: one, "n": other}, "additionalProperties": !closed})
                }),
            ]
        })
    }

    proptest! {
        /// Arguments that satisfy the shown schema also satisfy the loosened parts of the original.
        #[test]
        fn values_that_fit_a_schema_fit_its_masked_form(
            mut schema in schemas(),
            own in prop_oneof![Just(json!({"const": MAIL})), Just(json!({"type": "string"}))],
            value in prop_oneof![
                Just(json!(MAIL)), Just(json!("b")), Just(json!(2)), Just(json!([MAIL, 2])), Just(json!({"n": MAIL})),
                Just(json!({MAIL: "b", "n": 1})), Just(json!({"b": [1], "n": [MAIL]})), Just(json!({})),
            ],
        ) {
            if let Some(keywords) = schema.as_object_mut() {
                keywords.insert("$defs".into(), json!({MAIL: own, "b": own, "c": true}));
            }
            let told = masked(schema.clone(), &mask());
            prop_assert!(!told.to_string().contains(MAIL), "{told}");
            let fits = |schema: &Value| Validator::new(schema).map(|own| own.check(&value).is_ok());
            prop_assert!(fits(&told).is_ok(), "{told}");
            if fits(&schema) == Ok(true) {
                prop_assert_eq!(fits(&told), Ok(true), "{} is shown as {}", schema, told);
            }
        }
    }
}
