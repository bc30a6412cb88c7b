//! Bytes of memory that arguments take as component values, told before they are made.

use super::lower::single;
use super::shape::{Shape, ShapeMember};
use serde_json::Value;
use std::ops::ControlFlow;
use wasmtime::component::Val;

/// A value in a list, tuple or record that has room for no more than its members.
const VALUE: u64 = size_of::<Val>() as u64;
/// A member of a record: its name and its value, besides the characters of the name.
const FIELD: u64 = size_of::<(String, Val)>() as u64;
/// A name of flags.
const NAME: u64 = size_of::<String>() as u64;

/// Bytes that [`arguments`](super::arguments) takes at most for these arguments, where it makes values of them at all.
/// More than `most` are not told exactly: counting ends there. A few bytes of JSON may be many values (records whose
/// members are left out), and counting them should take no longer than making as many as are allowed.
pub fn weight(arguments: &Value, params: &[ShapeMember], most: u64) -> u64 {
    let mut scale = Scale { told: 0, most };
    // Broken off or not: what was told is the answer.
    let _ = scale.params(arguments, params);
    scale.told
}

/// Walks a value and its shape side by side, as `lower` does, and comes to each part of the value once.
struct Scale {
    told: u64,
    most: u64,
}

impl Scale {
    fn params(&mut self, arguments: &Value, params: &[ShapeMember]) -> ControlFlow<()> {
        for param in params {
            self.add(VALUE)?;
            self.part(arguments, param)?;
        }
        ControlFlow::Continue(())
    }

    fn add(&mut self, bytes: u64) -> ControlFlow<()> {
        self.told = self.told.saturating_add(bytes);
        if self.told > self.most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Adds what is beside the value itself.
    fn inner(&mut self, value: &Value, shape: &Shape) -> ControlFlow<()> {
        match shape {
            Shape::Bytes => {
                let bytes = text(value) / 4 * 3 + 3;
                // The list of values, made of the bytes.
                self.add(bytes + bytes * VALUE)?;
            }
            Shape::List(of) | Shape::Fixed(of, _) => {
                for item in items(value) {
                    self.add(VALUE)?;
                    self.inner(item, of)?;
                }
            }
            Shape::Map(key, of) => {
                for item in items(value) {
                    self.add(2 * VALUE)?;
                    for (name, shape) in [("key", key), ("value", of)] {
                        if let Some(part) = item.get(name) {
                            self.inner(part, shape)?;
                        }
                    }
                }
            }
            Shape::Record(fields) => {
                for field in fields {
                    self.add(FIELD + field.name.len() as u64)?;
                    self.part(value, field)?;
                }
            }
            Shape::Tuple(shapes) => {
                for (item, shape) in items(value).iter().zip(shapes) {
                    self.add(VALUE)?;
                    self.inner(item, shape)?;
                }
            }
            Shape::Variant(cases) => match single(value) {
                Some((name, payload)) => {
                    self.add(name.len() as u64)?;
                    let case = cases.find(name).and_then(|case| case.shape.as_ref());
                    self.boxed(payload, case)?;
                }
                None => self.add(text(value))?,
            },
            Shape::Option(_) if value.is_null() => {}
            Shape::Option(of) => match (&**of, single(value)) {
                (Shape::Option(_), Some(("some", payload))) => self.boxed(payload, Some(of))?,
                (Shape::Option(_), _) => {}
                (of, _) => self.boxed(value, Some(of))?,
            },
            Shape::Result(ok, err) => match single(value) {
                Some(("ok", payload)) => self.boxed(payload, ok.as_deref())?,
                Some(("err", payload)) => self.boxed(payload, err.as_deref())?,
                _ => {}
            },
            Shape::Flags(_) => {
                for item in items(value) {
                    self.add(NAME + text(item))?;
                }
            }
            Shape::String | Shape::Enum(_) => self.add(text(value))?,
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
            | Shape::Char => {}
        }
        ControlFlow::Continue(())
    }

    /// A member of an object; one that is left out takes nothing beside its place.
    fn part(&mut self, value: &Value, member: &ShapeMember) -> ControlFlow<()> {
        match value.get(&member.name) {
            Some(part) => self.inner(part, &member.shape),
            None => ControlFlow::Continue(()),
        }
    }

    /// A payload, which has an allocation of its own; none without a shape.
    fn boxed(&mut self, payload: &Value, shape: Option<&Shape>) -> ControlFlow<()> {
        match shape {
            Some(shape) => {
                self.add(VALUE)?;
                self.inner(payload, shape)
            }
            None => ControlFlow::Continue(()),
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::arguments;
    use crate::value::shape::{Case, NamedParts};
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

    /// A string within `levels` types of one kind.
    fn within(levels: usize, of: fn(Shape) -> Shape) -> Shape {
        (0..levels).fold(Shape::String, |inner, _| of(inner))
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
        let names = ["read", "write", "execute"].map(str::to_owned);
        let flags = Shape::Flags(names.into_iter().collect());
        let record = Shape::Record(vec![
            member("a", Shape::Option(Box::new(Shape::String))),
            member(
                "b",
                Shape::Tuple(vec![Shape::U8, Shape::String, Shape::F64]),
            ),
        ]);
        let result = Shape::Result(Some(Box::new(Shape::Bytes)), Some(Box::new(Shape::String)));
        let long = "x".repeat(999);
        let tuples = (0..8).fold(json!(long), |inner, _| json!([inner]));
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
                Shape::List(Box::new(Shape::Variant(cases.into()))),
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
            (Shape::Enum(vec!["red".to_owned()].into()), json!("red"), 2),
            (
                Shape::List(Box::new(Shape::Tuple(vec![Shape::U8]))),
                json!(vec![[7]; 99]),
                1,
            ),
            (within(8, |of| Shape::Tuple(vec![of])), tuples, 2),
        ] {
            let params = [member("p", shape)];
            let given = json!({"p": value});
            let made = arguments(&given, &params).unwrap();
            let bytes = VALUE + made.iter().map(allocated).sum::<u64>();
            let told = weight(&given, &params, u64::MAX);
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
            assert!(weight(&given, &params, u64::MAX) < 1_000, "{given}");
        }
    }

    /// Twice at each level would be 2^60 times.
    #[test]
    fn each_part_of_a_value_is_come_to_once() {
        let levels = 60;
        let options = within(levels, |of| Shape::Option(Box::new(of)));
        let payload = (1..levels).fold(json!("c"), |inner, _| json!({"some": inner}));
        let params = [member("p", options)];
        let boxes = levels as u64 * VALUE;
        let given = json!({"p": payload});
        assert_eq!(weight(&given, &params, u64::MAX), VALUE + boxes + 1);
        assert!(arguments(&given, &params).is_ok());
    }

    #[test]
    fn counting_ends_where_there_is_no_more_room() {
        let fields = (0..1_000).map(|at| {
            let name = format!("field-{at}");
            member(&name, Shape::Option(Box::new(Shape::U8)))
        });
        let record = Shape::Record(fields.collect());
        let given = json!({"p": vec![json!({}); 1_000]});
        let params = [member("p", Shape::List(Box::new(record)))];
        let all = weight(&given, &params, u64::MAX);
        assert!(all > 1_000 * 1_000 * FIELD, "{all}");
        let told = weight(&given, &params, 100_000);
        assert!((100_001..101_000).contains(&told), "{told}");
        assert_eq!(weight(&given, &params, all), all);
    }

    /// The cost of a case does not grow with their number.
    #[test]
    fn a_case_has_its_own_weight_alone() {
        let cases: NamedParts<Case> = (0..1_000)
            .map(|at| Case {
                name: format!("case-{at}"),
                shape: Some(Shape::String),
            })
            .collect();
        let params = [member("p", Shape::Variant(cases))];
        let told = |given: Value| weight(&json!({"p": given}), &params, u64::MAX);
        assert_eq!(told(json!({"case-999": "abc"})), VALUE + 8 + VALUE + 3);
        assert_eq!(told(json!({"case-9": "abc", "case-99": "abc"})), VALUE);
        assert_eq!(told(json!({"none": "abc"})), VALUE + 4);
    }
}
