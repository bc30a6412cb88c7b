//! The texts that are looked for: a secret, and what base64 and hex make of it. Escapes are read by the scanner and
//! need no pattern here.
//!
//! Letters are compared without regard to case, so each pattern stands here once for `6A` and `6a`.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Characters that different programs leave unescaped in a URL, besides letters and digits: RFC 3986, JavaScript's
/// encodeURIComponent, Go's PathEscape, Java's URLEncoder and forms.
const PLAIN_IN_URLS: [&str; 4] = ["-._~", "-._~!'()*", "-._~$&+:=@", "-._*"];

/// Maximum bytes of a secret that is also looked for as escaped text inside of base64 and hex, and in base64 twice.
/// It bounds the memory of longer ones to twelve states a byte.
const MAX_NESTED_BYTES: usize = 512;

/// The secret itself. A character that is not ASCII is also looked for as JSON escapes it.
pub fn texts(secret: &str) -> BTreeSet<Vec<u8>> {
    let unicode = each(secret, |out, c| {
        if c.is_ascii() {
            return out.push(c);
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            push(out, format_args!("\\u{unit:04x}"));
        }
    });
    BTreeSet::from([secret.into(), unicode.into()])
}

/// What base64 and hex make of the secret, as it is and as a server may have escaped it before.
pub fn coded(secret: &str) -> BTreeSet<Vec<u8>> {
    let is_nested = secret.len() <= MAX_NESTED_BYTES;
    let mut inner = BTreeSet::from([secret.to_owned()]);
    if is_nested {
        escaped(secret, &mut inner);
    }
    let mut coded = BTreeSet::new();
    for text in &inner {
        coded.insert(hex(text.as_bytes()));
        for alphabet in [&STANDARD, &URL_SAFE] {
            for once in inside_base64(text.as_bytes(), alphabet) {
                if is_nested && text == secret {
                    coded.extend(inside_base64(&once, alphabet));
                }
                coded.insert(once);
            }
        }
    }
    coded
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        push(&mut out, format_args!("{byte:02x}"));
    }
    out.into()
}

/// The base64 characters that `bytes` alone decide, when 0, 1 or 2 bytes (modulo 3) stand before them. At most four
/// bits at either end are mixed with the neighbours'.
fn inside_base64(bytes: &[u8], alphabet: &Alphabet) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|shift| {
        let shifted = [&[0; 2][..shift], bytes].concat();
        let encoded = GeneralPurpose::new(alphabet, NO_PAD).encode(&shifted);
        let begin = (shift * 8).div_ceil(6);
        let end = shifted.len() * 8 / 6;
        encoded.as_bytes()[begin..end].to_vec()
    })
}

/// As programs escape it for URLs and JSON. Inside of base64 the case of digits matters.
fn escaped(secret: &str, forms: &mut BTreeSet<String>) {
    for plain in PLAIN_IN_URLS {
        for is_upper in [true, false] {
            let percent = each(secret, |out, c| {
                if c.is_ascii_alphanumeric() || plain.contains(c) {
                    return out.push(c);
                }
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    if is_upper {
                        push(out, format_args!("%{byte:02X}"));
                    } else {
                        push(out, format_args!("%{byte:02x}"));
                    }
                }
            });
            forms.insert(percent.replace("%20", "+"));
            forms.insert(percent);
        }
    }
    for is_slash_escaped in [false, true] {
        forms.insert(each(secret, |out, c| match c {
            '"' | '\\' => out.extend(['\\', c]),
            '/' if is_slash_escaped => out.push_str("\\/"),
            _ => out.push(c),
        }));
    }
}

fn each(secret: &str, mut write: impl FnMut(&mut String, char)) -> String {
    let mut out = String::new();
    for c in secret.chars() {
        write(&mut out, c);
    }
    out
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_of_a_secret() {
        let patterns = coded("a/b\"c d+");
        for pattern in [
            // Hex and base64 of it, and of it after one and two bytes.
            "612f622263",
            "YS9iImMgZC",
            "EvYiJjIGQr",
            "hL2IiYyBkK",
        ] {
            assert!(
                patterns
                    .iter()
                    .any(|found| String::from_utf8_lossy(found).contains(pattern)),
                "{pattern} is missing"
            );
        }
        for inner in ["a%2Fb%22c%20d%2B", "a%2fb%22c+d%2b", "a/b\\\"c d+"] {
            assert!(patterns.contains(&hex(inner.as_bytes())), "{inner}");
        }
        assert_eq!(
            texts("k\u{e9}y"),
            BTreeSet::from(["k\u{e9}y".into(), b"k\\u00e9y".to_vec()])
        );
    }

    #[test]
    fn a_plain_secret_has_few_patterns() {
        // Hex; base64 at three places; base64 of these at three places.
        assert_eq!(coded("abcdefgh12345678").len(), 1 + 3 + 9);
        let long = "x".repeat(MAX_NESTED_BYTES + 1);
        assert_eq!(coded(&long).len(), 1 + 3);
        assert_eq!(texts("abcdefgh12345678").len(), 1);
    }
}
