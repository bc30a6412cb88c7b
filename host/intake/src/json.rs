//! JSON as servers write it. Three habits of theirs are no JSON, and each would cost a whole answer:
//! half a surrogate pair (a token that ends inside an emoji), `NaN` and infinities (among
//! probabilities), and raw control characters inside strings.

use serde::de::Error as _;
use serde_json::{Error, Value};
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_json::{bounded, depth};

/// Parses JSON; what is not JSON for one of these habits alone is read all the same: half a pair as
/// U+FFFD, what is no number as `null`. A byte order mark before it is passed over.
///
/// # Errors
/// It is no JSON for another reason, would take too much memory, or is nested too deep.
pub fn parse(text: &str) -> Result<Value, Error> {
    let text = text.trim_start_matches('\u{feff}');
    bounded::weigh(text.as_bytes()).map_err(Error::custom)?;
    depth::check(text.as_bytes()).map_err(Error::custom)?;
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

/// Parses JSON in bytes, as [`parse`] does. Bytes that are no UTF-8 become U+FFFD.
///
/// # Errors
/// As [`parse`].
pub fn from_slice(bytes: &[u8]) -> Result<Value, Error> {
    parse(&String::from_utf8_lossy(bytes))
}

const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// `text` without the three habits; `None` if it has none of them, or a string that is broken otherwise.
fn mended(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut string = None;
    let mut is_mended = false;
    let mut lexer = JsonLexer::default();
    let mut rest = text;
    loop {
        let here = rest;
        match lexer.next(&mut rest) {
            Some(JsonToken::Between(c)) => {
                match NO_NUMBERS.iter().find_map(|word| here.strip_prefix(word)) {
                    Some(behind) => {
                        rest = behind;
                        out.push_str("null");
                        is_mended = true;
                    }
                    None => out.push(c),
                }
            }
            Some(JsonToken::Begin) => string = Some(String::new()),
            Some(JsonToken::Inside(part)) => {
                is_mended |= matches!(part, StringPart::Plain('\0'..' ') | StringPart::HalfPair);
                string.as_mut()?.push(match part {
                    StringPart::Plain(c) | StringPart::Escaped(c) => c,
                    StringPart::HalfPair => char::REPLACEMENT_CHARACTER,
                    StringPart::Stray(_) | StringPart::CutUnit => return None,
                });
            }
            Some(JsonToken::End) => out.push_str(&Value::from(string.take()?).to_string()),
            None => return (is_mended && string.is_none()).then_some(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn lone_surrogates_of_servers_are_replaced() {
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
            ("\u{feff}{\"a\":1}", json!({"a": 1})),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_cost_no_message() {
        let bytes = b"\xef\xbb\xbf{\"a\":\"\xff\",\"b\":\"\\ud83d\"}";
        let expected = json!({"a": "\u{fffd}", "b": "\u{fffd}"});
        assert_eq!(from_slice(bytes).unwrap(), expected);
        assert!(from_slice(b"").is_err());
    }

    #[test]
    fn other_faults_are_not_repaired() {
        for text in [
            "{oops}",
            r#"{"a":NaN,}"#,
            r#"{"a":"\ud83d"#,
            "",
            r#"{"a":"\uZZZZ"}"#,
            "\"\\",
            "nul",
            "NaN \"a",
            r#"{"a":NaN,"b":"\x"}"#,
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
