//! Bytes of memory that arguments take as component values, told before they are made.

use super::shape::{Shape, ShapeMember};
use serde_json::Value;
use wasmtime::component::Val;

/// A value in a list, tuple or record that has room for no more than its members.
const VALUE: u64 = size_of::<Val>() as u64;
/// A member of a record: its name and its value, besides the characters of the name.
const FIELD: u64 = size_of::<(String, Val)>() as u64;
/// A name of flags.
const NAME: u64 = size_of::<String>() as u64;

/// Bytes that [`arguments`](super::arguments) takes at most for these arguments, where it makes values of them at all.
pub fn weight(arguments: &Value, params: &[ShapeMember]) -> u64 {
    let members = params.iter().map(|param| {
        let value = arguments.get(&param.name).unwrap_or(&Value::Null);
        VALUE + inner(value, &param.shape)
    });
    members.sum()
}

/// Bytes beside the value itself.
fn inner(value: &Value, shape: &Shape) -> u64 {
    match shape {
        Shape::Bytes => {
            let bytes = text(value) / 4 * 3 + 3;
            // The list of values, made of the bytes.
            bytes + bytes * VALUE
        }
        Shape::List(of) | Shape::Fixed(of, _) => items(value)
            .iter()
            .map(|item| VALUE + inner(item, of))
            .sum(),
        Shape::Map(key, of) => {
            let pair = |item: &Value| 2 * VALUE + part(item, "key", key) + part(item, "value", of);
            // A list of pairs grows as it is read.
            2 * items(value).iter().map(pair).sum::<u64>()
        }
        Shape::Record(fields) => {
            let field = |field: &ShapeMember| {
                FIELD + field.name.len() as u64 + part(value, &field.name, &field.shape)
            };
            fields.iter().map(field).sum()
        }
        Shape::Tuple(shapes) => {
            let members = items(value).iter().zip(shapes);
            2 * members
                .map(|(item, shape)| VALUE + inner(item, shape))
                .sum::<u64>()
        }
        Shape::Variant(cases) => {
            let payloads = cases.iter().filter_map(|case| {
                let shape = case.shape.as_ref()?;
                Some(VALUE + inner(value.get(&case.name)?, shape))
            });
            name(value) + payloads.sum::<u64>()
        }
        Shape::Option(of) => {
            let bare = inner(value, of);
            let wrapped = value.get("some").map_or(0, |payload| inner(payload, of));
            VALUE + bare.max(wrapped)
        }
        Shape::Result(ok, err) => {
            let sides = [("ok", ok), ("err", err)];
            let sides = sides.map(|(name, of)| of.as_deref().map_or(0, |of| part(value, name, of)));
            VALUE + sides.into_iter().sum::<u64>()
        }
        Shape::Flags(_) => {
            2 * items(value)
                .iter()
                .map(|item| NAME + text(item))
                .sum::<u64>()
        }
        Shape::String | Shape::Enum(_) => text(value),
        Shape::Bool
        | Shape::S8
        | Shape::U8
        | Shape::S16
        | Shape::U16
        | Shape::S32
        | Shape::U32
        | Shape::S64
        | Shape::U64
        | Shape::F32
        | Shape::F64
        | Shape::Char => 0,
    }
}

fn part(value: &Value, name: &str, shape: &Shape) -> u64 {
    value.get(name).map_or(0, |part| inner(part, shape))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.len() as u64)
}

/// Bytes of a case's name, which is copied.
fn name(value: &Value) -> u64 {
    let of_object = value.as_object().and_then(|object| object.keys().next());
    text(value) + of_object.map_or(0, |name| name.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::arguments;
    use crate::value::shape::Case;
    use serde_json::json;

    /// Bytes that the value has allocated.
    fn allocated(value: &Val) -> u64 {
        let boxed = |value: &Option<Box<Val>>| value.as_ref().map_or(0, |it| VALUE + allocated(it));
        let list = |values: &Vec<Val>| {
            values.capacity() as u64 * VALUE + values.iter().map(allocated).sum::<u64>()
        };
        match value {
            Val::String(text) | Val::Enum(text) => text.capacity() as u64,
            Val::List(values) | Val::Tuple(values) | Val::FixedLengthList(values) => list(values),
            Val::Map(pairs) => {
                let inside = pairs.iter().map(|(key, of)| allocated(key) + allocated(of));
                pairs.capacity() as u64 * 2 * VALUE + inside.sum::<u64>()
            }
            Val::Record(fields) => {
                let inside = fields
                    .iter()
                    .map(|(name, of)| name.capacity() as u64 + allocated(of));
                fields.capacity() as u64 * FIELD + inside.sum::<u64>()
            }
            Val::Variant(name, payload) => name.capacity() as u64 + boxed(payload),
            Val::Option(payload) | Val::Result(Ok(payload) | Err(payload)) => boxed(payload),
            Val::Flags(names) => {
                let inside = names.iter().map(|name| name.capacity() as u64).sum::<u64>();
                names.capacity() as u64 * NAME + inside
            }
            _ => 0,
        }
    }

    fn member(name: &str, shape: Shape) -> ShapeMember {
        ShapeMember {
            name: name.to_owned(),
            shape,
        }
    }

    #[test]
    fn what_is_told_is_no_less_than_what_is_made() {
        let cases = vec![
            Case {
                name: "big".into(),
                shape: Some(Shape::String),
            },
            Case {
                name: "none".into(),
                shape: None,
            },
        ];
        let flags = Shape::Flags(vec!["read".into(), "write".into(), "execute".into()]);
        let record = Shape::Record(vec![
            member("a", Shape::Option(Box::new(Shape::String))),
            member(
                "b",
                Shape::Tuple(vec![Shape::U8, Shape::String, Shape::F64]),
            ),
        ]);
        let result = Shape::Result(Some(Box::new(Shape::Bytes)), Some(Box::new(Shape::String)));
        let long = "x".repeat(999);
        for (shape, value, at_most) in [
            (Shape::Bytes, json!("QUJD".repeat(1_000)), 2),
            (Shape::Bytes, json!(""), 100),
            (Shape::String, json!(long), 2),
            (Shape::U32, json!(7), 1),
            (Shape::List(Box::new(Shape::U8)), json!(vec![7; 999]), 2),
            (
                Shape::List(Box::new(Shape::String)),
                json!(vec!["ab"; 99]),
                2,
            ),
            (
                Shape::Fixed(Box::new(Shape::Bool), 3),
                json!([true, false, true]),
                2,
            ),
            (
                Shape::Map(Box::new(Shape::String), Box::new(Shape::U64)),
                json!(vec![json!({"key": "k", "value": 1}); 33]),
                3,
            ),
            (
                Shape::List(Box::new(record.clone())),
                json!(vec![json!({"a": "word", "b": [1, "two", 3.5]}); 50]),
                2,
            ),
            (record, json!({"b": [1, long, 3.5]}), 2),
            (
                Shape::List(Box::new(Shape::Variant(cases))),
                json!([{"big": long}, "none"]),
                2,
            ),
            (
                Shape::List(Box::new(flags)),
                json!(vec![json!(["read", "execute"]); 9]),
                3,
            ),
            (
                Shape::Option(Box::new(Shape::Option(Box::new(Shape::Char)))),
                json!({"some": "c"}),
                3,
            ),
            (result, json!({"ok": "QUJD".repeat(100)}), 2),
            (Shape::Enum(vec!["red".into()]), json!("red"), 2),
        ] {
            let params = [member("p", shape)];
            let given = json!({"p": value});
            let made = arguments(&given, &params).unwrap();
            let bytes = VALUE + made.iter().map(allocated).sum::<u64>();
            let told = weight(&given, &params);
            assert!(told >= bytes, "{told} of {bytes}: {params:?}");
            assert!(told <= at_most * bytes, "{told} of {bytes}: {params:?}");
        }
    }

    #[test]
    fn what_does_not_fit_has_a_weight() {
        let params = [member("p", Shape::Record(vec![member("q", Shape::Bytes)]))];
        for given in [
            json!(null),
            json!({}),
            json!({"p": 1}),
            json!({"p": {"q": []}, "r": 2}),
        ] {
            assert!(weight(&given, &params) < 1_000, "{given}");
        }
    }
}
