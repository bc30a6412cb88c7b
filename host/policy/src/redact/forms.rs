//! Every form in which a secret may come back.
//!
//! Letters are compared without regard to case, so each form stands here once for `%2f` and `%2F`.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Characters that different programs leave unescaped in a URL, besides letters and digits.
const PLAIN_IN_URLS: [&str; 6] = [
    // RFC 3986; JavaScript's encodeURIComponent and encodeURI; Java's URLEncoder.
    "-._~",
    "-._~!'()*",
    "-._~!'()*;/?:@&=+$,#",
    "-._*",
    // The WHATWG parser in a path and in a query.
    "-._~!'()*;/:@&=+$,%[]\\|",
    "-._~!()*;/:@&=+$,%[]\\|?`{}^",
];

/// All forms of `secret`, which is printable ASCII. None is shorter than the secret itself.
pub fn forms(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::from([secret.as_bytes().to_vec()]);
    forms.insert(each(secret, |out, c| push(out, format_args!("{:02x}", c as u32))).into());
    for alphabet in [&STANDARD, &URL_SAFE] {
        forms.extend((0..3).map(|shift| inside_base64(secret, alphabet, shift)));
    }
    percent(secret, &mut forms);
    json(secret, &mut forms);
    html(secret, &mut forms);
    forms
}

/// The base64 characters that `secret` alone decides, when `shift` bytes (modulo 3) stand before it.
/// At most four bits at either end are mixed with the neighbours'.
fn inside_base64(secret: &str, alphabet: &Alphabet, shift: usize) -> Vec<u8> {
    let shifted = ["\0\0".as_bytes()[..shift].as_ref(), secret.as_bytes()].concat();
    let encoded = GeneralPurpose::new(alphabet, NO_PAD).encode(&shifted);
    let begin = (shift * 8).div_ceil(6);
    let end = shifted.len() * 8 / 6;
    encoded.as_bytes()[begin..end].to_vec()
}

fn percent(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    let escape = |out: &mut String, c: char| push(out, format_args!("%{:02x}", c as u32));
    forms.insert(each(secret, escape).into());
    for plain in PLAIN_IN_URLS {
        let escaped = each(secret, |out, c| match c {
            _ if c.is_ascii_alphanumeric() || plain.contains(c) => out.push(c),
            _ => escape(out, c),
        });
        forms.insert(escaped.replace("%20", "+").into());
        forms.insert(escaped.into());
    }
}

fn json(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    let unicode = |out: &mut String, c: char| push(out, format_args!("\\u{:04x}", c as u32));
    forms.insert(each(secret, unicode).into());
    // As JSON asks; with slashes (PHP); with what HTML could trip over (Go, Rails).
    for (slash, markup) in [(false, false), (true, false), (false, true), (true, true)] {
        let escaped = each(secret, |out, c| match c {
            '"' | '\\' => out.extend(['\\', c]),
            '/' if slash => out.push_str("\\/"),
            '<' | '>' | '&' | '\'' if markup => unicode(out, c),
            _ => out.push(c),
        });
        forms.insert(escaped.into());
    }
}

/// HTML and XML: quotes have several names, and `>` needs none.
fn html(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    for double in ["&quot;", "&#34;", "\""] {
        for single in ["&#39;", "&#x27;", "&apos;", "'"] {
            for greater in ["&gt;", ">"] {
                let escaped = each(secret, |out, c| match c {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str(greater),
                    '"' => out.push_str(double),
                    '\'' => out.push_str(single),
                    _ => out.push(c),
                });
                forms.insert(escaped.into());
            }
        }
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
    fn the_forms_of_a_secret() {
        let forms = forms("a/b\"c d+");
        for form in [
            "a/b\"c d+",
            "612f622263",
            "a%2fb%22c%20d%2b",
            "a%2fb%22c+d%2b",
            "a/b%22c%20d+",
            "%61%2f%62%22%63%20%64%2b",
            "a/b\\\"c d+",
            "a\\/b\\\"c d+",
            "a/b&quot;c d+",
            "\\u0061\\u002f",
            // base64 of "a/b\"c d+" and of it after one and two bytes.
            "YS9iImMgZC",
            "EvYiJjIGQr",
            "hL2IiYyBkK",
        ] {
            assert!(
                forms
                    .iter()
                    .any(|f| String::from_utf8_lossy(f).contains(form)),
                "{form} is not among the forms"
            );
        }
    }

    #[test]
    fn a_plain_secret_has_few_forms() {
        // Raw, hex, base64 at three places, all percent, all \u.
        assert_eq!(forms("abcdefgh12345678").len(), 7);
    }
}
