//! Escapes that stand for one byte: of URLs, of JSON and the languages like it, of HTML and XML.

/// Names of ASCII characters in HTML, without `&` and `;`.
const NAMED: [(&[u8], u8); 36] = [
    (b"amp", b'&'),
    (b"apos", b'\''),
    (b"ast", b'*'),
    (b"bsol", b'\\'),
    (b"colon", b':'),
    (b"comma", b','),
    (b"commat", b'@'),
    (b"dollar", b'$'),
    (b"equals", b'='),
    (b"excl", b'!'),
    (b"grave", b'`'),
    (b"gt", b'>'),
    (b"hat", b'^'),
    (b"lbrace", b'{'),
    (b"lbrack", b'['),
    (b"lcub", b'{'),
    (b"lowbar", b'_'),
    (b"lpar", b'('),
    (b"lsqb", b'['),
    (b"lt", b'<'),
    (b"newline", b'\n'),
    (b"num", b'#'),
    (b"percnt", b'%'),
    (b"period", b'.'),
    (b"plus", b'+'),
    (b"quest", b'?'),
    (b"quot", b'"'),
    (b"rbrace", b'}'),
    (b"rbrack", b']'),
    (b"rcub", b'}'),
    (b"rpar", b')'),
    (b"rsqb", b']'),
    (b"semi", b';'),
    (b"sol", b'/'),
    (b"tab", b'\t'),
    (b"vert", b'|'),
];
/// Bytes of the longest name.
const LONGEST_NAME: usize = 7;
/// Most digits of a numeric HTML entity, leading zeros included.
const ENTITY_DIGITS: u8 = 7;

/// White space, which base64 and hex may have anywhere.
pub fn is_blank(symbol: u8) -> bool {
    matches!(symbol, b' ' | b'\t' | b'\r' | b'\n')
}

/// An escape that has begun and is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// After `\`.
    Backslash,
    /// After `\u`.
    Unicode,
    /// Hexadecimal digits, of which `left` are to come.
    Hex { value: u32, left: u8, most: u32 },
    /// `\u{…}`: any number of digits up to `left`, then `}`.
    Braced { value: u32, left: u8 },
    /// `\163`: three digits.
    Octal { value: u32, left: u8 },
    /// After `&`: the letters so far.
    Named { name: [u8; LONGEST_NAME], len: u8 },
    /// After `&#`.
    Numbered,
    /// Digits of a numeric entity, then `;`.
    Entity { value: u32, radix: u32, left: u8 },
}

/// What one symbol more makes of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeStep {
    /// It is none.
    None,
    Open(Escape),
    /// It is complete and stands for this byte.
    Done(u8),
}

impl Escape {
    /// The escape that begins with `symbol`.
    pub fn begin(symbol: u8) -> Option<Self> {
        match symbol {
            b'%' => Some(Self::byte()),
            b'\\' => Some(Self::Backslash),
            b'&' => Some(Self::Named {
                name: [0; LONGEST_NAME],
                len: 0,
            }),
            _ => None,
        }
    }

    fn byte() -> Self {
        Self::Hex {
            value: 0,
            left: 2,
            most: 0xFF,
        }
    }

    /// Reads one symbol more.
    pub fn read(self, symbol: u8) -> EscapeStep {
        match self {
            Self::Backslash => backslash(symbol),
            Self::Unicode if symbol == b'{' => EscapeStep::Open(Self::Braced { value: 0, left: 6 }),
            Self::Unicode => character(4).read(symbol),
            Self::Hex { value, left, most } => match more(value, 16, symbol) {
                // The digits that are still to come make it larger.
                Some(value) if value << (4 * (left - 1)) > most => EscapeStep::None,
                Some(value) if left == 1 => byte(value),
                Some(value) => EscapeStep::Open(Self::Hex {
                    value,
                    left: left - 1,
                    most,
                }),
                None => EscapeStep::None,
            },
            Self::Braced { value, .. } if symbol == b'}' => ascii(value),
            Self::Braced { value, left } => digit(value, 16, symbol, left, |value, left| {
                Self::Braced { value, left }
            }),
            Self::Octal { value, left } => match more(value, 8, symbol) {
                Some(value) if left == 1 => byte(value),
                Some(value) => EscapeStep::Open(Self::Octal {
                    value,
                    left: left - 1,
                }),
                None => EscapeStep::None,
            },
            Self::Named { mut name, len } => match symbol {
                b'#' if len == 0 => EscapeStep::Open(Self::Numbered),
                b';' => named(&name[..usize::from(len)]),
                _ if symbol.is_ascii_alphabetic() && usize::from(len) < LONGEST_NAME => {
                    name[usize::from(len)] = symbol.to_ascii_lowercase();
                    EscapeStep::Open(Self::Named { name, len: len + 1 })
                }
                _ => EscapeStep::None,
            },
            Self::Numbered if symbol.eq_ignore_ascii_case(&b'x') => {
                EscapeStep::Open(entity(0, 16, ENTITY_DIGITS))
            }
            Self::Numbered => entity(0, 10, ENTITY_DIGITS).read(symbol),
            Self::Entity { value, .. } if symbol == b';' => ascii(value),
            Self::Entity { value, radix, left } => {
                digit(value, radix, symbol, left, |value, left| {
                    entity(value, radix, left)
                })
            }
        }
    }
}

fn backslash(symbol: u8) -> EscapeStep {
    match symbol {
        b'u' => EscapeStep::Open(Escape::Unicode),
        b'U' => EscapeStep::Open(character(8)),
        b'x' => EscapeStep::Open(Escape::byte()),
        b'0'..=b'3' => EscapeStep::Open(Escape::Octal {
            value: u32::from(symbol - b'0'),
            left: 2,
        }),
        b'n' => EscapeStep::Done(b'\n'),
        b'r' => EscapeStep::Done(b'\r'),
        b't' => EscapeStep::Done(b'\t'),
        b' ' => EscapeStep::Done(b' '),
        _ if symbol.is_ascii_punctuation() => EscapeStep::Done(symbol),
        _ => EscapeStep::None,
    }
}

/// A character with this many hexadecimal digits.
fn character(digits: u8) -> Escape {
    Escape::Hex {
        value: 0,
        left: digits,
        most: 0x7F,
    }
}

fn entity(value: u32, radix: u32, left: u8) -> Escape {
    Escape::Entity { value, radix, left }
}

/// One digit more of at most `left`.
fn digit(
    value: u32,
    radix: u32,
    symbol: u8,
    left: u8,
    open: impl FnOnce(u32, u8) -> Escape,
) -> EscapeStep {
    match more(value, radix, symbol) {
        Some(value) if left > 0 && value <= 0x7F => EscapeStep::Open(open(value, left - 1)),
        _ => EscapeStep::None,
    }
}

fn more(value: u32, radix: u32, symbol: u8) -> Option<u32> {
    Some(value * radix + char::from(symbol).to_digit(radix)?)
}

fn byte(value: u32) -> EscapeStep {
    u8::try_from(value).map_or(EscapeStep::None, EscapeStep::Done)
}

fn ascii(value: u32) -> EscapeStep {
    if value < 0x80 {
        byte(value)
    } else {
        EscapeStep::None
    }
}

fn named(name: &[u8]) -> EscapeStep {
    let found = NAMED.binary_search_by(|(known, _)| known.cmp(&name));
    found.map_or(EscapeStep::None, |at| EscapeStep::Done(NAMED[at].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> EscapeStep {
        let (first, rest) = text.as_bytes().split_first().unwrap();
        let mut progress = EscapeStep::Open(Escape::begin(*first).unwrap());
        for symbol in rest {
            let EscapeStep::Open(escape) = progress else {
                return EscapeStep::None;
            };
            progress = escape.read(*symbol);
        }
        progress
    }

    #[test]
    fn escapes_stand_for_bytes() {
        for text in [
            "%73",
            "\\u0073",
            "\\x73",
            "\\163",
            "\\U00000073",
            "\\u{73}",
            "\\u{000073}",
            "&#115;",
            "&#x73;",
            "&#X0073;",
            "&#0000115;",
        ] {
            assert_eq!(read(text), EscapeStep::Done(b's'), "{text}");
        }
        for (name, byte) in NAMED {
            let text = format!("&{};", std::str::from_utf8(name).unwrap());
            assert_eq!(read(&text), EscapeStep::Done(byte), "{text}");
        }
        assert_eq!(read("\\/"), EscapeStep::Done(b'/'));
        assert_eq!(read("%fF"), EscapeStep::Done(0xFF));
        for text in [
            "%7", "\\u007", "\\u{73", "&#115", "&quot", "&", "\\", "\\16", "&#x",
        ] {
            assert!(matches!(read(text), EscapeStep::Open(_)), "{text}");
        }
        for text in [
            "%g3",
            "%%",
            "\\u00e9",
            "\\u4e2d",
            "\\q",
            "&#233;",
            "&nothing;",
            "& ",
            "\\400",
            "&#00000115;",
        ] {
            assert_eq!(read(text), EscapeStep::None, "{text}");
        }
    }
}
