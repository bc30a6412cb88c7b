use super::{LiftError, arguments, from_json, to_json};
use crate::value::shape::{Case, Shape, ShapeMember};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wasmtime::component::Val;

const PLENTY: u64 = 1 << 20;

fn option(shape: Shape) -> Shape {
    Shape::Option(Box::new(shape))
}

fn back(value: &Value, shape: &Shape) -> Value {
    to_json(from_json(value, shape).unwrap(), shape, PLENTY).unwrap()
}

#[test]
fn nested_options_keep_their_levels_apart() {
    let shape = option(option(option(Shape::U8)));
    for value in [
        json!(null),
        json!({"some": null}),
        json!({"some": {"some": null}}),
        json!({"some": {"some": 5}}),
    ] {
        assert_eq!(back(&value, &shape), value);
    }
    assert_eq!(
        from_json(&json!({"some": 5}), &shape).unwrap_err(),
        "$.some: expected null or {\"some\": …}, got 5"
    );
}

/// The patterns of the schema, and nothing beside them.
#[test]
fn wide_integers_in_text_are_plain_digits() {
    for (text, shape) in [
        ("-0", Shape::U64),
        ("+1", Shape::U64),
        ("000000000000000000001", Shape::U64),
        ("00000000000000000001", Shape::S64),
    ] {
        let refused = from_json(&json!(text), &shape);
        assert!(refused.is_err(), "{text} became {refused:?}");
    }
    assert_eq!(back(&json!("-0"), &Shape::S64), json!(0));
    assert_eq!(back(&json!("007"), &Shape::U64), json!(7));
}

#[test]
fn no_more_flags_are_taken_than_there_are() {
    let shape = Shape::Flags(vec!["read".to_owned(), "write".into()].into());
    assert_eq!(
        back(&json!(["write", "read"]), &shape),
        json!(["write", "read"])
    );
    assert_eq!(
        from_json(&json!(["read", "read", "read"]), &shape).unwrap_err(),
        "$: expected at most 2 items, got 3"
    );
}

#[test]
fn numbers_keep_their_value_or_are_refused() {
    let refused = |value, shape| from_json(&value, &shape).unwrap_err();
    assert_eq!(back(&json!(5.0), &Shape::U8), json!(5));
    assert_eq!(
        back(&json!("-9223372036854775808"), &Shape::S64),
        json!(i64::MIN.to_string())
    );
    assert_eq!(
        back(&json!(u64::MAX), &Shape::U64),
        json!(u64::MAX.to_string())
    );
    assert_eq!(back(&json!(1_u64 << 53), &Shape::U64), json!(1_u64 << 53));
    assert_eq!(back(&json!(0.1), &Shape::F32), json!(0.1));
    for (value, shape) in [
        (json!(5.5), Shape::U8),
        (json!(-1), Shape::U64),
        (json!("+1"), Shape::S64),
        (json!("1"), Shape::S32),
        (json!(1e300), Shape::F32),
        (json!(1e19), Shape::S64),
        (json!("NaN"), Shape::F64),
    ] {
        assert!(refused(value, shape).starts_with("$: expected a"));
    }
}

#[test]
fn values_without_a_json_form_are_named_with_their_path() {
    let shape = Shape::List(Box::new(Shape::Record(vec![ShapeMember {
        name: "unit-price".into(),
        shape: Shape::F64,
    }])));
    let record = |price| Val::Record(vec![("unit-price".into(), Val::Float64(price))]);
    let list = Val::List(vec![record(1.0), record(f64::NAN)]);
    assert_eq!(
        to_json(list, &shape, PLENTY),
        Err(LiftError::NoForm(
            "$[1].unit-price: NaN is not a JSON number".into()
        ))
    );
    assert!(to_json(Val::U8(1), &shape, PLENTY).is_err());
}

#[test]
fn a_payload_that_has_no_place_is_refused() {
    let shape = Shape::Result(None, Some(Box::new(Shape::String)));
    assert_eq!(back(&json!({"ok": null}), &shape), json!({"ok": null}));
    assert_eq!(
        from_json(&json!({"ok": 1}), &shape).unwrap_err(),
        "$.ok: expected null, got 1"
    );
}

#[test]
fn fields_come_in_any_order_and_odd_keys_are_quoted() {
    let part = |name: &str, shape| ShapeMember {
        name: name.into(),
        shape,
    };
    let params = [
        part("a", Shape::U8),
        part("b", option(Shape::U8)),
        part("c", Shape::U8),
    ];
    let values = arguments(&json!({"c": 3, "a": 1}), &params).unwrap();
    assert_eq!(values, [Val::U8(1), Val::Option(None), Val::U8(3)]);
    let error = arguments(&json!({"c": 3, "a": 1, "d e": 4}), &params).unwrap_err();
    assert_eq!(error, "$: \"d e\" is not known here; known: a, b, c");
}

/// A shape of any kind, and JSON in the form that the host itself writes for it.
fn any_case() -> impl Strategy<Value = (Shape, Value)> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(|v| (Shape::Bool, json!(v))),
        any::<i8>().prop_map(|v| (Shape::S8, json!(v))),
        any::<u8>().prop_map(|v| (Shape::U8, json!(v))),
        any::<i16>().prop_map(|v| (Shape::S16, json!(v))),
        any::<u16>().prop_map(|v| (Shape::U16, json!(v))),
        any::<i32>().prop_map(|v| (Shape::S32, json!(v))),
        any::<u32>().prop_map(|v| (Shape::U32, json!(v))),
        any::<i64>().prop_map(|v| (
            Shape::S64,
            if v.unsigned_abs() > 1 << 53 {
                json!(v.to_string())
            } else {
                json!(v)
            }
        )),
        any::<u64>().prop_map(|v| (
            Shape::U64,
            if v > 1 << 53 {
                json!(v.to_string())
            } else {
                json!(v)
            }
        )),
        any::<f64>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(|v| (Shape::F64, json!(v))),
        any::<f32>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(|v| (Shape::F32, json!(v.to_string().parse::<f64>().unwrap()))),
        any::<char>().prop_map(|v| (Shape::Char, json!(v))),
        any::<String>().prop_map(|v| (Shape::String, json!(v))),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|v| {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(v);
            (Shape::Bytes, json!(text))
        }),
        (0_usize..3).prop_map(|i| {
            let names = ["red", "light-green", "blue"].map(str::to_owned);
            (Shape::Enum(names.to_vec().into()), json!(names[i]))
        }),
        any::<[bool; 3]>().prop_map(|set| {
            let names = ["r", "w", "x"].map(str::to_owned);
            let on: Vec<_> = names
                .iter()
                .zip(set)
                .filter(|(_, on)| *on)
                .map(|(n, _)| n)
                .collect();
            let json = json!(on);
            (Shape::Flags(names.to_vec().into()), json)
        }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let many = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            (inner.clone(), 0_usize..4)
                .prop_map(|((s, v), n)| (Shape::List(Box::new(s)), Value::Array(vec![v; n]))),
            (inner.clone(), 1_usize..4)
                .prop_map(|((s, v), n)| (Shape::Fixed(Box::new(s), n), Value::Array(vec![v; n]))),
            (inner.clone(), inner.clone()).prop_map(|((ks, k), (vs, v))| (
                Shape::Map(Box::new(ks), Box::new(vs)),
                json!([{"key": k, "value": v}])
            )),
            many().prop_map(|items| {
                let (shapes, values) = items.into_iter().unzip();
                (Shape::Tuple(shapes), Value::Array(values))
            }),
            many().prop_map(|items| {
                let mut parts = Vec::new();
                let mut object = Map::new();
                for (i, (shape, value)) in items.into_iter().enumerate() {
                    let name = format!("field-{i}");
                    object.insert(name.clone(), value);
                    parts.push(ShapeMember { name, shape });
                }
                (Shape::Record(parts), Value::Object(object))
            }),
            (many(), any::<prop::sample::Index>(), any::<bool>()).prop_map(|(items, at, plain)| {
                let at = at.index(items.len());
                let name = format!("case-{at}");
                let value = if plain {
                    json!("none")
                } else {
                    json!({name: items[at].1})
                };
                let mut cases: Vec<_> = items
                    .into_iter()
                    .enumerate()
                    .map(|(i, (shape, _))| Case {
                        name: format!("case-{i}"),
                        shape: Some(shape),
                    })
                    .collect();
                cases.push(Case {
                    name: "none".into(),
                    shape: None,
                });
                (Shape::Variant(cases.into()), value)
            }),
            (inner.clone(), any::<bool>()).prop_map(|((shape, value), none)| {
                let value = match shape {
                    _ if none => Value::Null,
                    Shape::Option(_) => json!({"some": value}),
                    _ => value,
                };
                (option(shape), value)
            }),
            (inner.clone(), 0..3_u8).prop_map(|((shape, value), side)| {
                let shape = Box::new(shape);
                match side {
                    0 => (Shape::Result(Some(shape), None), json!({"ok": value})),
                    1 => (Shape::Result(None, Some(shape)), json!({"err": value})),
                    _ => (Shape::Result(None, Some(shape)), json!({"ok": null})),
                }
            }),
        ]
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("(some|ok|err|key|value|field-0|case-0)", inner, 0..3)
                .prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1_000)))]

    /// Every type, both ways, without loss, and the size is that of the JSON text to the byte.
    #[test]
    fn values_convert_there_and_back((shape, value) in any_case()) {
        let val = from_json(&value, &shape).unwrap();
        let size = value.to_string().len() as u64;
        prop_assert_eq!(to_json(val.clone(), &shape, size), Ok(value));
        prop_assert_eq!(to_json(val, &shape, size - 1), Err(LiftError::TooLarge));
    }

    /// JSON of another form is converted or refused, never misread: what was taken converts to
    /// something that is taken again as the same.
    #[test]
    fn anything_else_is_refused_or_understood((shape, _) in any_case(), value in any_json()) {
        match from_json(&value, &shape) {
            Ok(val) => {
                let back = to_json(val.clone(), &shape, PLENTY).unwrap();
                prop_assert_eq!(from_json(&back, &shape), Ok(val));
            }
            Err(reason) => prop_assert!(reason.starts_with('$'), "{}", reason),
        }
    }
}
