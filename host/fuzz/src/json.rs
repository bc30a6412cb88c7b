//! JSON out of bytes: any, or of a schema as `toolhold_sandbox::value::schema` writes them.

use arbitrary::{Result, Unstructured};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value, json};

/// A value that the schema describes. Where a schema can only say the form (numbers in text, base64),
/// the value is one that the form stands for.
pub fn described(schema: &Value, u: &mut Unstructured) -> Result<Value> {
    if let Some(constant) = schema.get("const") {
        return Ok(constant.clone());
    }
    for key in ["anyOf", "enum"] {
        if let Some(Value::Array(choices)) = schema.get(key) {
            let choice = u.choose(choices)?;
            return if key == "enum" {
                Ok(choice.clone())
            } else {
                described(choice, u)
            };
        }
    }
    Ok(match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => json!(u.arbitrary::<bool>()?),
        Some("integer") => integer(schema, u)?,
        // Within what both float types hold exactly.
        Some("number") => match u.arbitrary::<f32>()? {
            number if number.is_finite() && u.arbitrary()? => json!(f64::from(number)),
            _ => json!(u.int_in_range(-(1 << 24)..=1 << 24)?),
        },
        Some("string") => string(schema, u)?,
        Some("array") => array(schema, u)?,
        Some("object") => object(schema, u)?,
        _ => Value::Null,
    })
}

fn integer(schema: &Value, u: &mut Unstructured) -> Result<Value> {
    let bound = |key: &str| {
        let bound = schema.get(key)?;
        let signed = bound.as_i64().map(i128::from);
        signed.or_else(|| bound.as_u64().map(i128::from))
    };
    let least = bound("minimum").unwrap_or(i64::MIN.into());
    let most = bound("maximum").unwrap_or(i64::MAX.into());
    let number = u.int_in_range(least..=most)?;
    Ok(match i64::try_from(number) {
        Ok(number) => json!(number),
        Err(_) => json!(u64::try_from(number).unwrap_or(u64::MAX)),
    })
}

fn string(schema: &Value, u: &mut Unstructured) -> Result<Value> {
    Ok(match schema.get("pattern").and_then(Value::as_str) {
        Some(signed) if signed.starts_with("^-?") => json!(u.arbitrary::<i64>()?.to_string()),
        Some(_) => json!(u.arbitrary::<u64>()?.to_string()),
        None if schema.get("contentEncoding").is_some() => {
            let length = u.int_in_range(0..=40)?;
            json!(BASE64.encode(u.bytes(length)?))
        }
        None if schema.get("maxLength") == Some(&json!(1)) => json!(u.arbitrary::<char>()?),
        None => json!(u.arbitrary::<&str>()?),
    })
}

fn array(schema: &Value, u: &mut Unstructured) -> Result<Value> {
    if let Some(Value::Array(items)) = schema.get("prefixItems") {
        return items.iter().map(|item| described(item, u)).collect();
    }
    let Some(item) = schema.get("items") else {
        return Ok(json!([]));
    };
    // Flags: a subset, in its order.
    if let Some(Value::Array(names)) = item.get("enum") {
        let mut chosen = Vec::new();
        for name in names {
            if u.arbitrary()? {
                chosen.push(name.clone());
            }
        }
        return Ok(chosen.into());
    }
    (0..u.int_in_range(0..=3)?)
        .map(|_| described(item, u))
        .collect()
}

fn object(schema: &Value, u: &mut Unstructured) -> Result<Value> {
    let mut out = Map::new();
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|n| n == name));
        if is_required || u.arbitrary()? {
            out.insert(name.clone(), described(property, u)?);
        }
    }
    Ok(out.into())
}

/// The value with some of its parts replaced, renamed, doubled or left out.
pub fn mutated(value: Value, u: &mut Unstructured) -> Result<Value> {
    if u.ratio(1, 8)? {
        return any(u, 0);
    }
    Ok(match value {
        Value::Array(items) => {
            let mut out = Vec::new();
            for item in items {
                match u.int_in_range(0..=15)? {
                    0 => {}
                    1 => out.extend([item.clone(), item]),
                    _ => out.push(mutated(item, u)?),
                }
            }
            out.into()
        }
        Value::Object(object) => {
            let mut out = Map::new();
            for (name, value) in object {
                match u.int_in_range(0..=15)? {
                    0 => {}
                    1 => drop(out.insert(u.arbitrary::<&str>()?.to_owned(), value)),
                    _ => drop(out.insert(name, mutated(value, u)?)),
                }
            }
            out.into()
        }
        other => other,
    })
}

/// Any JSON, with a taste for the edges of numbers.
pub fn any(u: &mut Unstructured, depth: usize) -> Result<Value> {
    let most = if depth < 4 { 10 } else { 8 };
    Ok(match u.int_in_range(0..=most)? {
        0 => Value::Null,
        1 => json!(u.arbitrary::<bool>()?),
        2 => json!(u.arbitrary::<i64>()?),
        3 => json!(u.arbitrary::<u64>()?),
        4 => json!(u.arbitrary::<f64>()?),
        5 => u
            .choose(&[
                json!(128),
                json!(-129),
                json!(65_536),
                json!(4_294_967_296_u64),
                json!(1.0),
                json!(-0.0),
                json!(1e39),
                json!(5e-324),
                json!(9_007_199_254_740_993_u64),
                json!("9223372036854775808"),
                json!("+5"),
                json!("-0"),
                json!("007"),
                json!(""),
                json!("18446744073709551616"),
                json!("🙂"),
                json!("e\u{301}"),
                json!("AA"),
            ])?
            .clone(),
        6 => json!(u.arbitrary::<i64>()?.to_string()),
        7 => json!(u.arbitrary::<char>()?),
        8 => json!(u.arbitrary::<&str>()?),
        9 => (0..u.int_in_range(0..=3)?)
            .map(|_| any(u, depth + 1))
            .collect::<Result<_>>()?,
        _ => {
            let mut out = Map::new();
            for _ in 0..u.int_in_range(0..=3)? {
                let name: &str = if u.arbitrary()? {
                    u.choose(&["ok", "err", "key", "value", "a"])?
                } else {
                    u.arbitrary()?
                };
                out.insert(name.to_owned(), any(u, depth + 1)?);
            }
            out.into()
        }
    })
}

/// Whether two values say the same: numbers by value even in text, an absent option like a null one.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let within = |a: &Map<_, _>, b: &Map<_, _>| {
                a.iter()
                    .all(|(name, value)| same(value, b.get(name).unwrap_or(&Value::Null)))
            };
            within(a, b) && within(b, a)
        }
        (Value::Number(number), Value::String(text))
        | (Value::String(text), Value::Number(number)) => number.to_string() == *text,
        // An f32 may come back as the shortest decimal that is the same f32.
        (Value::Number(x), Value::Number(y)) => x == y || single(x) == single(y),
        (a, b) => a == b,
    }
}

fn single(number: &Number) -> Option<f32> {
    number.as_f64().map(|number| number as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_looks_through_the_forms_and_not_further() {
        assert!(same(&json!({"a": 1, "b": null}), &json!({"a": "1"})));
        assert!(same(&json!([1.0]), &json!([1])));
        assert!(!same(&json!({"a": 1}), &json!({"a": 2})));
        assert!(!same(&json!({"a": 1}), &json!({})));
        assert!(!same(&json!([1]), &json!([1, 1])));
    }
}
