//! Characters that are written as something else: references of HTML, escapes of JSON and of programming languages,
//! percent signs of URLs, quoted-printable.

use std::borrow::Cow;

/// How often a text may have been encoded.
const MAX_ROUNDS: usize = 4;

/// `text` with its characters as what they stand for. Left out are the backslashes; a backslash with an `n` is the end
/// of a line.
pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MAX_ROUNDS {
        let Some(next) = once(&text) else { break };
        text = Cow::Owned(next);
    }
    text
}

/// `None`: there is nothing to decode.
fn once(text: &str) -> Option<String> {
    let unreferenced = html_escape::decode_html_entities(text);
    // Only such a text has the equals signs that stand for themselves encoded.
    let is_printable = ["=3D", "=3C", "=7B"].iter().any(|code| text.contains(code));
    let marks: &[char] = if is_printable {
        &['\\', '%', '=']
    } else {
        &['\\', '%']
    };
    if !unreferenced.contains(marks) {
        return match unreferenced {
            Cow::Owned(text) if !text.is_empty() => Some(text),
            _ => None,
        };
    }
    let mut out = String::with_capacity(unreferenced.len());
    let mut rest: &str = &unreferenced;
    while let Some(at) = rest.find(marks) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        rest = match from.as_bytes().first() {
            Some(b'\\') => unescaped(from, &mut out),
            Some(b'%') => characters(from, &mut out, |text| byte(text.strip_prefix('%')?, 2, 16)),
            _ => match from
                .strip_prefix("=\n")
                .or_else(|| from.strip_prefix("=\r\n"))
            {
                Some(after) => after,
                None => characters(from, &mut out, printable),
            },
        };
    }
    out.push_str(rest);
    (out != text).then_some(out)
}

/// Reads a backslash, and perhaps more of them: text may be escaped several times.
fn unescaped<'t>(from: &'t str, out: &mut String) -> &'t str {
    let text = from.trim_start_matches('\\');
    let Some(kind) = text.chars().next() else {
        return text;
    };
    let after = &text[kind.len_utf8()..];
    match kind {
        'n' => {
            out.push('\n');
            after
        }
        't' => {
            out.push('\t');
            after
        }
        'r' | 'b' | 'f' => {
            out.push(' ');
            after
        }
        '0'..='3' if octal(from).is_some() => characters(from, out, octal),
        'x' if hex(from).is_some() => characters(from, out, hex),
        'u' if after.starts_with('{') => braced(&after[1..], out).unwrap_or(text),
        'u' => unicode(after, out).unwrap_or(text),
        'U' => match number(after, 8, 16) {
            Some((code, after)) => {
                out.extend(char::from_u32(code));
                after
            }
            None => text,
        },
        _ => text,
    }
}

/// The hexadecimal digits of `\u{…}` and what follows.
fn braced<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let end = text.bytes().take(9).position(|c| c == b'}')?;
    let code = u32::from_str_radix(text.get(..end)?, 16).ok()?;
    out.push(char::from_u32(code)?);
    text.get(end + 1..)
}

/// Reads the four digits behind `\u`, with those of a second half where the first needs one, and gives the text behind
/// them. Half of a pair stands for nothing.
fn unicode<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let (code, after) = number(text, 4, 16)?;
    let low = || {
        let low = after.strip_prefix('\\')?.trim_start_matches('\\');
        let (low, after) = number(low.strip_prefix('u')?, 4, 16)?;
        Some((
            char::decode_utf16([half(code)?, half(low)?]).next()?.ok()?,
            after,
        ))
    };
    match char::from_u32(code) {
        Some(c) => {
            out.push(c);
            Some(after)
        }
        None => match low() {
            Some((c, after)) => {
                out.push(c);
                Some(after)
            }
            None => Some(after),
        },
    }
}

fn half(code: u32) -> Option<u16> {
    u16::try_from(code).ok()
}

/// Reads bytes, each written as `encoded` reads it: the text that they are, or else each as the character of its
/// number. Without any, the first character stands for itself.
fn characters<'t>(
    text: &'t str,
    out: &mut String,
    encoded: impl Fn(&'t str) -> Option<(u8, &'t str)>,
) -> &'t str {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((byte, after)) = encoded(rest) {
        bytes.push(byte);
        rest = after;
    }
    match std::str::from_utf8(&bytes) {
        Ok("") => {
            let first = text.chars().next();
            out.extend(first);
            &text[first.map_or(0, char::len_utf8)..]
        }
        Ok(characters) => {
            out.push_str(characters);
            rest
        }
        Err(_) => {
            out.extend(bytes.into_iter().map(char::from));
            rest
        }
    }
}

/// A byte of quoted-printable, `=3C`.
fn printable(text: &str) -> Option<(u8, &str)> {
    let text = text.strip_prefix('=')?;
    let is_upper = !text.get(..2)?.contains(|c: char| c.is_ascii_lowercase());
    is_upper.then(|| byte(text, 2, 16))?
}

/// `\074`.
fn octal(text: &str) -> Option<(u8, &str)> {
    byte(text.strip_prefix('\\')?.trim_start_matches('\\'), 3, 8)
}

/// `\x3c`.
fn hex(text: &str) -> Option<(u8, &str)> {
    let text = text.strip_prefix('\\')?.trim_start_matches('\\');
    byte(text.strip_prefix('x')?, 2, 16)
}

fn byte(text: &str, digits: usize, radix: u32) -> Option<(u8, &str)> {
    let (code, after) = number(text, digits, radix)?;
    Some((u8::try_from(code).ok()?, after))
}

/// Reads a number of `digits` digits, and gives the text behind it.
fn number(text: &str, digits: usize, radix: u32) -> Option<(u32, &str)> {
    let (code, after) = text.split_at_checked(digits)?;
    let is_number = code.chars().all(|c| c.is_digit(radix));
    is_number.then(|| Some((u32::from_str_radix(code, radix).ok()?, after)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodings_are_what_they_stand_for() {
        for (text, expect) in [
            ("a\\nb", "a\nb"),
            ("\\ud83d\\ude00", "\u{1F600}"),
            ("\\\\ud83d\\\\ude00", "\u{1F600}"),
            ("\\ud83d x", " x"),
            ("\\u00c9 \\u{3c} \\U0001F600", "\u{C9} < \u{1F600}"),
            ("\\u12", "u12"),
            ("\\", ""),
            ("\\x3c\\xd0\\x90", "<\u{410}"),
            ("\\xe9", "\u{E9}"),
            ("\\074\\320\\220 \\9", "<\u{410} 9"),
            ("%3C%D0%90 %253c 5% %zz", "<\u{410} < 5% %zz"),
            ("=3Ca=3D=D0=90 x=\ny", "<a=\u{410} xy"),
            ("a=20", "a=20"),
            ("a & b &c; &#99999999; &amp;", "a & b &c; &#99999999; &"),
            ("&lbrace;&NewLine;&eacute;&#000000000000060;", "{\n\u{E9}<"),
            ("&amp;amp;lt;", "<"),
            ("\\\\\\\"x", "\"x"),
            ("\\u0026lt;", "<"),
        ] {
            assert_eq!(decoded(text), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_decoded(text in "([\\\\%=&ux{};0-9a-f\u{e9}n]|lt){0,24}") {
            decoded(&text);
        }
    }
}
