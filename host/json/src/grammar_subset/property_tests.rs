//! A value that fits a schema as it is read (docs/protocol.md, 4.7) fits the reduced one, for random schemas and values made
//! for them. Not among them are values that the author's schema accepts and the reading does not: with members beside named
//! ones, items behind positions, or no object where there are properties alone. They cannot be written under a grammar, and
//! are accepted without one.

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;
use toolhold_schema::{SchemaFault, Validator};

/// Random schemas.
const SCHEMAS: u64 = 600;
/// Values that are made after each.
const VALUES_PER_SCHEMA: u64 = 12;
/// Values that must at least fit their schema, so that the test tests something.
const MIN_FITTING: usize = 800;

/// Random choices.
struct Dice(u64);

impl Dice {
    /// A number below `most`.
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % most.max(1)
    }

    fn pick<'v>(&mut self, values: &'v [Value]) -> Option<&'v Value> {
        values.get(self.below(values.len()))
    }
}

/// A value after a schema, which it may miss.
fn fill(schema: &Value, root: &Value, dice: &mut Dice, depth: usize) -> Value {
    let any = |dice: &mut Dice| {
        let values = [
            json!(1),
            json!("a"),
            json!(null),
            json!(0.5),
            json!([]),
            json!({}),
        ];
        dice.pick(&values).cloned().unwrap_or_default()
    };
    let Value::Object(keywords) = schema else {
        return any(dice);
    };
    if depth > 8 {
        return any(dice);
    }
    if let Some(only) = keywords.get("const") {
        return only.clone();
    }
    let list = |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        return dice.pick(values).cloned().unwrap_or_default();
    }
    let mut filled = Vec::new();
    let ty = keywords.get("type").cloned();
    let ty = match ty {
        Some(Value::Array(types)) => dice.pick(&types).cloned(),
        ty => ty,
    };
    let ty = ty.as_ref().and_then(Value::as_str);
    match ty {
        _ if ty == Some("object") || (ty.is_none() && keywords.contains_key("properties")) => {
            let mut object = Map::new();
            let named = keywords.get("properties").and_then(Value::as_object);
            for (name, schema) in named.into_iter().flatten() {
                if dice.below(4) > 0 {
                    object.insert(name.clone(), fill(schema, root, dice, depth + 1));
                }
            }
            let named = keywords.get("patternProperties").and_then(Value::as_object);
            for schema in named.into_iter().flat_map(Map::values) {
                object.insert("x-1".into(), fill(schema, root, dice, depth + 1));
            }
            if let Some(schema) = keywords
                .get("additionalProperties")
                .filter(|own| **own != false)
            {
                object.insert("zz".into(), fill(schema, root, dice, depth + 1));
            }
            filled.push(Value::Object(object));
        }
        Some("array") => {
            let mut items = Vec::new();
            for schema in list("prefixItems").into_iter().flatten() {
                items.push(fill(schema, root, dice, depth + 1));
            }
            if let Some(schema) = keywords.get("items").filter(|own| **own != false) {
                for _ in 0..dice.below(3) {
                    items.push(fill(schema, root, dice, depth + 1));
                }
            }
            filled.push(items.into());
        }
        Some("string") => filled.push(json!("a".repeat(dice.below(4)))),
        Some("integer") => filled.push(json!(dice.below(12))),
        Some("number") => filled.push(json!(dice.below(24) as f64 / 2.0)),
        Some("boolean") => filled.push(json!(dice.below(2) == 0)),
        Some("null") => filled.push(Value::Null),
        _ => {}
    }
    if let Some(Value::String(reference)) = keywords.get("$ref")
        && let Some(target) = root.pointer(reference.trim_start_matches('#'))
    {
        filled.push(fill(target, root, dice, depth + 1));
    }
    for part in list("allOf").into_iter().flatten() {
        filled.push(fill(part, root, dice, depth + 1));
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(branch) = list(keyword).and_then(|branches| dice.pick(branches)) {
            filled.push(fill(branch, root, dice, depth + 1));
        }
    }
    for keyword in ["if", "then", "else"] {
        if let Some(part) = keywords.get(keyword).filter(|_| dice.below(2) == 0) {
            filled.push(fill(part, root, dice, depth + 1));
        }
    }
    let dependent = keywords.get("dependentSchemas").and_then(Value::as_object);
    for part in dependent.into_iter().flat_map(Map::values) {
        filled.push(fill(part, root, dice, depth + 1));
    }
    // Objects of several parts are one.
    let mut whole = if filled.is_empty() {
        any(dice)
    } else {
        filled.remove(0)
    };
    for part in filled {
        match (&mut whole, part) {
            (Value::Object(whole), Value::Object(part)) => whole.extend(part),
            (whole, part) if dice.below(2) == 0 => *whole = part,
            _ => {}
        }
    }
    whole
}

/// The schema as it is read: objects and lists have what is named and nothing else, and properties are those of objects.
fn meant(schema: &Value, is_place: bool) -> Value {
    let Value::Object(keywords) = schema else {
        return schema.clone();
    };
    let mut own = Map::new();
    for (keyword, value) in keywords {
        let value = match (keyword.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(named)) => {
                let each = named.iter();
                let each = each.map(|(name, schema)| (name.clone(), meant(schema, true)));
                Value::Object(each.collect())
            }
            ("dependentSchemas" | "$defs", Value::Object(named)) => {
                let each = named.iter();
                let each = each.map(|(name, schema)| (name.clone(), meant(schema, false)));
                Value::Object(each.collect())
            }
            ("prefixItems", Value::Array(each)) => each.iter().map(|it| meant(it, true)).collect(),
            ("allOf" | "anyOf" | "oneOf", Value::Array(each)) => {
                each.iter().map(|it| meant(it, false)).collect()
            }
            ("items" | "additionalProperties", one) => meant(one, true),
            ("then" | "else", one) => meant(one, false),
            (_, value) => value.clone(),
        };
        own.insert(keyword.clone(), value);
    }
    if own.contains_key("properties") && !own.contains_key("type") {
        own.insert("type".into(), json!("object"));
    }
    if is_place {
        return json!({"allOf": [own], "unevaluatedProperties": false, "unevaluatedItems": false});
    }
    own.into()
}

fn with(base: Value, keyword: &'static str, value: Value) -> Value {
    match base {
        Value::Object(mut keywords) => {
            keywords.insert(keyword.into(), value);
            keywords.into()
        }
        _ => json!({keyword: value}),
    }
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({"type": "string", "minLength": 1})),
        Just(json!({"type": "string", "pattern": "^a|b$"})),
        Just(json!({"type": "integer", "minimum": 2.5, "maximum": 9})),
        Just(json!({"type": "integer", "multipleOf": 2})),
        Just(json!({"type": "number", "exclusiveMinimum": 1})),
        Just(json!({"type": ["integer", "null"]})),
        Just(json!({"type": "object"})),
        Just(json!({"enum": ["a", 1, {"a": 1}]})),
        Just(json!({"const": 1})),
        Just(json!({"$ref": "#/$defs/D"})),
        Just(json!({"$ref": "#/$defs/E"})),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let names = || prop::collection::vec("[a-d]", 0..3);
        let open = prop_oneof![
            Just(None::<Value>),
            Just(Some(json!(true))),
            Just(Some(json!(false))),
            inner.clone().prop_map(Some),
        ];
        let object = (
            prop::collection::vec(("[a-d]", inner.clone()), 0..4),
            names(),
            open.clone(),
            prop::option::weighted(0.2, inner.clone()),
            any::<bool>(),
        );
        let object = object.prop_map(|(named, mut required, additional, pattern, has_type)| {
            let named: Map<String, Value> = named.into_iter().collect();
            required.sort();
            required.dedup();
            let mut schema = json!({"properties": named, "required": required});
            if has_type {
                schema["type"] = json!("object");
            }
            if let Some(additional) = additional {
                schema["additionalProperties"] = additional;
            }
            if let Some(pattern) = pattern {
                schema["patternProperties"] = json!({"^x-": pattern});
            }
            schema
        });
        let list = (prop::collection::vec(inner.clone(), 0..3), open);
        let list = list.prop_map(|(prefix, items)| {
            let mut schema = json!({"type": "array", "maxItems": 4});
            if !prefix.is_empty() {
                schema["prefixItems"] = prefix.into();
            }
            if let Some(items) = items {
                schema["items"] = items;
            }
            schema
        });
        let keyword = prop_oneof![Just("allOf"), Just("anyOf"), Just("oneOf")];
        let parts = prop::collection::vec(inner.clone(), 1..4);
        let combined = (inner.clone(), keyword, parts, any::<bool>());
        let combined = combined.prop_map(|(base, keyword, parts, is_beside)| {
            let base = if is_beside { base } else { json!({}) };
            with(base, keyword, parts.into())
        });
        let conditional = (inner.clone(), inner.clone(), inner.clone(), inner.clone());
        let conditional = conditional.prop_map(|(base, condition, then, other)| {
            with(
                with(with(base, "if", condition), "then", then),
                "else",
                other,
            )
        });
        let dependent = (inner.clone(), "[a-d]", inner.clone());
        let dependent = dependent.prop_map(|(base, name, schema)| {
            with(base, "dependentSchemas", json!({(name): schema}))
        });
        let referring = inner.prop_map(|base| with(base, "$ref", json!("#/$defs/D")));
        prop_oneof![
            4 => object,
            2 => list,
            3 => combined,
            1 => conditional,
            1 => dependent,
            1 => referring,
        ]
    })
}

fn documents() -> impl Strategy<Value = Value> {
    (schemas(), schemas(), schemas())
        .prop_map(|(root, one, two)| with(root, "$defs", json!({"D": one, "E": two})))
}

/// The reduced schema as a whole document.
fn reduced(schema: &Value, mut subset: GrammarSubset) -> Value {
    let reduced = subset.reduce(schema, "t");
    subset.finish(reduced)
}

/// The members as an object's schema.
fn members(schema: &Value) -> Value {
    let mut subset = GrammarSubset::new(None);
    let members = subset.reduce_members(schema, "t", |_| ());
    subset.finish(json!({
        "type": "object",
        "properties": members.properties,
        "required": members.required,
        "additionalProperties": members.additional,
    }))
}

fn fits(validator: &Validator, value: &Value) -> bool {
    validator.check(value).is_ok()
}

#[test]
fn no_reduced_schema_refuses_what_its_author_means() {
    let mut runner = TestRunner::deterministic();
    let strategy = documents();
    let mut fitting = 0;
    for round in 0..SCHEMAS {
        let schema = strategy.new_tree(&mut runner).unwrap().current();
        let mut place = meant(&schema, true);
        let own = place["allOf"][0].as_object_mut().unwrap();
        place["$defs"] = own.shift_remove("$defs").unwrap();
        // A schema may refer to itself without a place between.
        let (Ok(author), Ok(closed)) = (Validator::new(&schema), Validator::new(&place)) else {
            continue;
        };
        let plain = reduced(&schema, GrammarSubset::new(None));
        let told = reduced(&schema, GrammarSubset::new(None).with_descriptions());
        let checks = [plain, told, members(&schema)].map(|reduced| {
            let validator = match Validator::new(&reduced) {
                // The reduced schema is checked by servers, which have bounds of their own.
                Err(SchemaFault::TooCostly(_)) => None,
                built => Some(built.unwrap()),
            };
            (reduced, validator)
        });
        for seed in 0..VALUES_PER_SCHEMA {
            let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round);
            let value = fill(&schema, &schema, &mut dice, 0);
            if !fits(&author, &value) || !fits(&closed, &value) {
                continue;
            }
            fitting += 1;
            let is_object = value.as_object().is_some_and(|value| !value.is_empty());
            // Members are those of an object.
            let most = if is_object { 3 } else { 2 };
            for (reduced, validator) in checks.iter().take(most) {
                assert!(
                    validator.as_ref().is_none_or(|it| fits(it, &value)),
                    "{schema}: {value} does not fit {reduced}"
                );
            }
        }
    }
    assert!(fitting >= MIN_FITTING, "{fitting} values fitted");
}
