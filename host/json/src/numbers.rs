//! Number literals that would change if they were read.
//!
//! A JSON number becomes a 64-bit integer or an `f64`. These literals are *kept*:
//!
//! - an integer that fits into 64 bits, or is written again with the same digits (`100000000000000000000000`, `1e23`);
//! - a decimal of at most 17 significant digits, whose value is rounded as every reader of JSON does it;
//! - a longer decimal that is the `f64` itself, written with as many digits (`0.1000000000000000055511151231257827`).
//!
//! Others are refused with words where values come in: arguments of calls, and results of tools and clients.
//!
//! The feature `arbitrary_precision` of `serde_json` would keep their text. It gives numbers to readers as maps with a key of
//! its own, which breaks tagged and untagged enums and each reader that asks for the type of what comes, and compares numbers
//! by their text, so that `1.0` and `1.00` differ.

use crate::rules::ReadingRules;
use std::error::Error;
use std::fmt;

/// Significant digits of a decimal that an `f64` has room for.
const DIGITS: usize = 17;
/// Significant digits of a literal that is compared. No `f64` has more than 767.
const MAX_DIGITS: usize = 800;
/// Bytes of a literal without an exponent that is always kept: it has at most 15 digits, or is an integer of 15.
const SHORT: usize = 15;
/// Characters of the literal that an error quotes.
const QUOTED: usize = 40;

/// A number whose digits would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InexactNumber {
    /// The text of the number, cut to 40 characters.
    literal: String,
}

impl fmt::Display for InexactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the number {} would lose digits: integers have 64 bits and decimals {DIGITS} digits; send it as a string",
            self.literal
        )
    }
}

impl Error for InexactNumber {}

/// Checks each number of a JSON text in one pass. In a text that is no JSON it checks each run of characters of numbers outside of
/// quotes.
///
/// # Errors
/// The first number that would change.
pub fn check(text: &[u8]) -> Result<(), InexactNumber> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => behind_string(after),
            b'-' | b'0'..=b'9' => {
                let end = rest.iter().position(|byte| !is_of_number(*byte));
                let (literal, after) = rest.split_at(end.unwrap_or(rest.len()));
                // Of ASCII characters alone.
                check_literal(std::str::from_utf8(literal).unwrap_or_default())?;
                after
            }
            _ => after,
        };
    }
    Ok(())
}

/// Checks the text of one number.
///
/// # Errors
/// It would change.
pub fn check_literal(literal: &str) -> Result<(), InexactNumber> {
    if is_kept(literal) {
        return Ok(());
    }
    let mut quoted: String = literal.chars().take(QUOTED).collect();
    if quoted.len() < literal.len() {
        quoted.push('…');
    }
    Err(InexactNumber { literal: quoted })
}

/// [`check_literal`], under these rules: under those of format 3 each number is taken.
pub(crate) fn check_literal_under(rules: ReadingRules, literal: &str) -> Result<(), InexactNumber> {
    match rules {
        ReadingRules::Format3 => Ok(()),
        ReadingRules::Format4 | ReadingRules::Current => check_literal(literal),
    }
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// The text behind the quote that ends a string.
fn behind_string(text: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}

fn is_kept(literal: &str) -> bool {
    let has_exponent = literal.contains(['e', 'E']);
    if literal.len() <= SHORT && !has_exponent {
        return true;
    }
    let is_integer = !has_exponent && !literal.contains('.');
    if is_integer && (literal.parse::<i64>().is_ok() || literal.parse::<u64>().is_ok()) {
        return true;
    }
    // The reader of JSON refuses what is no number.
    let Ok(value) = literal.parse::<f64>() else {
        return true;
    };
    // Tolerant readers take a number that is too large for `null`.
    if value.is_infinite() {
        return false;
    }
    let digits = significant(literal);
    if digits.is_empty() {
        return true;
    }
    if value == 0.0 || digits.len() > MAX_DIGITS {
        return false;
    }
    // Numbers near zero have fewer digits.
    if !is_integer && digits.len() <= DIGITS && !value.is_subnormal() {
        return true;
    }
    let written = if is_integer {
        format!("{value:e}")
    } else {
        format!("{:.*e}", digits.len() - 1, value)
    };
    written.split('e').next().is_some_and(|mantissa| {
        let mantissa = mantissa.bytes().filter(u8::is_ascii_digit);
        mantissa.eq(digits.bytes())
    })
}

/// The digits without zeros before and behind them.
fn significant(literal: &str) -> String {
    let mantissa = literal.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn numbers_that_keep_their_value_are_read() {
        for literal in [
            "0",
            "-0",
            "7",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "0.10000000000000000000000",
            "3.141592653589793",
            "0.12345678901234567",
            "1e23",
            "100000000000000000000000",
            "1E+2",
            "0.1000000000000000055511151231257827",
            "1.7976931348623157e308",
            "5e-324",
            "2.2250738585072014e-308",
            "0e-999",
            "0.000000000000000000000000000000001",
            // The reader's own fault.
            "1-2-3-4-5-6-7-8-9",
        ] {
            assert_eq!(check_literal(literal), Ok(()), "{literal}");
            assert_eq!(check(literal.as_bytes()), Ok(()), "{literal}");
        }
    }

    #[test]
    fn numbers_that_would_change_are_refused_with_words() {
        for literal in [
            "123456789012345678901234567890",
            "18446744073709551617",
            "1180591620717411303424",
            "-9223372036854775809",
            "3.14159265358979323846",
            "1.00000000000000000001",
            "1e-400",
            "1e400",
            "1.2345678901234567e-320",
            "12345678901234567890123e2",
        ] {
            let text = format!("{{\"a 1234567890123456789012\": [true, {literal}]}}");
            let error = check(text.as_bytes()).unwrap_err();
            assert_eq!(error, check_literal(literal).unwrap_err());
            let words = error.to_string();
            assert!(
                words.contains(literal) && words.contains("as a string"),
                "{words}"
            );
        }
        let long = format!("0.{}", "1234567890".repeat(100_000));
        assert!(check(long.as_bytes()).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn digits_in_texts_are_no_numbers() {
        let text =
            r#"{"123456789012345678901234567890": "\"123456789012345678901234567890\\", "a": 1}"#;
        assert_eq!(check(text.as_bytes()), Ok(()));
    }

    proptest! {
        #[test]
        fn numbers_that_were_written_from_values_are_kept(float in any::<f64>(), signed in any::<i64>(), unsigned in any::<u64>()) {
            let text = json!([float, signed, unsigned, {"a": -float}]).to_string();
            prop_assert_eq!(check(text.as_bytes()), Ok(()), "{}", text);
        }

        /// An integer that is kept is written again with the same digits.
        #[test]
        fn kept_integers_are_written_as_they_were(digits in "[1-9][0-9]{0,40}") {
            if check_literal(&digits).is_ok() {
                let value: serde_json::Value = serde_json::from_str(&digits).unwrap();
                prop_assert_eq!(significant(&value.to_string()), significant(&digits));
            }
        }

        #[test]
        fn any_text_is_looked_at(text in "[-+.eE0-9\"\\\\a, ]{0,60}") {
            let _ = check(text.as_bytes());
            let _ = check_literal(&text);
        }
    }
}
