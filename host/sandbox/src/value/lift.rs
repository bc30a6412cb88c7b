//! Component values → JSON, within a size that is counted while it grows.

use super::misfit::TypeMismatch;
use crate::value::shape::{Case, Shape, ShapeMember};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value};
use toolhold_json::bounded::{MemoryBudget, TooMuchMemory};
use wasmtime::component::Val;

/// Why a value did not become JSON.
#[derive(Debug, PartialEq, Eq)]
pub enum LiftError {
    /// Its JSON text has more bytes than were allowed.
    TooLarge,
    /// It would take more memory than JSON from outside may.
    TooMuchMemory { limit: u64 },
    /// JSON cannot hold it: the path and the reason.
    NoForm(String),
}

/// Converts a component value of this shape to JSON whose text has at most `limit` bytes. Strings
/// are moved, not copied; the conversion stops where the limit is passed.
///
/// # Errors
/// [`LiftError`]; numbers that are not finite have no form.
pub fn to_json(value: Val, shape: &Shape, limit: u64) -> Result<Value, LiftError> {
    let mut room = JsonBudget {
        text: limit,
        memory: MemoryBudget::default(),
    };
    lift(value, shape, &mut room).map_err(|stop| match stop {
        LiftStop::Full => LiftError::TooLarge,
        LiftStop::Memory(TooMuchMemory { limit }) => LiftError::TooMuchMemory { limit },
        LiftStop::Misfit(misfit) => LiftError::NoForm(misfit.to_string()),
    })
}

enum LiftStop {
    Full,
    Memory(TooMuchMemory),
    Misfit(TypeMismatch),
}

impl From<TooMuchMemory> for LiftStop {
    fn from(memory: TooMuchMemory) -> Self {
        Self::Memory(memory)
    }
}

impl LiftStop {
    fn at_key(self, key: &str) -> Self {
        match self {
            Self::Misfit(misfit) => Self::Misfit(misfit.at_key(key)),
            other => other,
        }
    }

    fn at_index(self, index: usize) -> Self {
        match self {
            Self::Misfit(misfit) => Self::Misfit(misfit.at_index(index)),
            other => other,
        }
    }
}

type LiftResult<T = Value> = Result<T, LiftStop>;

fn lift(value: Val, shape: &Shape, room: &mut JsonBudget) -> LiftResult {
    Ok(match (value, shape) {
        (Val::Bool(v), Shape::Bool) => {
            room.take(if v { 4 } else { 5 })?;
            Value::Bool(v)
        }
        (Val::S8(v), Shape::S8) => room.signed(v.into())?,
        (Val::U8(v), Shape::U8) => room.unsigned(v.into())?,
        (Val::S16(v), Shape::S16) => room.signed(v.into())?,
        (Val::U16(v), Shape::U16) => room.unsigned(v.into())?,
        (Val::S32(v), Shape::S32) => room.signed(v.into())?,
        (Val::U32(v), Shape::U32) => room.unsigned(v.into())?,
        (Val::S64(v), Shape::S64) if v.unsigned_abs() > super::MAX_SAFE_INTEGER => {
            room.string(v.to_string())?
        }
        (Val::S64(v), Shape::S64) => room.signed(v)?,
        (Val::U64(v), Shape::U64) if v > super::MAX_SAFE_INTEGER => room.string(v.to_string())?,
        (Val::U64(v), Shape::U64) => room.unsigned(v)?,
        (Val::Float32(v), Shape::F32) => room.float(shortest(v))?,
        (Val::Float64(v), Shape::F64) => room.float(v)?,
        (Val::Char(v), Shape::Char) => room.string(v.to_string())?,
        (Val::String(v), Shape::String) => room.string(v)?,
        (Val::List(items), Shape::Bytes) => {
            let bytes: Vec<u8> = items
                .into_iter()
                .filter_map(|v| if let Val::U8(b) = v { Some(b) } else { None })
                .collect();
            room.take(bytes.len().div_ceil(3) as u64 * 4 + 2)?;
            Value::String(BASE64.encode(bytes))
        }
        (Val::List(items), Shape::List(item))
        | (Val::FixedLengthList(items), Shape::Fixed(item, _)) => {
            room.array(items.len())?;
            let mut out = Vec::with_capacity(items.len());
            for (i, value) in items.into_iter().enumerate() {
                out.push(lift(value, item, room).map_err(|e| e.at_index(i))?);
            }
            Value::Array(out)
        }
        (Val::Map(pairs), Shape::Map(key, of)) => {
            room.array(pairs.len())?;
            let mut out = Vec::with_capacity(pairs.len());
            for (i, (k, v)) in pairs.into_iter().enumerate() {
                room.object(2)?;
                let fields = [("key", k, key), ("value", v, of)];
                let mut pair = Map::with_capacity(2);
                for (name, value, shape) in fields {
                    room.key(name)?;
                    let value = lift(value, shape, room);
                    pair.insert(
                        name.to_owned(),
                        value.map_err(|e| e.at_key(name).at_index(i))?,
                    );
                }
                out.push(Value::Object(pair));
            }
            Value::Array(out)
        }
        (Val::Record(values), Shape::Record(fields)) => record(values, fields, room)?,
        (Val::Tuple(items), Shape::Tuple(shapes)) => {
            room.array(items.len())?;
            let mut out = Vec::with_capacity(items.len());
            for (i, (value, shape)) in items.into_iter().zip(shapes).enumerate() {
                out.push(lift(value, shape, room).map_err(|e| e.at_index(i))?);
            }
            Value::Array(out)
        }
        (Val::Variant(name, None), Shape::Variant(_)) | (Val::Enum(name), Shape::Enum(_)) => {
            room.string(name)?
        }
        (Val::Variant(name, Some(payload)), Shape::Variant(cases)) => match cases.find(&name) {
            Some(Case {
                shape: Some(shape), ..
            }) => wrapped(name, *payload, Some(shape), room)?,
            _ => return Err(no_form()),
        },
        (Val::Option(None), Shape::Option(_)) => room.null()?,
        (Val::Option(Some(value)), Shape::Option(inner)) => match &**inner {
            Shape::Option(_) => wrapped("some".into(), *value, Some(inner), room)?,
            inner => lift(*value, inner, room)?,
        },
        (Val::Result(Ok(payload)), Shape::Result(ok, _)) => {
            side("ok", payload, ok.as_deref(), room)?
        }
        (Val::Result(Err(payload)), Shape::Result(_, err)) => {
            side("err", payload, err.as_deref(), room)?
        }
        (Val::Flags(names), Shape::Flags(_)) => {
            room.array(names.len())?;
            let names = names.into_iter().map(|name| room.string(name));
            Value::Array(names.collect::<Result<_, _>>()?)
        }
        _ => return Err(no_form()),
    })
}

fn record(values: Vec<(String, Val)>, fields: &[ShapeMember], room: &mut JsonBudget) -> LiftResult {
    room.object(values.len())?;
    let mut out = Map::with_capacity(values.len());
    for ((name, value), field) in values.into_iter().zip(fields) {
        room.key(&name)?;
        let value = lift(value, &field.shape, room).map_err(|e| e.at_key(&name))?;
        out.insert(name, value);
    }
    Ok(Value::Object(out))
}

fn side(
    name: &str,
    payload: Option<Box<Val>>,
    shape: Option<&Shape>,
    room: &mut JsonBudget,
) -> LiftResult {
    match payload {
        Some(payload) => wrapped(name.to_owned(), *payload, shape, room),
        None => {
            room.object(1)?;
            room.key(name)?;
            room.null()?;
            Ok(one(name.to_owned(), Value::Null))
        }
    }
}

/// `{"name": payload}`.
fn wrapped(name: String, payload: Val, shape: Option<&Shape>, room: &mut JsonBudget) -> LiftResult {
    room.object(1)?;
    room.key(&name)?;
    let value = match shape {
        Some(shape) => lift(payload, shape, room).map_err(|e| e.at_key(&name))?,
        None => return Err(no_form()),
    };
    Ok(one(name, value))
}

fn one(name: String, value: Value) -> Value {
    let mut object = Map::with_capacity(1);
    object.insert(name, value);
    Value::Object(object)
}

/// The value does not belong to the shape: a mistake of ours, which must not end in a wrong answer.
fn no_form() -> LiftStop {
    LiftStop::Misfit(TypeMismatch::new("the value is not of its declared type"))
}

/// The double whose shortest decimal form is that of `value`: 0.1 and not 0.10000000149011612.
fn shortest(value: f32) -> f64 {
    let widened = f64::from(value);
    match value.to_string().parse() {
        // Rounding twice could miss by one place.
        Ok(short) if (short as f32).to_bits() == value.to_bits() => short,
        _ => widened,
    }
}

/// The JSON that may still come: bytes of its text, and of memory.
struct JsonBudget {
    text: u64,
    memory: MemoryBudget,
}

impl JsonBudget {
    fn take(&mut self, bytes: u64) -> LiftResult<()> {
        self.text = self.text.checked_sub(bytes).ok_or(LiftStop::Full)?;
        Ok(())
    }

    /// The brackets and commas of `count` items or members.
    fn brackets(&mut self, count: usize) -> LiftResult<()> {
        self.take(2 + count.saturating_sub(1) as u64)
    }

    fn array(&mut self, items: usize) -> LiftResult<()> {
        self.brackets(items)?;
        Ok(self.memory.array(items)?)
    }

    fn object(&mut self, members: usize) -> LiftResult<()> {
        self.brackets(members)?;
        Ok(self.memory.object(members)?)
    }

    /// A name from the component's types, which needs no escapes, with its quotes and colon.
    fn key(&mut self, name: &str) -> LiftResult<()> {
        self.take(name.len() as u64 + 3)?;
        Ok(self.memory.string(name.len())?)
    }

    fn null(&mut self) -> LiftResult {
        self.take(4)?;
        Ok(Value::Null)
    }

    fn signed(&mut self, value: i64) -> LiftResult {
        self.take(digits(value.unsigned_abs()) + u64::from(value < 0))?;
        Ok(Value::Number(value.into()))
    }

    fn unsigned(&mut self, value: u64) -> LiftResult {
        self.take(digits(value))?;
        Ok(Value::Number(value.into()))
    }

    fn float(&mut self, value: f64) -> LiftResult {
        let Some(number) = Number::from_f64(value) else {
            return Err(LiftStop::Misfit(TypeMismatch::new(format!(
                "{value} is not a JSON number"
            ))));
        };
        let mut text = Length(0);
        // Writing a number to a counter cannot fail.
        let _ = serde_json::to_writer(&mut text, &number);
        self.take(text.0)?;
        Ok(Value::Number(number))
    }

    fn string(&mut self, text: String) -> LiftResult {
        let escapes: u64 = text
            .bytes()
            .map(|byte| ESCAPES[usize::from(byte)])
            .map(u64::from)
            .sum();
        self.take(text.len() as u64 + escapes + 2)?;
        self.memory.string(text.len())?;
        Ok(Value::String(text))
    }
}

fn digits(value: u64) -> u64 {
    u64::from(value.checked_ilog10().unwrap_or(0)) + 1
}

/// Bytes that each byte of a string gains in JSON text.
const ESCAPES: [u8; 256] = {
    let mut gains = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        gains[byte] = 5; // \u001f
        byte += 1;
    }
    gains[0x08] = 1;
    gains[b'\t' as usize] = 1;
    gains[b'\n' as usize] = 1;
    gains[0x0c] = 1;
    gains[b'\r' as usize] = 1;
    gains[b'"' as usize] = 1;
    gains[b'\\' as usize] = 1;
    gains
};

/// Counts bytes without keeping them.
struct Length(u64);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
