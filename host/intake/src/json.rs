//! JSON as servers write it. Four habits of theirs are no JSON, and each would cost a whole answer:
//! half a surrogate pair (a token that ends inside an emoji), `NaN` and infinities (among
//! probabilities), numbers beyond those of 64 bits (`1e400`), and raw control characters inside strings.

use serde::de::Error as _;
use serde_json::{Error, Value};
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_json::{bounded, depth};

/// Parses JSON; JSON with one of these habits is read all the same: half a pair as
/// U+FFFD, what is no number as `null`. A byte order mark before it is passed over.
///
/// # Errors
/// It is no JSON for another reason, would take too much memory, or is nested too deep.
pub fn parse(text: &str) -> Result<Value, Error> {
    let (value, _) = read(text, HalfForm::Replaced)?;
    Ok(value)
}

/// [`parse`], of one piece of a stream: each half of a pair is a character of its own, because the other half may come in
/// the next piece. Also returns whether there are halves. [`is_first_half`] and [`joined`] know them, and [`replace_halves`]
/// replaces those that stay alone.
///
/// # Errors
/// As [`parse`].
pub fn parse_piece(text: &str) -> Result<(Value, bool), Error> {
    read(text, HalfForm::Marked)
}

/// True for the character that [`parse_piece`] writes for the first half of a pair.
pub fn is_first_half(c: char) -> bool {
    (FIRST_HALF..SECOND_HALF).contains(&c)
}

/// Returns the character of two halves; `None` if the second one is none.
pub fn joined(first: char, second: char) -> Option<char> {
    let (high, low) = (u32::from(first), u32::from(second));
    let high = high.checked_sub(u32::from(FIRST_HALF))?;
    let low = low.checked_sub(u32::from(SECOND_HALF))?;
    char::from_u32(0x1_0000 + (high << 10) + low)
}

/// Replaces halves that are left in a piece by U+FFFD.
pub fn replace_halves(piece: &mut Value) {
    match piece {
        Value::String(text) => {
            if text.contains(is_half) {
                *text = text.replace(is_half, "\u{fffd}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_halves),
        Value::Object(members) => members.values_mut().for_each(replace_halves),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How half of a surrogate pair is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HalfForm {
    /// U+FFFD stands for it.
    Replaced,
    /// A character of its own stands for it.
    Marked,
}

/// Characters that stand for halves of pairs, in their order: the last ones of a plane for private use. A text that holds
/// one of them itself gets no marks.
const FIRST_HALF: char = '\u{10f800}';
const SECOND_HALF: char = '\u{10fc00}';

fn is_half(c: char) -> bool {
    c >= FIRST_HALF
}

/// The mark of half a pair, by its UTF-16 code unit.
fn half_mark(unit: u32) -> char {
    const FIRST_UNIT: u32 = 0xd800;
    let place = unit.saturating_sub(FIRST_UNIT);
    let mark = u32::from(FIRST_HALF).saturating_add(place);
    char::from_u32(mark).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn read(text: &str, halves: HalfForm) -> Result<(Value, bool), Error> {
    let text = text.trim_start_matches('\u{feff}');
    bounded::weigh(text.as_bytes()).map_err(Error::custom)?;
    depth::check(text.as_bytes()).map_err(Error::custom)?;
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok((value, false)),
        // Truncated JSON cannot be repaired; the first error tells the position.
        Err(error) if error.is_eof() => return Err(error),
        Err(error) => error,
    };
    let Some((mended, has_halves)) = mended(text, halves) else {
        return Err(error);
    };
    match serde_json::from_str(&mended) {
        Ok(value) => Ok((value, has_halves)),
        // It is truncated behind such a habit.
        Err(later) if later.is_eof() => Err(later),
        Err(_) => Err(error),
    }
}

/// Parses JSON in bytes, as [`parse`] does. Bytes that are no UTF-8 become U+FFFD.
///
/// # Errors
/// As [`parse`].
pub fn from_slice(bytes: &[u8]) -> Result<Value, Error> {
    parse(&String::from_utf8_lossy(bytes))
}

const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// `text` without the habits, and whether halves of pairs are marked in it; `None` if it has none of them, or a string that
/// is broken otherwise.
fn mended(text: &str, halves: HalfForm) -> Option<(String, bool)> {
    let mut out = String::with_capacity(text.len());
    let mut string = None;
    let (mut is_mended, mut has_halves, mut has_marks) = (false, false, false);
    let mut lexer = JsonLexer::default();
    let mut rest = text;
    loop {
        let here = rest;
        match lexer.next(&mut rest) {
            Some(JsonToken::Between(c)) => {
                if let Some(behind) = NO_NUMBERS.iter().find_map(|word| here.strip_prefix(word)) {
                    rest = behind;
                    out.push_str("null");
                    is_mended = true;
                } else if c == '-' || c.is_ascii_digit() {
                    let end = here.find(|c: char| !is_of_number(c)).unwrap_or(here.len());
                    let (literal, behind) = here.split_at(end);
                    let is_infinite = literal.parse::<f64>().is_ok_and(f64::is_infinite);
                    out.push_str(if is_infinite { "null" } else { literal });
                    is_mended |= is_infinite;
                    rest = behind;
                } else {
                    out.push(c);
                }
            }
            Some(JsonToken::Begin) => string = Some(String::new()),
            Some(JsonToken::Inside(part)) => {
                let string = string.as_mut()?;
                is_mended |= matches!(part, StringPart::Plain('\0'..' ') | StringPart::HalfPair(_));
                string.push(match part {
                    StringPart::Plain(c) | StringPart::Escaped(c) => {
                        has_marks |= is_half(c);
                        c
                    }
                    StringPart::HalfPair(unit) if halves == HalfForm::Marked => {
                        has_halves = true;
                        half_mark(unit)
                    }
                    StringPart::HalfPair(_) => char::REPLACEMENT_CHARACTER,
                    StringPart::Stray(_) | StringPart::CutUnit => return None,
                });
            }
            Some(JsonToken::End) => out.push_str(&Value::from(string.take()?).to_string()),
            None if has_halves && has_marks => return mended(text, HalfForm::Replaced),
            None => return (is_mended && string.is_none()).then_some((out, has_halves)),
        }
    }
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E')
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
            (
                r#"{"a":[1e400,-1.5E+999,1e308],"b":-0,"c":"1e400"}"#,
                json!({"a": [null, null, 1e308], "b": -0.0, "c": "1e400"}),
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

    #[test]
    fn halves_of_a_piece_are_joined_with_the_next_one() {
        let piece = |text: &str| {
            let (value, has_halves) = parse_piece(text).unwrap();
            assert!(has_halves, "{text}");
            value.as_str().unwrap().to_owned()
        };
        let (first, second) = (piece(r#""a\ud83d""#), piece(r#""\ude00b""#));
        let first = first.chars().next_back().unwrap();
        let second = second.chars().next().unwrap();
        assert!(is_first_half(first) && !is_first_half(second));
        assert_eq!(joined(first, second), Some('😀'));
        assert_eq!(joined(first, first), None);
        assert_eq!(joined(first, 'b'), None);
        let mut value = parse_piece(r#"{"a":["x\ud83d"]}"#).unwrap().0;
        replace_halves(&mut value);
        assert_eq!(value, json!({"a": ["x\u{fffd}"]}));
        // A text that holds such a mark itself.
        let own = "{\"a\":\"\u{10fc00}\\ud83d\"}";
        let expected = (json!({"a": "\u{10fc00}\u{fffd}"}), false);
        assert_eq!(parse_piece(own).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn json_is_read_as_it_is(text in any::<String>(), number in any::<i64>()) {
            let value = json!({"a": [text, number], "b": {"c": null}});
            prop_assert_eq!(parse(&value.to_string()).unwrap(), value.clone());
            prop_assert_eq!(mended(&value.to_string(), HalfForm::Marked), None);
        }

        #[test]
        fn no_text_is_fatal(text in r#"[\\"u\{\}a-fd0-9NaInfity,:😀\n]{0,40}"#) {
            let _ = parse(&text);
            let _ = mended(&text, HalfForm::Marked);
        }
    }
}
