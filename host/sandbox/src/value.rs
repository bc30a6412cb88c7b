//! JSON ↔ component values, guided by the component's types. Errors name the JSON path.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value, json};
use std::fmt::Write as _;
use wasmtime::component::{Type, Val};

/// Integers beyond this lose digits in readers that hold numbers as doubles.
const MAX_SAFE: u64 = 1 << 53;

/// Converts an object of arguments to a function's parameters, in their order.
///
/// # Errors
/// The JSON path and what was expected there.
pub fn arguments(arguments: &Value, params: &[(String, Type)]) -> Result<Vec<Val>, String> {
    let object = arguments
        .as_object()
        .ok_or_else(|| format!("expected an object, got {}", kind(arguments)))?;
    fields(
        object,
        params.iter().map(|(n, t)| (n.as_str(), t.clone())),
        &mut Path::default(),
    )
    .map(|fields| fields.into_iter().map(|(_, value)| value).collect())
}

/// Converts one JSON value to a component value of type `ty`.
///
/// # Errors
/// The JSON path and what was expected there.
pub fn from_json(value: &Value, ty: &Type) -> Result<Val, String> {
    lower(value, ty, &mut Path::default())
}

/// Converts a component value of type `ty` to JSON.
///
/// # Errors
/// For what JSON cannot hold: a number that is not finite, a resource.
pub fn to_json(value: &Val, ty: &Type) -> Result<Value, String> {
    Ok(match (value, ty) {
        (Val::Bool(v), _) => json!(v),
        (Val::S8(v), _) => json!(v),
        (Val::U8(v), _) => json!(v),
        (Val::S16(v), _) => json!(v),
        (Val::U16(v), _) => json!(v),
        (Val::S32(v), _) => json!(v),
        (Val::U32(v), _) => json!(v),
        (Val::S64(v), _) if v.unsigned_abs() > MAX_SAFE => json!(v.to_string()),
        (Val::S64(v), _) => json!(v),
        (Val::U64(v), _) if *v > MAX_SAFE => json!(v.to_string()),
        (Val::U64(v), _) => json!(v),
        (Val::Float32(v), _) => float(f64::from(*v))?,
        (Val::Float64(v), _) => float(*v)?,
        (Val::Char(v), _) => json!(v),
        (Val::String(v), _) => json!(v),
        (Val::List(items), Type::List(list)) if matches!(list.ty(), Type::U8) => {
            let bytes: Vec<u8> = items
                .iter()
                .filter_map(|v| if let Val::U8(b) = v { Some(*b) } else { None })
                .collect();
            json!(BASE64.encode(bytes))
        }
        (Val::List(items), Type::List(list)) => each(items, &list.ty())?,
        (Val::FixedLengthList(items), Type::FixedLengthList(list)) => each(items, &list.ty())?,
        (Val::Map(pairs), Type::Map(map)) => pairs
            .iter()
            .map(|(k, v)| {
                Ok(json!({"key": to_json(k, &map.key())?, "value": to_json(v, &map.value())?}))
            })
            .collect::<Result<Vec<_>, String>>()?
            .into(),
        (Val::Record(fields), Type::Record(record)) => fields
            .iter()
            .zip(record.fields())
            .map(|((name, value), field)| Ok((name.clone(), to_json(value, &field.ty)?)))
            .collect::<Result<Map<_, _>, String>>()?
            .into(),
        (Val::Tuple(items), Type::Tuple(tuple)) => items
            .iter()
            .zip(tuple.types())
            .map(|(v, t)| to_json(v, &t))
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        (Val::Variant(name, None) | Val::Enum(name), _) => json!(name),
        (Val::Variant(name, Some(payload)), Type::Variant(variant)) => {
            let case = variant
                .cases()
                .find(|case| case.name == name)
                .and_then(|case| case.ty);
            let ty = case.ok_or_else(|| format!("unknown case {name:?}"))?;
            json!({name: to_json(payload, &ty)?})
        }
        (Val::Option(None), _) => Value::Null,
        (Val::Option(Some(inner)), Type::Option(option)) => to_json(inner, &option.ty())?,
        (Val::Result(outcome), Type::Result(result)) => {
            let (name, payload, ty) = match outcome {
                Ok(payload) => ("ok", payload, result.ok()),
                Err(payload) => ("err", payload, result.err()),
            };
            json!({name: optional(payload.as_deref(), ty.as_ref())?})
        }
        (Val::Flags(names), _) => json!(names),
        _ => return Err("the value has no JSON form".into()),
    })
}

/// The JSON of a payload that may be absent, such as a result's side.
pub(crate) fn optional(payload: Option<&Val>, ty: Option<&Type>) -> Result<Value, String> {
    match (payload, ty) {
        (Some(value), Some(ty)) => to_json(value, ty),
        _ => Ok(Value::Null),
    }
}

fn each(items: &[Val], ty: &Type) -> Result<Value, String> {
    items.iter().map(|v| to_json(v, ty)).collect()
}

fn float(value: f64) -> Result<Value, String> {
    Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| format!("{value} is not a JSON number"))
}

fn lower(value: &Value, ty: &Type, path: &mut Path) -> Result<Val, String> {
    Ok(match ty {
        Type::Bool => Val::Bool(
            value
                .as_bool()
                .ok_or_else(|| path.expected("true or false", value))?,
        ),
        Type::S8 => Val::S8(integer(value, path)?),
        Type::U8 => Val::U8(integer(value, path)?),
        Type::S16 => Val::S16(integer(value, path)?),
        Type::U16 => Val::U16(integer(value, path)?),
        Type::S32 => Val::S32(integer(value, path)?),
        Type::U32 => Val::U32(integer(value, path)?),
        Type::S64 => Val::S64(integer(value, path)?),
        Type::U64 => Val::U64(integer(value, path)?),
        Type::Float32 => Val::Float32(number(value, path)? as f32),
        Type::Float64 => Val::Float64(number(value, path)?),
        Type::Char => {
            let mut chars = string(value, path)?.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Val::Char(c),
                _ => return Err(path.expected("one character", value)),
            }
        }
        Type::String => Val::String(string(value, path)?.to_owned()),
        Type::List(list) if matches!(list.ty(), Type::U8) => {
            let bytes = BASE64
                .decode(string(value, path)?)
                .map_err(|error| format!("{}: not base64: {error}", path.text()))?;
            Val::List(bytes.into_iter().map(Val::U8).collect())
        }
        Type::List(list) => Val::List(items(value, &list.ty(), path)?),
        Type::FixedLengthList(list) => {
            let items = items(value, &list.ty(), path)?;
            if items.len() != list.len() as usize {
                return Err(path.expected(&format!("exactly {} items", list.len()), value));
            }
            Val::FixedLengthList(items)
        }
        Type::Map(map) => {
            let pairs = [("key", map.key()), ("value", map.value())];
            let mut out = Vec::new();
            for (i, item) in array(value, path)?.iter().enumerate() {
                let fields = path.at_index(i, |path| {
                    let object = item
                        .as_object()
                        .ok_or_else(|| path.expected("an object with key and value", item))?;
                    fields(object, pairs.iter().map(|(n, t)| (*n, t.clone())), path)
                })?;
                let mut fields = fields.into_iter().map(|(_, v)| v);
                if let (Some(key), Some(value)) = (fields.next(), fields.next()) {
                    out.push((key, value));
                }
            }
            Val::Map(out)
        }
        Type::Record(record) => {
            let object = value
                .as_object()
                .ok_or_else(|| path.expected("an object", value))?;
            Val::Record(fields(
                object,
                record.fields().map(|f| (f.name, f.ty)),
                path,
            )?)
        }
        Type::Tuple(tuple) => {
            let values = array(value, path)?;
            if values.len() != tuple.types().len() {
                return Err(path.expected(&format!("exactly {} items", tuple.types().len()), value));
            }
            let items = values.iter().zip(tuple.types()).enumerate();
            Val::Tuple(
                items
                    .map(|(i, (v, t))| path.at_index(i, |p| lower(v, &t, p)))
                    .collect::<Result<_, _>>()?,
            )
        }
        Type::Variant(variant) => {
            let names: Vec<_> = variant.cases().map(|c| c.name.to_owned()).collect();
            let wanted = || format!("one of the cases {}", names.join(", "));
            let (name, payload) = match value {
                Value::String(name) => (name, None),
                Value::Object(object) if object.len() == 1 => {
                    let (name, payload) = object
                        .iter()
                        .next()
                        .ok_or_else(|| path.expected(&wanted(), value))?;
                    (name, Some(payload))
                }
                _ => return Err(path.expected(&wanted(), value)),
            };
            let case = variant
                .cases()
                .find(|c| c.name == name)
                .ok_or_else(|| path.expected(&wanted(), value))?;
            match (case.ty, payload) {
                (None, None) => Val::Variant(name.clone(), None),
                (Some(ty), Some(payload)) => {
                    let payload = path.at_key(name, |p| lower(payload, &ty, p))?;
                    Val::Variant(name.clone(), Some(Box::new(payload)))
                }
                (Some(_), None) => {
                    return Err(path.expected(&format!("{{\"{name}\": …}} with a value"), value));
                }
                (None, Some(_)) => {
                    return Err(path.expected(&format!("the plain string \"{name}\""), value));
                }
            }
        }
        Type::Enum(names) => {
            let name = string(value, path)?;
            if !names.names().any(|n| n == name) {
                let all: Vec<_> = names.names().collect();
                return Err(path.expected(&format!("one of {}", all.join(", ")), value));
            }
            Val::Enum(name.to_owned())
        }
        Type::Option(_) if value.is_null() => Val::Option(None),
        Type::Option(option) => Val::Option(Some(Box::new(lower(value, &option.ty(), path)?))),
        Type::Result(result) => {
            let side = |name: &str, payload: &Value, ty: Option<Type>, path: &mut Path| {
                ty.map(|ty| path.at_key(name, |p| lower(payload, &ty, p)).map(Box::new))
                    .transpose()
            };
            let object = value.as_object().filter(|o| o.len() == 1);
            match object.and_then(|o| o.iter().next()) {
                Some((name, payload)) if name == "ok" => {
                    Val::Result(Ok(side("ok", payload, result.ok(), path)?))
                }
                Some((name, payload)) if name == "err" => {
                    Val::Result(Err(side("err", payload, result.err(), path)?))
                }
                _ => return Err(path.expected("{\"ok\": …} or {\"err\": …}", value)),
            }
        }
        Type::Flags(flags) => {
            let mut names = Vec::new();
            for (i, item) in array(value, path)?.iter().enumerate() {
                let name = path.at_index(i, |p| string(item, p).map(str::to_owned))?;
                if !flags.names().any(|n| n == name) {
                    let all: Vec<_> = flags.names().collect();
                    return Err(path.expected(&format!("flags out of {}", all.join(", ")), value));
                }
                names.push(name);
            }
            Val::Flags(names)
        }
        Type::Own(_) | Type::Borrow(_) | Type::Future(_) | Type::Stream(_) | Type::ErrorContext => {
            return Err(format!("{}: this type has no JSON form", path.text()));
        }
    })
}

fn fields<'a>(
    object: &Map<String, Value>,
    wanted: impl Iterator<Item = (&'a str, Type)>,
    path: &mut Path,
) -> Result<Vec<(String, Val)>, String> {
    let mut out = Vec::new();
    for (name, ty) in wanted {
        let value = match object.get(name) {
            Some(value) => path.at_key(name, |p| lower(value, &ty, p))?,
            None if matches!(ty, Type::Option(_)) => Val::Option(None),
            None => return Err(format!("{}: {name:?} is missing", path.text())),
        };
        out.push((name.to_owned(), value));
    }
    if let Some(extra) = object
        .keys()
        .find(|key| !out.iter().any(|(name, _)| name == *key))
    {
        let known: Vec<_> = out.iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!(
            "{}: {extra:?} is not known here; known: {}",
            path.text(),
            known.join(", ")
        ));
    }
    Ok(out)
}

fn items(value: &Value, ty: &Type, path: &mut Path) -> Result<Vec<Val>, String> {
    array(value, path)?
        .iter()
        .enumerate()
        .map(|(i, item)| path.at_index(i, |p| lower(item, ty, p)))
        .collect()
}

fn array<'a>(value: &'a Value, path: &Path) -> Result<&'a Vec<Value>, String> {
    value
        .as_array()
        .ok_or_else(|| path.expected("a list", value))
}

fn string<'a>(value: &'a Value, path: &Path) -> Result<&'a str, String> {
    value
        .as_str()
        .ok_or_else(|| path.expected("a string", value))
}

fn number(value: &Value, path: &Path) -> Result<f64, String> {
    value
        .as_f64()
        .filter(|n| n.is_finite())
        .ok_or_else(|| path.expected("a number", value))
}

fn integer<T: TryFrom<i128>>(value: &Value, path: &Path) -> Result<T, String> {
    let exact = match value {
        Value::Number(n) => n
            .as_i64()
            .map(i128::from)
            .or_else(|| n.as_u64().map(i128::from)),
        // 64-bit integers may come as strings: see `schema`.
        Value::String(digits) if std::mem::size_of::<T>() == 8 => digits.parse().ok(),
        _ => None,
    };
    exact.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        path.expected(
            &format!("an integer that fits {}", std::any::type_name::<T>()),
            value,
        )
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Where in the JSON the conversion is, as a JSON pointer.
#[derive(Debug, Default)]
struct Path(String);

impl Path {
    fn at_key<T>(&mut self, key: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        let _ = write!(self.0, "/{}", key.replace('~', "~0").replace('/', "~1"));
        let out = run(self);
        self.0.truncate(length);
        out
    }

    fn at_index<T>(&mut self, index: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        let _ = write!(self.0, "/{index}");
        let out = run(self);
        self.0.truncate(length);
        out
    }

    fn text(&self) -> &str {
        if self.0.is_empty() { "(root)" } else { &self.0 }
    }

    fn expected(&self, what: &str, got: &Value) -> String {
        format!("{}: expected {what}, got {}", self.text(), kind(got))
    }
}
