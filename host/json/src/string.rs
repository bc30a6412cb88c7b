//! The inside of a JSON string, in text that arrives in pieces.
//!
//! [`StringDecoder`] names what is no JSON and does not judge it: one reader refuses it, another repairs
//! it. A string ends with the first [`StringPart::Plain`] that is its quote.

/// Hexadecimal digits of a `\u` escape.
const UNIT_DIGITS: u8 = 4;

/// What stands next in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringPart {
    /// A character as it is written; JSON allows no control characters.
    Plain(char),
    /// What an escape of JSON stands for.
    Escaped(char),
    /// A character after a backslash, which JSON does not escape.
    Stray(char),
    /// An escape for one half of a surrogate pair, whose other half is not beside it, as its UTF-16 code unit.
    HalfPair(u32),
    /// `\u` and up to three digits. The character in place of the next digit is a part of its own.
    CutUnit,
}

/// Takes the inside of a string apart, in the same way wherever the text is cut into pieces.
#[derive(Debug, Clone, Default)]
pub struct StringDecoder {
    escape: EscapeState,
    /// The first half of a surrogate pair, which only the escape for the second half may follow.
    high: Option<u32>,
}

/// How much of an escape was read.
#[derive(Debug, Default, Clone, Copy)]
enum EscapeState {
    #[default]
    Outside,
    Backslash,
    /// After `\u` and some digits.
    Unit {
        value: u32,
        digits: u8,
    },
}

impl StringDecoder {
    /// Takes the next part from the beginning of `text`. `None`: the text is used up, and a part that
    /// was begun goes on in the next piece.
    pub fn next(&mut self, text: &mut &str) -> Option<StringPart> {
        loop {
            if let EscapeState::Unit { value, digits } = self.escape
                && digits == UNIT_DIGITS
            {
                match self.unit(value) {
                    None => continue,
                    part => return part,
                }
            }
            let mut rest = text.chars();
            let next = rest.next()?;
            let longer = match (self.escape, next, next.to_digit(16)) {
                (EscapeState::Outside, '\\', _) => EscapeState::Backslash,
                (EscapeState::Backslash, 'u', _) => EscapeState::Unit {
                    value: 0,
                    digits: 0,
                },
                (EscapeState::Unit { value, digits }, _, Some(digit)) => EscapeState::Unit {
                    value: (value << 4) | digit,
                    digits: digits + 1,
                },
                // What comes instead of the second half is taken by the next call.
                _ if self.high.is_some() => return self.high.take().map(StringPart::HalfPair),
                (state, ..) => {
                    self.escape = EscapeState::Outside;
                    let part = match state {
                        EscapeState::Outside => StringPart::Plain(next),
                        EscapeState::Backslash => escape(next),
                        EscapeState::Unit { .. } => return Some(StringPart::CutUnit),
                    };
                    *text = rest.as_str();
                    return Some(part);
                }
            };
            self.escape = longer;
            *text = rest.as_str();
        }
    }

    /// Takes a UTF-16 code unit. Characters outside of the basic plane are two units.
    fn unit(&mut self, unit: u32) -> Option<StringPart> {
        let code = match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            // The unit itself is taken by the next call.
            (Some(high), _) => return Some(StringPart::HalfPair(high)),
            (None, 0xd800..=0xdbff) => {
                self.high = Some(unit);
                self.escape = EscapeState::Outside;
                return None;
            }
            (None, _) => unit,
        };
        self.escape = EscapeState::Outside;
        Some(char::from_u32(code).map_or(StringPart::HalfPair(code), StringPart::Escaped))
    }
}

fn escape(letter: char) -> StringPart {
    StringPart::Escaped(match letter {
        '"' | '\\' | '/' => letter,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        _ => return StringPart::Stray(letter),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parts<'t>(pieces: impl IntoIterator<Item = &'t str>) -> Vec<StringPart> {
        let mut decoder = StringDecoder::default();
        let mut parts = Vec::new();
        for mut piece in pieces {
            parts.extend(std::iter::from_fn(|| decoder.next(&mut piece)));
            assert_eq!(piece, "");
        }
        parts
    }

    #[test]
    fn parts_that_json_forbids_are_named() {
        use StringPart::{CutUnit, Escaped, HalfPair, Plain, Stray};
        const HIGH: StringPart = HalfPair(0xd83d);
        const LOW: StringPart = HalfPair(0xde00);
        for (text, expected) in [
            (r"a\n\/", &[Plain('a'), Escaped('\n'), Escaped('/')][..]),
            ("\n\"", &[Plain('\n'), Plain('"')]),
            (r#"\"\\"#, &[Escaped('"'), Escaped('\\')]),
            (r"\d\'\é", &[Stray('d'), Stray('\''), Stray('é')]),
            (r"\u00e4\u00E4", &[Escaped('ä'), Escaped('ä')]),
            (r"\ud83d\ude00", &[Escaped('😀')]),
            (r"\ud83dA\ude00", &[HIGH, Plain('A'), LOW]),
            (r"\ud83d\ud83d\ude00\ude00", &[HIGH, Escaped('😀'), LOW]),
            (r"\ud83d\u0041", &[HIGH, Escaped('A')]),
            (r"\ud83d\n", &[HIGH, Escaped('\n')]),
            (r#"\ud83d\ud83d""#, &[HIGH, HIGH, Plain('"')]),
            (r"\u12g", &[CutUnit, Plain('g')]),
            (
                r"\u+123",
                &[CutUnit, Plain('+'), Plain('1'), Plain('2'), Plain('3')],
            ),
            (r"\u", &[]),
            (r#"\u1\u""#, &[CutUnit, CutUnit, Plain('"')]),
            (r"\ud83d\u12\n", &[HIGH, CutUnit, Escaped('\n')]),
            (r"a\ud83d", &[Plain('a')]),
            (r"a\", &[Plain('a')]),
        ] {
            assert_eq!(parts([text]), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn json_strings_are_decoded(text in any::<String>()) {
            for json in [json!(text).to_string(), format!("\"{}\"", units(&text))] {
                let inside = &json[1..json.len() - 1];
                let decoded = parts([inside]).into_iter().map(|part| match part {
                    StringPart::Plain(c) | StringPart::Escaped(c) => Some(c),
                    _ => None,
                });
                prop_assert_eq!(decoded.collect::<Option<String>>(), Some(text.clone()));
            }
        }

        #[test]
        fn a_cut_changes_nothing(text in r#"(\\u(d83d|de0|[0-9a-g]{3})[0e]?|[\\"un1-eé😀\n]){0,12}"#) {
            let whole = parts([text.as_str()]);
            for (at, _) in text.char_indices() {
                let (head, tail) = text.split_at(at);
                prop_assert_eq!(&parts([head, tail]), &whole, "cut at {}", at);
            }
            prop_assert_eq!(parts(text.split("").filter(|c| !c.is_empty())), whole);
        }
    }

    /// Every character as escapes of its UTF-16 code units.
    fn units(text: &str) -> String {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        units.collect::<Vec<_>>().concat()
    }
}
