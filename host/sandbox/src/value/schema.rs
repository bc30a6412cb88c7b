//! Shapes → JSON Schema, for components that were not written for this host.
//!
//! Only constructs that every endpoint's grammar understands: closed objects with
//! all keys listed, `anyOf` with constants, integer bounds, anchored patterns. [`crate::value`]
//! converts exactly what these schemas accept. What people wrote about types goes into `title` and
//! `description`, which constrain nothing.

use crate::docs::{Docs, FunctionDocs, Glossary, GlossaryEntry, shown};
use crate::value::shape::{Shape, ShapeMember};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The schema of a function's parameters: one closed object.
pub fn parameters(params: &[ShapeMember]) -> Value {
    documented_parameters(params, None)
}

/// The schema of one value.
pub fn of(shape: &Shape) -> Value {
    nested(shape, Glossary::EMPTY)
}

pub(crate) fn documented_parameters(
    params: &[ShapeMember],
    docs: Option<(&Docs, &FunctionDocs)>,
) -> Value {
    object(params, |name| {
        let part = docs.and_then(|(docs, function)| Some((docs, function.parameters.get(name)?)));
        match part {
            Some((docs, part)) => (
                part.description.as_deref().map(shown),
                Glossary::new(docs, &part.ty),
            ),
            None => (None, Glossary::EMPTY),
        }
    })
}

pub(crate) fn documented(shape: &Shape, glossary: Glossary<'_>) -> Value {
    nested(shape, glossary)
}

fn nested(shape: &Shape, glossary: Glossary<'_>) -> Value {
    let entry = glossary.entry();
    let child = |index| glossary.child(&entry, index);
    let schema = match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::S8 => integer(i8::MIN, i8::MAX),
        Shape::U8 => integer(u8::MIN, u8::MAX),
        Shape::S16 => integer(i16::MIN, i16::MAX),
        Shape::U16 => integer(u16::MIN, u16::MAX),
        Shape::S32 => integer(i32::MIN, i32::MAX),
        Shape::U32 => integer(u32::MIN, u32::MAX),
        Shape::S64 => {
            json!({"anyOf": [integer(i64::MIN, i64::MAX), {"type": "string", "pattern": "^-?[0-9]{1,19}$"}]})
        }
        Shape::U64 => {
            json!({"anyOf": [integer(0, u64::MAX), {"type": "string", "pattern": "^[0-9]{1,20}$"}]})
        }
        Shape::F32 | Shape::F64 => json!({"type": "number"}),
        Shape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Shape::String => json!({"type": "string"}),
        Shape::Bytes => {
            json!({"type": "string", "contentEncoding": "base64", "description": "bytes in base64"})
        }
        Shape::List(item) => json!({"type": "array", "items": nested(item, child(0))}),
        Shape::Fixed(item, length) => {
            json!({"type": "array", "items": nested(item, child(0)), "minItems": length, "maxItems": length})
        }
        Shape::Map(key, value) => {
            let pair = json!({
                "type": "object",
                "properties": {"key": nested(key, child(0)), "value": nested(value, child(1))},
                "required": ["key", "value"],
                "additionalProperties": false,
            });
            json!({"type": "array", "items": pair})
        }
        Shape::Record(fields) => object(fields, |name| glossary.part(&entry, name)),
        Shape::Tuple(shapes) => {
            let items: Vec<_> = shapes
                .iter()
                .enumerate()
                .map(|(i, shape)| nested(shape, child(i)))
                .collect();
            json!({"type": "array", "minItems": items.len(), "maxItems": items.len(), "prefixItems": items})
        }
        Shape::Variant(cases) => {
            let cases = cases.iter().map(|case| {
                let (description, of) = glossary.part(&entry, &case.name);
                let schema = match &case.shape {
                    None => json!({"const": case.name}),
                    Some(shape) => single(&case.name, nested(shape, of)),
                };
                described(schema, None, description)
            });
            json!({"anyOf": cases.collect::<Vec<_>>()})
        }
        Shape::Enum(names) => {
            let schema = json!({"type": "string", "enum": **names});
            described(schema, None, meanings(names, glossary, &entry))
        }
        Shape::Option(inner) => {
            let value = match &**inner {
                Shape::Option(_) => single("some", nested(inner, child(0))),
                inner => nested(inner, child(0)),
            };
            json!({"anyOf": [value, {"type": "null"}]})
        }
        Shape::Result(ok, err) => {
            let side = |name, shape: &Option<Box<Shape>>, index| {
                let payload = shape.as_deref();
                single(
                    name,
                    payload.map_or(json!({"type": "null"}), |s| nested(s, child(index))),
                )
            };
            json!({"anyOf": [side("ok", ok, 0), side("err", err, 1)]})
        }
        Shape::Flags(names) => {
            let item = json!({"type": "string", "enum": **names});
            let item = described(item, None, meanings(names, glossary, &entry));
            json!({"type": "array", "items": item, "maxItems": names.len()})
        }
    };
    described(schema, entry.name, entry.description)
}

fn object<'a>(
    parts: &[ShapeMember],
    docs: impl Fn(&str) -> (Option<String>, Glossary<'a>),
) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for ShapeMember { name, shape } in parts {
        let (description, of) = docs(name);
        let schema = described(nested(shape, of), None, description);
        if !shape.is_optional() {
            required.push(name.as_str());
        }
        properties.insert(name.clone(), schema);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// What the names of an enum or of flags mean, one a line: a schema has no place at each.
fn meanings(names: &[String], glossary: Glossary<'_>, entry: &GlossaryEntry<'_>) -> Option<String> {
    let mut lines = String::new();
    for name in names {
        if let (Some(meaning), _) = glossary.part(entry, name) {
            let _ = writeln!(lines, "{name}: {meaning}");
        }
    }
    (!lines.is_empty()).then(|| lines.trim_end().to_owned())
}

/// Adds what is known. Called from the inside out: the sentence about a field comes before the one
/// about its type, and what the schema itself had to say comes last.
fn described(mut schema: Value, title: Option<String>, description: Option<String>) -> Value {
    let Some(object) = schema.as_object_mut() else {
        return schema;
    };
    if let Some(title) = title {
        object.insert("title".into(), title.into());
    }
    if let Some(mut text) = description.filter(|text| !text.is_empty()) {
        if let Some(inner) = object.get("description").and_then(Value::as_str) {
            let _ = write!(text, "\n{inner}");
        }
        object.insert("description".into(), text.into());
    }
    schema
}

fn single(name: &str, schema: Value) -> Value {
    json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false})
}

fn integer(minimum: impl Into<Value>, maximum: impl Into<Value>) -> Value {
    json!({"type": "integer", "minimum": minimum.into(), "maximum": maximum.into()})
}
