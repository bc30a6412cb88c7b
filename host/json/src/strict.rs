//! JSON in which every key has one value. RFC 8259 (4) lets a key stand twice and leaves open which
//! value counts: a call with two readings is refused.

use crate::rules::ReadingRules;
use crate::{bounded, numbers};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// # Errors
/// It is no JSON, a key has two values, a number would lose digits ([`numbers`]), or the value needs more memory than it
/// may ([`bounded`]).
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    parse_under(ReadingRules::Current, text)
}

/// [`parse`], under these rules.
///
/// # Errors
/// The errors of [`parse`]. Under the rules of format 3 no number is refused.
pub fn parse_under(rules: ReadingRules, text: &str) -> Result<Value, serde_json::Error> {
    let Strict(value) = bounded::from_str(text)?;
    if rules.are_from_4() {
        numbers::check(text.as_bytes()).map_err(serde_json::Error::custom)?;
    }
    Ok(value)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Strict(value))) = members.next_entry::<String, Strict>()? {
            if object.get(&key).is_some_and(|known| *known != value) {
                return Err(A::Error::custom(format!(
                    "{key:.40?} is there twice, with different values; write it once"
                )));
            }
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_key_has_one_value() {
        let same = r#"{"a": {"b": [1, 1.5, null]}, "a": {"b": [1, 1.5, null]}}"#;
        assert_eq!(parse(same).unwrap(), json!({"a": {"b": [1, 1.5, null]}}));
        for text in [
            r#"{"a": 1, "a": 2}"#,
            r#"[{"x": {"a": 1, "\u0061": "1"}}]"#,
            r#"{"a": null, "b": 1, "a": false}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is there twice"), "{text}: {error}");
        }
    }

    #[test]
    fn under_the_rules_of_format_3_numbers_are_rounded() {
        let text = "[36893488147419103232]";
        assert!(parse_under(ReadingRules::Current, text).is_err());
        let value = parse_under(ReadingRules::Format3, text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
    }

    proptest! {
        /// Of everything else it is serde_json.
        #[test]
        fn the_rest_is_read_as_ever(text in "[\\[\\]{}\",:0-9a-e.\\- \\\\truefalsn]{0,24}", n in any::<f64>(), m in any::<u64>()) {
            for text in [text, json!({"n": n, "m": [m, {"s": "\u{0}\u{1f600}"}]}).to_string()] {
                match (parse(&text), serde_json::from_str::<Value>(&text)) {
                    (Ok(own), Ok(value)) => prop_assert_eq!(own, value),
                    (Err(own), Err(error)) => prop_assert_eq!(own.to_string(), error.to_string()),
                    (Err(own), Ok(_)) => prop_assert!(
                        own.to_string().contains("is there twice") || own.to_string().contains("would lose digits")
                    ),
                    (Ok(own), Err(error)) => prop_assert!(false, "{own}: {error}"),
                }
            }
        }
    }
}
