//! References in parameters: data is wired rather than copied (docs/protocol.md, 4 and 5).

use serde_json::{Map, Value, json};
use toolhold_json::grammar_subset::{ANNOTATIONS, GrammarSubset};

/// Levels of a call at which references are offered: the parameter, and what is inside of it down to a
/// property of an object in a list of an object. Each place where one is offered is one more choice in
/// the grammar, and small models take it where they should write the value. What lies deeper is still
/// wired by a reference to what it lies in; the host resolves references at any depth.
pub(super) const LEVELS: usize = 4;

/// The name under which a reference's own schema is hoisted. Those of tools hold an underscore.
const NAME: &str = "reference";

/// Minimum and maximum characters of a reference in the grammar.
const MIN_REFERENCE_CHARS: u64 = 2;
const MAX_REFERENCE_CHARS: u64 = 122;

/// What a reference looks like, once for the whole document: grammars unfold a bounded repetition at
/// every place where it stands.
pub(super) fn define(subset: &mut GrammarSubset) {
    // The bound keeps a small model from filling its reply with one.
    let text = json!({"type": "string", "pattern": "^†[^ ].{0,120}$"});
    subset.define(NAME, text);
}

pub(super) fn reference() -> Value {
    json!({"$ref": format!("#/$defs/{NAME}")})
}

/// Offers a reference for each part of a reduced schema, `levels` deep.
pub(super) fn offer_inside(schema: &mut Value, levels: usize) {
    let Value::Object(keywords) = schema else {
        return;
    };
    if levels == 0 {
        return;
    }
    if let Some(Value::Object(properties)) = keywords.get_mut("properties") {
        for property in properties.values_mut() {
            offer(property, levels);
        }
    }
    for keyword in ["additionalProperties", "items"] {
        if let Some(part) = keywords.get_mut(keyword).filter(|part| part.is_object()) {
            offer(part, levels);
        }
    }
    if let Some(Value::Array(branches)) = keywords.get_mut("anyOf") {
        for branch in branches {
            offer_inside(branch, levels);
        }
    }
}

/// Offers a reference for the value itself, and inside of it.
fn offer(schema: &mut Value, levels: usize) {
    offer_inside(schema, levels - 1);
    // What a reference would stand for is known, and it tells the variants of a union apart.
    let is_discriminator = levels < LEVELS && schema.get("const").is_some();
    if !is_discriminator && !takes_references(schema) {
        *schema = or_reference(std::mem::take(schema));
    }
}

fn or_reference(mut schema: Value) -> Value {
    // They are about both.
    let mut annotations = Map::new();
    if let Some(keywords) = schema.as_object_mut() {
        for key in ANNOTATIONS {
            let own = keywords.shift_remove_entry(key);
            annotations.extend(own);
        }
    }
    let mut widened = match schema {
        Value::Object(mut keywords) if keywords.len() == 1 && keywords.contains_key("anyOf") => {
            if let Some(Value::Array(branches)) = keywords.get_mut("anyOf") {
                branches.push(reference());
            }
            keywords.into()
        }
        schema => json!({"anyOf": [schema, reference()]}),
    };
    if let Value::Object(keywords) = &mut widened {
        keywords.extend(annotations);
    }
    widened
}

/// Whether a reference is among what is allowed already.
fn takes_references(schema: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return false;
    };
    match keywords.get("anyOf") {
        Some(Value::Array(branches)) => branches.iter().any(takes_references),
        _ => {
            let mut all = keywords.keys();
            all.all(|keyword| ANNOTATIONS.contains(&keyword.as_str())) || is_free_text(keywords)
        }
    }
}

/// Any text, of the length of a reference too.
fn is_free_text(schema: &Map<String, Value>) -> bool {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
    schema.get("type") == Some(&json!("string"))
        && ["pattern", "format"]
            .iter()
            .all(|key| !schema.contains_key(*key))
        && bound("minLength").is_none_or(|least| least <= MIN_REFERENCE_CHARS)
        && bound("maxLength").is_none_or(|most| most >= MAX_REFERENCE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_offered_once_for_each_value_and_not_deeper_than_is_said() {
        let or = |schema: Value| json!({"anyOf": [schema, reference()]});
        let object = |x: Value| json!({"type": "object", "properties": {"x": x}});
        let integer = || json!({"type": "integer"});
        for (schema, offered) in [
            (object(integer()), object(or(integer()))),
            (
                object(json!({"description": "d", "type": "integer"})),
                object(json!({"anyOf": [integer(), reference()], "description": "d"})),
            ),
            (
                object(json!({"type": "array", "items": integer()})),
                object(or(json!({"type": "array", "items": or(integer())}))),
            ),
            (
                object(json!({"anyOf": [object(integer()), {"type": "null"}]})),
                object(json!({"anyOf": [object(or(integer())), {"type": "null"}, reference()]})),
            ),
            // One of its branches takes any text.
            (
                object(json!({"anyOf": [{"type": "string"}, integer()]})),
                object(json!({"anyOf": [{"type": "string"}, integer()]})),
            ),
            (object(json!({})), object(json!({}))),
            (object(json!({"const": 1})), object(or(json!({"const": 1})))),
            (
                object(object(json!({"const": 1}))),
                object(or(object(json!({"const": 1})))),
            ),
            (
                json!({"type": "object", "additionalProperties": integer()}),
                json!({"type": "object", "additionalProperties": or(integer())}),
            ),
            (
                object(object(object(object(object(integer()))))),
                object(or(object(or(object(or(object(or(object(integer()))))))))),
            ),
        ] {
            let mut widened = schema.clone();
            offer_inside(&mut widened, LEVELS);
            assert_eq!(widened, offered, "{schema}");
        }
    }
}
