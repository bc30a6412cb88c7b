//! WIT types → JSON Schema, for components that were not written for this host.
//!
//! Only constructs that every endpoint's grammar understands (TOOLCHAINS.md): closed objects with
//! all keys listed, `anyOf` with constants, integer bounds, anchored patterns. [`crate::value`]
//! converts exactly what these schemas accept.

use serde_json::{Map, Value, json};
use wasmtime::component::Type;

/// What a signature of nested types may be: deeper ones are refused rather than shown to a model.
const MAX_DEPTH: usize = 16;

/// Parts that a signature may have. Types are shared in a component and written out in a schema, so a
/// component of 300 bytes can have a type of a million parts.
const MAX_PARTS: usize = 2_000;

/// The schema of a function's parameters: one closed object.
///
/// # Errors
/// The name of the parameter and the reason, for types that have no JSON form.
pub fn parameters<'a>(params: impl Iterator<Item = (&'a str, &'a Type)>) -> Result<Value, String> {
    object(params.map(|(name, ty)| (name, ty.clone())), 0, &mut 0)
        .map_err(|reason| format!("parameter {reason}"))
}

/// The schema of one value.
///
/// # Errors
/// The reason, for resources, streams, futures, error contexts, and types that are nested too deeply
/// or have too many parts.
pub fn of(ty: &Type) -> Result<Value, String> {
    nested(ty, 0, &mut 0)
}

/// `parts` counts what was written so far.
fn nested(ty: &Type, depth: usize, parts: &mut usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("its type is nested deeper than {MAX_DEPTH} levels"));
    }
    *parts += 1;
    if *parts > MAX_PARTS {
        return Err(format!("its type has more than {MAX_PARTS} parts"));
    }
    let mut deeper = |ty: &Type| nested(ty, depth + 1, parts);
    Ok(match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::S8 => integer(i8::MIN, i8::MAX),
        Type::U8 => integer(u8::MIN, u8::MAX),
        Type::S16 => integer(i16::MIN, i16::MAX),
        Type::U16 => integer(u16::MIN, u16::MAX),
        Type::S32 => integer(i32::MIN, i32::MAX),
        Type::U32 => integer(u32::MIN, u32::MAX),
        // Many JSON readers hold numbers as doubles: beyond 2^53 a string is the way without loss.
        Type::S64 => {
            json!({"anyOf": [integer(i64::MIN, i64::MAX), {"type": "string", "pattern": "^-?[0-9]{1,19}$"}]})
        }
        Type::U64 => {
            json!({"anyOf": [integer(0, u64::MAX), {"type": "string", "pattern": "^[0-9]{1,20}$"}]})
        }
        Type::Float32 | Type::Float64 => json!({"type": "number"}),
        Type::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Type::String => json!({"type": "string"}),
        Type::List(list) if matches!(list.ty(), Type::U8) => {
            json!({"type": "string", "contentEncoding": "base64", "description": "bytes in base64"})
        }
        Type::List(list) => json!({"type": "array", "items": deeper(&list.ty())?}),
        Type::FixedLengthList(list) => {
            json!({"type": "array", "items": deeper(&list.ty())?, "minItems": list.len(), "maxItems": list.len()})
        }
        Type::Map(map) => {
            let pair = json!({
                "type": "object",
                "properties": {"key": deeper(&map.key())?, "value": deeper(&map.value())?},
                "required": ["key", "value"],
                "additionalProperties": false,
            });
            json!({"type": "array", "items": pair})
        }
        Type::Record(record) => object(record.fields().map(|f| (f.name, f.ty)), depth, parts)?,
        Type::Tuple(tuple) => {
            let items = tuple
                .types()
                .map(|t| deeper(&t))
                .collect::<Result<Vec<_>, _>>()?;
            json!({"type": "array", "minItems": items.len(), "maxItems": items.len(), "prefixItems": items})
        }
        Type::Variant(variant) => {
            let cases = variant
                .cases()
                .map(|case| match &case.ty {
                    None => Ok(json!({"const": case.name})),
                    Some(ty) => Ok(single(case.name, deeper(ty)?)),
                })
                .collect::<Result<Vec<_>, String>>()?;
            json!({"anyOf": cases})
        }
        Type::Enum(names) => json!({"type": "string", "enum": names.names().collect::<Vec<_>>()}),
        Type::Option(option) => {
            // `option<option<T>>` needs two ways to be empty, which null alone cannot say.
            if matches!(option.ty(), Type::Option(_)) {
                return Err("an option directly inside an option has no JSON form".into());
            }
            json!({"anyOf": [deeper(&option.ty())?, {"type": "null"}]})
        }
        Type::Result(result) => {
            let mut side =
                |ty: Option<Type>| ty.map_or(Ok(json!({"type": "null"})), |ty| deeper(&ty));
            json!({"anyOf": [single("ok", side(result.ok())?), single("err", side(result.err())?)]})
        }
        Type::Flags(flags) => {
            let names: Vec<_> = flags.names().collect();
            json!({"type": "array", "items": {"type": "string", "enum": names}, "maxItems": names.len()})
        }
        Type::Own(_) | Type::Borrow(_) => {
            return Err("a resource lives only inside one instance and has no JSON form".into());
        }
        Type::Future(_) => return Err("a future has no JSON form".into()),
        Type::Stream(_) => return Err("a stream has no JSON form".into()),
        Type::ErrorContext => return Err("an error context has no JSON form".into()),
    })
}

fn object<'a>(
    fields: impl Iterator<Item = (&'a str, Type)>,
    depth: usize,
    parts: &mut usize,
) -> Result<Value, String> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, ty) in fields {
        let schema = nested(&ty, depth + 1, parts).map_err(|reason| format!("{name}: {reason}"))?;
        if !matches!(ty, Type::Option(_)) {
            required.push(name);
        }
        properties.insert(name.to_owned(), schema);
    }
    Ok(
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
    )
}

fn single(name: &str, schema: Value) -> Value {
    json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false})
}

fn integer(minimum: impl Into<Value>, maximum: impl Into<Value>) -> Value {
    json!({"type": "integer", "minimum": minimum.into(), "maximum": maximum.into()})
}
