//! A call in other characters: as programs encode them, and as letters that are read as the same ones.

use super::ACCENTED;

/// Names of characters in HTML.
const NAMED: [(char, &str); 8] = [
    ('&', "amp"),
    ('<', "lt"),
    ('>', "gt"),
    ('"', "quot"),
    ('\'', "apos"),
    ('é', "eacute"),
    ('è', "egrave"),
    ('à', "agrave"),
];
/// Names of references that few people know.
const NAMED_RARELY: [(char, &str); 13] = [
    ('{', "lcub"),
    ('}', "rcub"),
    ('[', "lsqb"),
    (']', "rsqb"),
    ('(', "lpar"),
    (')', "rpar"),
    ('=', "equals"),
    (':', "colon"),
    (',', "comma"),
    ('.', "period"),
    ('/', "sol"),
    ('_', "lowbar"),
    ('`', "grave"),
];

fn named(text: &str, names: &[(char, &str)]) -> String {
    let mut named = String::new();
    for c in text.chars() {
        match names.iter().find(|(of, _)| *of == c) {
            Some((_, name)) => named.extend(["&", *name, ";"]),
            None => named.push(c),
        }
    }
    named
}

/// Escapes all characters.
fn each(text: &str, form: fn(char) -> String) -> String {
    text.chars().map(form).collect()
}

/// Escapes all characters but the letters and digits of ASCII.
fn each_sign(text: &str, form: fn(char) -> String) -> String {
    let escaped = |c: char| {
        if c.is_ascii_alphanumeric() {
            String::from(c)
        } else {
            form(c)
        }
    };
    text.chars().map(escaped).collect()
}

/// Escapes the bytes of the same characters.
fn each_byte(text: &str, form: fn(u8) -> String) -> String {
    let escaped = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            String::from(char::from(byte))
        } else {
            form(byte)
        }
    };
    text.bytes().map(escaped).collect()
}

/// Quoted-printable. `width`: the most characters of a line.
fn quoted_printable(text: &str, width: usize) -> String {
    let (mut encoded, mut column) = (String::new(), 0);
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'\n');
        let piece = if is_plain {
            char::from(byte).to_string()
        } else {
            format!("={byte:02X}")
        };
        // One place is left for the mark of a line that goes on.
        if byte != b'\n' && column + piece.len() >= width {
            encoded.push_str("=\n");
            column = 0;
        }
        column = if byte == b'\n' {
            0
        } else {
            column + piece.len()
        };
        encoded.push_str(&piece);
    }
    encoded
}

/// A letter or digit in the bold alphabet of mathematics.
fn bold(c: char) -> String {
    let moved = |from: char, to: u32| char::from_u32(to + u32::from(c) - u32::from(from));
    let bold = match c {
        'A'..='Z' => moved('A', 0x1d400),
        'a'..='z' => moved('a', 0x1d41a),
        '0'..='9' => moved('0', 0x1d7ce),
        _ => None,
    };
    bold.unwrap_or(c).into()
}

fn fullwidth(c: char) -> String {
    let wide = match c {
        ' ' => Some('\u{3000}'),
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0),
        _ => None,
    };
    wide.unwrap_or(c).into()
}

/// With the accents as characters of their own.
pub fn decomposed(text: &str) -> String {
    text.replace('é', "e\u{301}")
        .replace('è', "e\u{300}")
        .replace('à', "a\u{300}")
}

/// The call with what programs escape.
pub fn escapes(call: &str) -> Vec<(&'static str, String)> {
    let names = [NAMED.as_slice(), NAMED_RARELY.as_slice()].concat();
    vec![
        ("HTML by names", named(call, &NAMED)),
        ("HTML by rare names", named(call, &names)),
        (
            "HTML by decimal numbers with zeros",
            each(call, |c| format!("&#{:07};", u32::from(c))),
        ),
        (
            "HTML by hexadecimal numbers with zeros",
            each(call, |c| format!("&#x{:06X};", u32::from(c))),
        ),
        (
            "\\u003c",
            each(call, |c| format!("\\u{:04x}", u32::from(c))),
        ),
        (
            "\\u{3c}",
            each_sign(call, |c| format!("\\u{{{:x}}}", u32::from(c))),
        ),
        (
            "\\x3c of characters",
            each(call, |c| format!("\\x{:02x}", u32::from(c))),
        ),
        (
            "\\x3c of bytes",
            each_byte(call, |byte| format!("\\x{byte:02x}")),
        ),
        (
            "\\074 of bytes",
            each_byte(call, |byte| format!("\\{byte:03o}")),
        ),
        ("percent", each_byte(call, |byte| format!("%{byte:02X}"))),
        (
            "quoted-printable on long lines",
            quoted_printable(call, usize::MAX),
        ),
        ("quoted-printable", quoted_printable(call, 76)),
    ]
}

/// The call with other characters that are read as the same ones.
pub fn other_letters(call: &str) -> Vec<(&'static str, String)> {
    let replaced =
        |name: &str, content: &str| call.replace("bad.write", name).replace(ACCENTED, content);
    let letters =
        |form: fn(char) -> String| replaced(&each("bad.write", form), &each(ACCENTED, form));
    let dotted = ACCENTED.replace(' ', "·");
    vec![
        ("letters of mathematics", letters(bold)),
        ("fullwidth forms", letters(fullwidth)),
        ("accents apart", decomposed(call)),
        ("dots for spaces", replaced("bad.write", &dotted)),
    ]
}
