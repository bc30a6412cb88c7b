//! Secrets in responses: encoded in any mixture of the supported encodings, between any texts and in any pieces, a
//! secret does not come through.
//!
//! An input is a list of choices: the secret, the texts around it, what each of its characters becomes, the pieces.

use arbitrary::{Result, Unstructured};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use std::fmt::Write as _;
use std::ops::Range;
use toolhold_policy::Redactor;

const MARKER: &str = "[secret canary]";
/// Escapes inside of escapes, and the bytes of one character in them, that are looked into.
const LAYERS: usize = 2;
const ESCAPE_BYTES: usize = 64;
/// Characters of base64 that may pass before a line break at the end of a piece.
const SHORT: usize = 4;
/// Characters that may stand between two secrets that share text, however long the escapes are in which they stand.
const BETWEEN: usize = 8;

pub fn run(data: &[u8]) {
    // An input that ends early is one of fewer choices.
    let _ = check(&mut Unstructured::new(data));
}

/// A secret on the wire: its characters, each as it is written, and those that it alone decides.
struct Written {
    units: Vec<String>,
    own: Range<usize>,
    is_coded: bool,
}

/// The place in the sent text at which each unit begins, in bytes, and the one at which the last unit ends.
struct Places(Vec<usize>);

impl Places {
    fn new(begin: usize, units: &[String]) -> Self {
        let ends = units.iter().scan(begin, |at, unit| {
            *at += unit.len();
            Some(*at)
        });
        Self(std::iter::once(begin).chain(ends).collect())
    }

    /// Units of which `bytes` has a part.
    fn units_in(&self, bytes: &Range<usize>) -> usize {
        self.0
            .windows(2)
            .filter(|unit| unit[0] < bytes.end && bytes.start < unit[1])
            .count()
    }
}

fn check(choices: &mut Unstructured<'_>) -> Result<()> {
    let secret = secret(choices)?;
    let Ok(redactor) = Redactor::new([("canary", secret.as_str())]) else {
        panic!("a secret of {} bytes is too long", secret.len());
    };
    let mut written = coded(choices, &secret)?;
    if written.is_coded {
        blanks(choices, &mut written.units)?;
    }
    let layers = choices.int_in_range(0..=LAYERS)?;
    for layer in 0..layers {
        for unit in &mut written.units {
            let is_text = layer == 0 && !written.is_coded;
            escape(choices, unit, is_text)?;
        }
    }
    let (before, after) = (around(choices)?, around(choices)?);
    // By chance the secret may be around itself, too: what lies between the two is no part of it.
    if redactor.finds(before.as_bytes()) || redactor.finds(after.as_bytes()) {
        return Ok(());
    }
    let places = Places::new(before.len(), &written.units);
    let own = places.0[written.own.start]..places.0[written.own.end];
    // What a line break lets pass lies before the next character of the secret.
    let latest = if written.is_coded {
        places.0[written.own.start + SHORT]
    } else {
        own.start
    };
    let sent = [before, written.units.concat(), after].concat();
    assert!(
        redactor.finds(sent.as_bytes()),
        "{secret:?} is not found in {sent:?}"
    );

    let out = in_pieces(choices, &redactor, &sent)?;
    let gone = |what: &str| format!("{secret:?} in {sent:?} became {out:?}: {what}");
    let (Some(first), Some(last)) = (out.find(MARKER), out.rfind(MARKER)) else {
        panic!("{}", gone("nothing was replaced"));
    };
    let (begin, rest) = (&out[..first], &out[last + MARKER.len()..]);
    assert!(
        sent.starts_with(begin) && sent.ends_with(rest),
        "{}",
        gone("other text changed")
    );
    assert!(begin.len() <= latest, "{}", gone("its beginning is left"));
    assert!(
        sent.len() - rest.len() >= own.end,
        "{}",
        gone("its end is left")
    );
    let mut between = 0;
    let mut from = first;
    for part in out[first..last]
        .split(MARKER)
        .filter(|part| !part.is_empty())
    {
        let Some(at) = sent[from..].find(part).map(|at| from + at) else {
            panic!("{}", gone("other text changed"));
        };
        from = at + part.len();
        between += places.units_in(&(at..from));
    }
    assert!(between < BETWEEN, "{}", gone("a part of it is left"));
    Ok(())
}

fn secret(choices: &mut Unstructured<'_>) -> Result<String> {
    let length = choices.int_in_range(8..=40)?;
    let is_plain = choices.arbitrary()?;
    let mut secret = String::new();
    for at in 0..length {
        let byte = choices.int_in_range(b' '..=b'~')?;
        let is_end = at == 0 || at + 1 == length;
        let byte = match byte {
            b' ' if is_end => b'k',
            // Most secrets are letters and digits; alike ones overlap themselves.
            byte if is_plain && !byte.is_ascii_alphanumeric() => b'a' + byte % 26,
            byte => byte,
        };
        secret.push(char::from(byte));
    }
    Ok(secret)
}

/// The secret as text, or in base64 or hex with other bytes before and after it.
fn coded(choices: &mut Unstructured<'_>, secret: &str) -> Result<Written> {
    let units = |text: String| text.chars().map(String::from).collect::<Vec<_>>();
    let way = choices.int_in_range(0..=6_u8)?;
    if way == 0 {
        let units = units(secret.to_owned());
        let own = 0..units.len();
        return Ok(Written {
            units,
            own,
            is_coded: false,
        });
    }
    let inner = match choices.int_in_range(0..=3_u8)? {
        0 => secret.to_owned(),
        1 => url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        2 => secret.replace('\\', "\\\\").replace('"', "\\\""),
        _ => quoted(secret),
    };
    let (before, after) = (around(choices)?, around(choices)?);
    let base64 = |text: &str| match way {
        1 | 5 => STANDARD.encode(text),
        2 => STANDARD_NO_PAD.encode(text),
        3 | 6 => URL_SAFE.encode(text),
        _ => URL_SAFE_NO_PAD.encode(text),
    };
    // The characters that `inside` alone decides.
    let decided = |begin: usize, inside: usize| (begin * 8).div_ceil(6)..(begin + inside) * 8 / 6;
    let (text, own) = match way {
        // Twice.
        5 | 6 => {
            let whole = format!("{before}{secret}{after}");
            let once = decided(before.len(), secret.len());
            let twice = decided(once.start, once.len());
            (base64(&base64(&whole)), twice)
        }
        _ if choices.ratio(1, 4)? => {
            let whole = format!("{before}{inner}{after}");
            let own = 2 * before.len()..2 * (before.len() + inner.len());
            let is_upper = choices.arbitrary()?;
            let hex = whole.bytes().fold(String::new(), |mut hex, byte| {
                let _ = if is_upper {
                    write!(hex, "{byte:02X}")
                } else {
                    write!(hex, "{byte:02x}")
                };
                hex
            });
            (hex, own)
        }
        _ => {
            let whole = format!("{before}{inner}{after}");
            (base64(&whole), decided(before.len(), inner.len()))
        }
    };
    Ok(Written {
        units: units(text),
        own,
        is_coded: true,
    })
}

/// As Python's `quote`.
fn quoted(text: &str) -> String {
    text.bytes().fold(String::new(), |mut quoted, byte| {
        let _ = if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            write!(quoted, "{}", char::from(byte))
        } else {
            write!(quoted, "%{byte:02X}")
        };
        quoted
    })
}

/// Line breaks and indents, as MIME, PEM and YAML have them.
fn blanks(choices: &mut Unstructured<'_>, units: &mut [String]) -> Result<()> {
    for unit in units {
        if choices.ratio(1, 16)? {
            unit.insert_str(0, choices.choose(&["\r\n", "\n", " ", "\n    ", "\t"])?);
        }
    }
    Ok(())
}

/// Writes some characters of a unit as escapes.
fn escape(choices: &mut Unstructured<'_>, unit: &mut String, is_text: bool) -> Result<()> {
    let mut escaped = String::new();
    for c in unit.chars() {
        let code = c as u32;
        let _ = match choices.int_in_range(0..=20_u8)? {
            0 => write!(escaped, "%{code:02X}"),
            1 => write!(escaped, "%{code:02x}"),
            2 => write!(escaped, "\\u{code:04x}"),
            3 => write!(escaped, "\\u{code:04X}"),
            4 => write!(escaped, "\\x{code:02x}"),
            5 => write!(escaped, "&#{code};"),
            6 => write!(escaped, "&#x{code:X};"),
            7 => write!(escaped, "\\u{{{code:x}}}"),
            8 => write!(escaped, "\\{code:03o}"),
            9 if c.is_ascii_punctuation() => write!(escaped, "\\{c}"),
            9 if c == '\n' => write!(escaped, "\\n"),
            10 if c == '&' => write!(escaped, "&amp;"),
            10 if c == '"' => write!(escaped, "&quot;"),
            10 if c == '<' => write!(escaped, "&lt;"),
            10 if c == ' ' && is_text => write!(escaped, "+"),
            _ => write!(escaped, "{c}"),
        };
    }
    // A character with line breaks before it may be longer, because each of them is an escape of its own.
    if escaped.len() <= ESCAPE_BYTES {
        *unit = escaped;
    }
    Ok(())
}

fn around(choices: &mut Unstructured<'_>) -> Result<String> {
    let length = choices.int_in_range(0..=12)?;
    (0..length)
        .map(|_| choices.int_in_range(b' '..=b'~').map(char::from))
        .collect()
}

fn in_pieces(choices: &mut Unstructured<'_>, redactor: &Redactor, sent: &str) -> Result<String> {
    let most = choices.int_in_range(1..=40)?;
    let mut stream = redactor.stream();
    let mut out = Vec::new();
    let mut rest = sent.as_bytes();
    while !rest.is_empty() {
        let piece = choices.int_in_range(1..=most)?.min(rest.len());
        let (now, next) = rest.split_at(piece);
        out.extend(stream.push(now).bytes);
        rest = next;
    }
    out.extend(stream.finish().bytes);
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "aMaaaaaa" twice, with "a" as the last character of one and the first of the other, in base64 of base64, each
    /// of whose characters is an escape of an escape. It ended the fuzzer of a landing.
    #[test]
    fn two_secrets_that_share_a_character_are_covered() {
        run(&STANDARD
            .decode("If//6////////wb//////////////////////////yP///////////////////////////////v///////+3DkdHR0dHR0dHR0dHR0dH7n8aUDS+8P///////////////7///////////////wEAAAAAAEf4")
            .unwrap());
    }

    #[test]
    fn no_secret_comes_through_at_random() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..3_000 {
            let choices: Vec<u8> = (0..300)
                .flat_map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state.to_le_bytes()
                })
                .collect();
            run(&choices);
        }
    }
}
