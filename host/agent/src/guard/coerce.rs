//! Light faults in arguments, put right (PROTOCOL.md, 7): a number in a string, a missing default, a
//! null for an absent optional, a single value where a list is due.
//!
//! Only what has one reading is touched, and no value is ever made up. Whether the outcome satisfies
//! the schema is for validation to say: this is tried after arguments failed it, never before.

use serde_json::{Map, Number, Value};

/// Arguments are validated to be no deeper than this.
const MAX_DEPTH: usize = 64;
/// References followed on the way to one value.
const MAX_REFERENCES: usize = 8;
/// Repairs of one call that are told.
const MAX_TOLD: usize = 8;

/// Arguments that were put right, and what was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Coerced {
    pub arguments: Value,
    /// Each with its JSON pointer, for the record.
    pub repairs: Vec<String>,
}

/// `arguments` with what `schema` lets be read in one way only; nothing if that is nothing.
pub fn coerce(schema: &Value, arguments: &Value) -> Option<Coerced> {
    let mut coercion = Coercion {
        root: schema,
        repairs: Vec::new(),
    };
    let mut arguments = arguments.clone();
    coercion.value(schema, &mut arguments, &mut String::new(), 0);
    (!coercion.repairs.is_empty()).then_some(Coerced {
        arguments,
        repairs: coercion.repairs,
    })
}

struct Coercion<'a> {
    root: &'a Value,
    repairs: Vec<String>,
}

impl<'a> Coercion<'a> {
    fn value(&mut self, schema: &'a Value, value: &mut Value, place: &mut String, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let schema = self.meant(schema);
        let types = types(schema);
        if let Some(read) = read(&types, value) {
            self.note(place, read.what);
            *value = read.value;
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, place, depth),
            Value::Array(items) => {
                let Some(schema) = schema.get("items") else {
                    return;
                };
                let length = place.len();
                for (index, item) in items.iter_mut().enumerate() {
                    place.push_str(&format_index(index));
                    self.value(schema, item, place, depth + 1);
                    place.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(
        &mut self,
        schema: &'a Value,
        fields: &mut Map<String, Value>,
        place: &mut String,
        depth: usize,
    ) {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return;
        };
        let required = |name: &str| {
            let required = schema.get("required").and_then(Value::as_array);
            required.is_some_and(|names| names.iter().any(|known| known == name))
        };
        let length = place.len();
        for (name, property) in properties {
            place.push('/');
            place.push_str(&name.replace('~', "~0").replace('/', "~1"));
            let may_be_null = self.accepts_null(property);
            let property = self.meant(property);
            match fields.get_mut(name) {
                Some(Value::Null) if may_be_null => {}
                Some(Value::Null) => {
                    // Written out where it should have been left out.
                    if let Some(default) = property.get("default") {
                        fields.insert(name.clone(), default.clone());
                        self.note(place, "null was replaced by the default");
                    } else if !required(name) {
                        fields.shift_remove(name);
                        self.note(place, "null was left out");
                    }
                }
                Some(value) => self.value(property, value, place, depth + 1),
                None if required(name) => {
                    if let Some(default) = property.get("default") {
                        fields.insert(name.clone(), default.clone());
                        self.note(place, "the default was filled in");
                    }
                }
                None => {}
            }
            place.truncate(length);
        }
    }

    /// The schema behind references within the document, and behind "this or null".
    fn meant(&self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..MAX_REFERENCES {
            if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
                match pointer
                    .strip_prefix('#')
                    .and_then(|pointer| self.root.pointer(pointer))
                {
                    Some(target) => schema = target,
                    None => return schema,
                }
            } else if let Some(only) = only_branch(schema) {
                schema = only;
            } else {
                return schema;
            }
        }
        schema
    }

    fn accepts_null(&self, schema: &'a Value) -> bool {
        if branches(schema)
            .is_some_and(|branches| branches.iter().any(|branch| types(branch) == ["null"]))
        {
            return true;
        }
        let schema = self.meant(schema);
        let types = types(schema);
        let is_open = types.is_empty()
            && ["enum", "const"]
                .iter()
                .all(|key| schema.get(*key).is_none());
        is_open || types.contains(&"null")
    }

    fn note(&mut self, place: &str, what: &str) {
        if self.repairs.len() < MAX_TOLD {
            let place = if place.is_empty() {
                "the arguments"
            } else {
                place
            };
            self.repairs.push(format!("{place}: {what}"));
        }
    }
}

struct Read {
    value: Value,
    what: &'static str,
}

/// The one other way to read a value of the wrong type, if there is one.
fn read(types: &[&str], value: &Value) -> Option<Read> {
    let is = |ty: &str| types.contains(&ty);
    let wants_number = is("integer") || is("number");
    let found = |value: Value, what: &'static str| Some(Read { value, what });
    match value {
        _ if types.is_empty() => None,
        Value::String(_) if is("string") => None,
        Value::String(text) if wants_number && number(text).is_some() => {
            found(number(text)?.into(), "a number was written as a text")
        }
        Value::String(text) if is("boolean") && matches!(text.as_str(), "true" | "false") => found(
            (text == "true").into(),
            "true or false was written as a text",
        ),
        Value::String(text) if is("object") || is("array") => {
            let parsed: Value = serde_json::from_str(text).ok()?;
            let fits = (parsed.is_object() && is("object")) || (parsed.is_array() && is("array"));
            if fits {
                return found(parsed, "JSON was written as a text");
            }
            listed(types, value)
        }
        Value::Number(number)
            if is("integer") && number.as_i64().is_none() && number.as_u64().is_none() =>
        {
            let whole = number
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() < 9e15)?;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole, and within what f64 holds exactly"
            )]
            found(
                (whole as i64).into(),
                "a whole number was written with a fraction",
            )
        }
        Value::Number(_) if wants_number => None,
        Value::Number(number) if is("string") => {
            found(number.to_string().into(), "a text was written as a number")
        }
        other if has_type(types, other) => None,
        _ => listed(types, value),
    }
}

/// A single value where only a list is due.
fn listed(types: &[&str], value: &Value) -> Option<Read> {
    (types == ["array"] && !value.is_array() && !value.is_null()).then(|| Read {
        value: Value::Array(vec![value.clone()]),
        what: "a single value was written where a list is due",
    })
}

/// As JSON writes it: no spaces, no plus, no hexadecimal.
fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text.trim()).ok()
}

fn has_type(types: &[&str], value: &Value) -> bool {
    types.contains(&match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    })
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The branches of `anyOf` or `oneOf`.
fn branches(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(*key)?.as_array())
}

/// Of branches with one besides null, that one.
fn only_branch(schema: &Value) -> Option<&Value> {
    let mut others = branches(schema)?
        .iter()
        .filter(|branch| types(branch) != ["null"]);
    others.next().filter(|_| others.next().is_none())
}

fn format_index(index: usize) -> String {
    format!("/{index}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Validator;
    use proptest::prelude::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "x": {"type": ["number", "null"]},
                "b": {"type": "boolean"},
                "s": {"type": "string"},
                "l": {"type": "array", "items": {"type": "integer"}},
                "o": {"$ref": "#/$defs/o"},
                "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "e": {"enum": ["a", "b"], "default": "a"},
                "d": {"type": "integer", "default": 7},
            },
            "required": ["d"],
            "$defs": {"o": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        })
    }

    #[test]
    fn light_faults_are_put_right() {
        for (given, expect, what) in [
            (
                json!({"n": "5", "d": 1}),
                json!({"n": 5, "d": 1}),
                "/n: a number",
            ),
            (
                json!({"n": 5.0, "d": 1}),
                json!({"n": 5, "d": 1}),
                "/n: a whole number",
            ),
            (
                json!({"x": "1.5", "d": 1}),
                json!({"x": 1.5, "d": 1}),
                "/x: a number",
            ),
            (
                json!({"b": "true", "d": 1}),
                json!({"b": true, "d": 1}),
                "/b: true or false",
            ),
            (
                json!({"s": 5, "d": 1}),
                json!({"s": "5", "d": 1}),
                "/s: a text",
            ),
            (
                json!({"l": 5, "d": 1}),
                json!({"l": [5], "d": 1}),
                "/l: a single value",
            ),
            (
                json!({"l": "5", "d": 1}),
                json!({"l": [5], "d": 1}),
                "/l: a single value",
            ),
            (
                json!({"l": ["5", 6], "d": 1}),
                json!({"l": [5, 6], "d": 1}),
                "/l/0: a number",
            ),
            (
                json!({"l": "[1,2]", "d": 1}),
                json!({"l": [1, 2], "d": 1}),
                "/l: JSON",
            ),
            (
                json!({"o": "{\"n\": \"1\"}", "d": 1}),
                json!({"o": {"n": 1}, "d": 1}),
                "/o: JSON",
            ),
            (
                json!({"n": null, "d": 1}),
                json!({"d": 1}),
                "/n: null was left out",
            ),
            (
                json!({"e": null, "d": 1}),
                json!({"e": "a", "d": 1}),
                "/e: null was replaced",
            ),
            (
                json!({"m": "3", "d": 1}),
                json!({"m": 3, "d": 1}),
                "/m: a number",
            ),
            (json!({}), json!({"d": 7}), "/d: the default"),
        ] {
            let coerced =
                coerce(&schema(), &given).unwrap_or_else(|| panic!("{given} was left as it is"));
            assert_eq!(coerced.arguments, expect, "{given}");
            assert!(
                coerced
                    .repairs
                    .iter()
                    .any(|repair| repair.starts_with(what)),
                "{given}: {coerced:?}"
            );
            assert_eq!(
                Validator::new(&schema()).unwrap().check(&coerced.arguments),
                Ok(()),
                "{given}"
            );
        }
    }

    #[test]
    fn what_has_no_one_reading_is_left() {
        for given in [
            json!({"n": "five", "d": 1}),
            json!({"n": "0x5", "d": 1}),
            json!({"n": 5.5, "d": 1}),
            json!({"n": true, "d": 1}),
            json!({"b": "yes", "d": 1}),
            json!({"s": true, "d": 1}),
            json!({"s": {"a": 1}, "d": 1}),
            json!({"x": null, "d": 1}),
            json!({"m": null, "d": 1}),
            json!({"e": "A", "d": 1}),
            json!({"unknown": "5", "d": 1}),
            json!("text"),
        ] {
            assert_eq!(coerce(&schema(), &given), None, "{given}");
        }
    }

    #[test]
    fn references_in_a_circle_end() {
        let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(coerce(&schema, &json!({"a": 1})), None);
    }

    proptest! {
        /// What is valid has nothing to put right.
        #[test]
        fn valid_arguments_are_left(n in any::<i64>(), s in ".{0,8}", l in proptest::collection::vec(any::<i64>(), 0..3), b in any::<bool>()) {
            let given = json!({"n": n, "s": s, "l": l, "b": b, "d": 1, "o": {"n": n}});
            prop_assert_eq!(coerce(&schema(), &given), None);
        }
    }
}
