//! JSON → component values.

use super::misfit::TypeMismatch;
use crate::value::shape::{Case, NamedParts, Shape, ShapeMember};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};
use std::str::FromStr;
use wasmtime::component::Val;

type LowerResult<T = Val> = Result<T, TypeMismatch>;

/// Converts an object of arguments to a function's parameters, in their order.
///
/// # Errors
/// The JSON path and what was expected there.
pub fn arguments(arguments: &Value, params: &[ShapeMember]) -> Result<Vec<Val>, String> {
    let mut values = Vec::with_capacity(params.len());
    each_field(arguments, params, |_, value| values.push(value))
        .map(|()| values)
        .map_err(|misfit| misfit.to_string())
}

/// Converts one JSON value to a component value of this shape.
///
/// # Errors
/// The JSON path and what was expected there.
pub fn from_json(value: &Value, shape: &Shape) -> Result<Val, String> {
    lower(value, shape).map_err(|misfit| misfit.to_string())
}

fn lower(value: &Value, shape: &Shape) -> LowerResult {
    Ok(match shape {
        Shape::Bool => match value {
            Value::Bool(v) => Val::Bool(*v),
            _ => return Err(expected("true or false", value)),
        },
        Shape::S8 => Val::S8(integer(value, "s8")?),
        Shape::U8 => Val::U8(integer(value, "u8")?),
        Shape::S16 => Val::S16(integer(value, "s16")?),
        Shape::U16 => Val::U16(integer(value, "u16")?),
        Shape::S32 => Val::S32(integer(value, "s32")?),
        Shape::U32 => Val::U32(integer(value, "u32")?),
        Shape::S64 => Val::S64(wide(value, "s64", 19)?),
        Shape::U64 => Val::U64(wide(value, "u64", 20)?),
        Shape::F32 => match number(value)? as f32 {
            v if v.is_finite() => Val::Float32(v),
            _ => return Err(expected("a number that fits f32", value)),
        },
        Shape::F64 => Val::Float64(number(value)?),
        Shape::Char => {
            let mut chars = string(value)?.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Val::Char(c),
                _ => {
                    return Err(TypeMismatch::new(
                        "expected a string of exactly one character",
                    ));
                }
            }
        }
        Shape::String => Val::String(string(value)?.to_owned()),
        Shape::Bytes => {
            let bytes = BASE64
                .decode(string(value)?)
                .map_err(|error| TypeMismatch::new(format!("expected base64: {error}")))?;
            // A value for each byte, 40 times its size: wasmtime lowers bytes as bytes only where the whole signature is a
            // type of Rust's (`Func::typed`), and not within a `Val` or beside one. The traits with which it could be told
            // how are `unsafe` and private to it. What bounds this is that its weight is reserved before.
            Val::List(bytes.into_iter().map(Val::U8).collect())
        }
        Shape::List(item) => Val::List(items(array(value)?, item)?),
        Shape::Fixed(item, length) => Val::FixedLengthList(items(exactly(value, *length)?, item)?),
        Shape::Map(key, of) => Val::Map(pairs(value, key, of)?),
        Shape::Record(fields) => {
            let mut out = Vec::with_capacity(fields.len());
            each_field(value, fields, |name, value| {
                out.push((name.to_owned(), value));
            })?;
            Val::Record(out)
        }
        Shape::Tuple(shapes) => {
            let members = exactly(value, shapes.len())?.iter().zip(shapes);
            Val::Tuple(each(members, |(item, shape)| lower(item, shape))?)
        }
        Shape::Variant(cases) => variant(value, cases)?,
        Shape::Enum(names) => Val::Enum(one_of(value, names)?),
        Shape::Option(_) if value.is_null() => Val::Option(None),
        Shape::Option(inner) => {
            let value = match &**inner {
                Shape::Option(_) => match single(value) {
                    Some(("some", payload)) => {
                        lower(payload, inner).map_err(|e| e.at_key("some"))?
                    }
                    _ => return Err(expected("null or {\"some\": …}", value)),
                },
                inner => lower(value, inner)?,
            };
            Val::Option(Some(Box::new(value)))
        }
        Shape::Result(ok, err) => match single(value) {
            Some(("ok", payload)) => Val::Result(Ok(side(payload, ok.as_deref(), "ok")?)),
            Some(("err", payload)) => Val::Result(Err(side(payload, err.as_deref(), "err")?)),
            _ => return Err(expected("{\"ok\": …} or {\"err\": …}", value)),
        },
        Shape::Flags(names) => {
            let given = at_most(value, names.len())?;
            Val::Flags(each(given.iter(), |item| one_of(item, names))?)
        }
    })
}

/// Hands each field's value to `take` in the order of `fields`, and refuses fields that are unknown.
fn each_field<'a>(
    value: &Value,
    fields: &'a [ShapeMember],
    mut take: impl FnMut(&'a str, Val),
) -> LowerResult<()> {
    let Value::Object(object) = value else {
        return Err(expected("an object", value));
    };
    let mut given = object.iter();
    let mut found = 0;
    for ShapeMember { name, shape } in fields {
        // Writers that follow the schema keep its order: then no key needs to be looked up.
        let value = match given.next() {
            Some((key, value)) if key == name => Some(value),
            _ => object.get(name),
        };
        let value = match value {
            Some(value) => {
                found += 1;
                lower(value, shape).map_err(|e| e.at_key(name))?
            }
            None if shape.is_optional() => Val::Option(None),
            None => return Err(TypeMismatch::new(format!("{name:?} is missing"))),
        };
        take(name, value);
    }
    if found < object.len() {
        return Err(unknown(object, fields));
    }
    Ok(())
}

fn unknown(object: &Map<String, Value>, fields: &[ShapeMember]) -> TypeMismatch {
    let known: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
    let extra = object.keys().find(|key| !known.contains(&key.as_str()));
    TypeMismatch::new(format!(
        "{:?} is not known here; known: {}",
        extra.map_or("", String::as_str),
        known.join(", ")
    ))
}

fn pairs(value: &Value, key: &Shape, of: &Shape) -> LowerResult<Vec<(Val, Val)>> {
    let pair = |item: &Value| {
        let Some(object) = item.as_object().filter(|object| object.len() == 2) else {
            return Err(expected("an object of key and value", item));
        };
        let part = |name: &str, shape| match object.get(name) {
            Some(value) => lower(value, shape).map_err(|e| e.at_key(name)),
            None => Err(TypeMismatch::new(format!("{name:?} is missing"))),
        };
        Ok((part("key", key)?, part("value", of)?))
    };
    each(array(value)?.iter(), pair)
}

fn variant(value: &Value, cases: &NamedParts<Case>) -> LowerResult {
    let (name, payload) = match (value, single(value)) {
        (Value::String(name), _) => (name.as_str(), None),
        (_, Some((name, payload))) => (name, Some(payload)),
        _ => return Err(not_a_case(value, cases)),
    };
    let Some(case) = cases.find(name) else {
        return Err(not_a_case(value, cases));
    };
    match (&case.shape, payload) {
        (None, None) => Ok(Val::Variant(name.to_owned(), None)),
        (Some(shape), Some(payload)) => {
            let payload = lower(payload, shape).map_err(|e| e.at_key(name))?;
            Ok(Val::Variant(name.to_owned(), Some(Box::new(payload))))
        }
        (Some(_), None) => Err(TypeMismatch::new(format!(
            "expected {{\"{name}\": …}} with a value"
        ))),
        (None, Some(_)) => Err(TypeMismatch::new(format!(
            "expected the plain string \"{name}\""
        ))),
    }
}

fn not_a_case(value: &Value, cases: &[Case]) -> TypeMismatch {
    let forms: Vec<_> = cases
        .iter()
        .map(|Case { name, shape }| match shape {
            None => format!("\"{name}\""),
            Some(_) => format!("{{\"{name}\": …}}"),
        })
        .collect();
    expected(&format!("one of {}", forms.join(", ")), value)
}

fn one_of(value: &Value, names: &NamedParts<String>) -> LowerResult<String> {
    let name = string(value)?;
    if let Some(known) = names.find(name) {
        return Ok(known.clone());
    }
    Err(TypeMismatch::new(format!(
        "expected one of {}",
        names.join(", ")
    )))
}

fn side(payload: &Value, shape: Option<&Shape>, name: &str) -> LowerResult<Option<Box<Val>>> {
    match shape {
        Some(shape) => lower(payload, shape)
            .map(|value| Some(Box::new(value)))
            .map_err(|e| e.at_key(name)),
        None if payload.is_null() => Ok(None),
        None => Err(expected("null", payload).at_key(name)),
    }
}

/// The only key of an object of one key.
pub(super) fn single(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object
        .iter()
        .next()
        .map(|(key, value)| (key.as_str(), value))
}

fn items(values: &[Value], shape: &Shape) -> LowerResult<Vec<Val>> {
    each(values.iter(), |item| lower(item, shape))
}

/// Converts each item. Weights count no room of the list beside its items, so it has none.
fn each<I: ExactSizeIterator, T>(
    items: I,
    convert: impl Fn(I::Item) -> LowerResult<T>,
) -> LowerResult<Vec<T>> {
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.enumerate() {
        out.push(convert(item).map_err(|e| e.at_index(i))?);
    }
    Ok(out)
}

fn array(value: &Value) -> LowerResult<&[Value]> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(expected("a list", value)),
    }
}

fn exactly(value: &Value, length: usize) -> LowerResult<&[Value]> {
    let items = array(value)?;
    if items.len() != length {
        return Err(TypeMismatch::new(format!(
            "expected exactly {length} items, got {}",
            items.len()
        )));
    }
    Ok(items)
}

fn at_most(value: &Value, length: usize) -> LowerResult<&[Value]> {
    let items = array(value)?;
    if items.len() > length {
        return Err(TypeMismatch::new(format!(
            "expected at most {length} items, got {}",
            items.len()
        )));
    }
    Ok(items)
}

fn string(value: &Value) -> LowerResult<&str> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(expected("a string", value)),
    }
}

fn number(value: &Value) -> LowerResult<f64> {
    value
        .as_f64()
        .filter(|number| number.is_finite())
        .ok_or_else(|| expected("a number", value))
}

fn integer<T: TryFrom<i64>>(value: &Value, name: &str) -> LowerResult<T> {
    whole(value)
        .and_then(|whole| i64::try_from(whole).ok())
        .and_then(|whole| T::try_from(whole).ok())
        .ok_or_else(|| expected(&format!("an integer that fits {name}"), value))
}

/// A 64-bit integer, which may come as a string of at most so many digits: see [`Shape::S64`].
fn wide<T>(value: &Value, name: &str, digits: usize) -> LowerResult<T>
where
    T: TryFrom<i128> + FromStr,
{
    let exact = match value {
        Value::String(text) => Some(text)
            .filter(|text| !text.starts_with('+'))
            .filter(|text| text.strip_prefix('-').unwrap_or(text).len() <= digits)
            .and_then(|text| text.parse().ok()),
        _ => whole(value).and_then(|whole| T::try_from(whole).ok()),
    };
    exact.ok_or_else(|| expected(&format!("an integer that fits {name}"), value))
}

/// JSON Schema calls 5.0 an integer, and models write it; it is one as long as it is exact.
fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(whole) = number.as_i64() {
        return Some(whole.into());
    }
    if let Some(whole) = number.as_u64() {
        return Some(whole.into());
    }
    number
        .as_f64()
        .filter(|float| float.fract() == 0.0 && float.abs() <= super::MAX_SAFE_INTEGER as f64)
        .map(|float| float as i128)
}

fn expected(what: &str, got: &Value) -> TypeMismatch {
    let got = match got {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        // Short by nature, and it is the value that says what is wrong with it.
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    TypeMismatch::new(format!("expected {what}, got {got}"))
}
