//! JSON as servers write it. Three habits of theirs are no JSON, and each would cost a whole answer:
//! half a surrogate pair (a token that ends inside an emoji), `NaN` and infinities (among
//! probabilities), and raw control characters inside strings.

use serde_json::{Error, Value};

/// Parses JSON; what is not JSON for one of these habits alone is read all the same: half a pair as
/// U+FFFD, what is no number as `null`.
pub(crate) fn parse(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).or_else(|error| {
        // Truncated JSON cannot be repaired; the first error tells the position.
        if error.is_eof() {
            return Err(error);
        }
        match mended(text) {
            Some(mended) => serde_json::from_str(&mended).map_err(|_| error),
            None => Err(error),
        }
    })
}

/// `text` without the three habits; `None` if it has none of them.
fn mended(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_string = false;
    while let Some(first) = rest.chars().next() {
        let taken = if is_string {
            let (taken, replacement) = in_string(rest);
            out.push_str(replacement.as_deref().unwrap_or(&rest[..taken]));
            is_string = first != '"';
            taken
        } else if let Some(word) = NO_NUMBERS.iter().find(|word| rest.starts_with(**word)) {
            out.push_str("null");
            word.len()
        } else {
            out.push(first);
            is_string = first == '"';
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    (out != text).then_some(out)
}

const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// How many bytes of a string's inside go together, and what to write instead of them.
fn in_string(rest: &str) -> (usize, Option<String>) {
    let bytes = rest.as_bytes();
    match bytes {
        [b'\\', b'u', ..] => {
            let Some(unit) = code_unit(rest) else {
                return (2, None);
            };
            let is_pair = || rest.get(6..).and_then(code_unit).is_some_and(is_low);
            match unit {
                0xd800..=0xdbff if is_pair() => (12, None),
                0xd800..=0xdfff => (6, Some("\\ufffd".into())),
                _ => (6, None),
            }
        }
        // The escaped character may be of any length.
        [b'\\', ..] => (1 + rest[1..].chars().next().map_or(0, char::len_utf8), None),
        [control @ 0..=0x1f, ..] => (1, Some(format!("\\u{control:04x}"))),
        _ => (rest.chars().next().map_or(0, char::len_utf8), None),
    }
}

/// The unit that an escape at the beginning stands for.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(())?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_low(unit: u16) -> bool {
    (0xdc00..=0xdfff).contains(&unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_servers_write_is_read() {
        for (text, expected) in [
            (r#"{"a":"\ud83d"}"#, json!({"a": "\u{fffd}"})),
            (r#"{"a":"x\ude00y"}"#, json!({"a": "x\u{fffd}y"})),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, json!({"a": "\u{fffd}😀"})),
            (
                r#"{"a":"\ud83d","b":"\ud83d\ude00 \\ud83d"}"#,
                json!({"a": "\u{fffd}", "b": "😀 \\ud83d"}),
            ),
            (
                r#"{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN"}"#,
                json!({"a": null, "b": [null, null], "c": "NaN"}),
            ),
            ("{\"a\":\"x\ty\nz\"}", json!({"a": "x\ty\nz"})),
            (r#"{"a":NaN,"b":"\"é\\"}"#, json!({"a": null, "b": "\"é\\"})),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_broken_otherwise_stays_broken() {
        for text in [
            "{oops}",
            r#"{"a":NaN,}"#,
            r#"{"a":"\ud83d"#,
            "",
            r#"{"a":"\uZZZZ"}"#,
            "\"\\",
            "nul",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn json_is_read_as_it_is(text in any::<String>(), number in any::<i64>()) {
            let value = json!({"a": [text, number], "b": {"c": null}});
            prop_assert_eq!(parse(&value.to_string()).unwrap(), value.clone());
            prop_assert_eq!(mended(&value.to_string()), None);
        }

        #[test]
        fn no_text_is_fatal(text in r#"[\\"u\{\}a-fd0-9NaInfity,:😀\n]{0,40}"#) {
            let _ = parse(&text);
            let _ = mended(&text);
        }
    }
}
