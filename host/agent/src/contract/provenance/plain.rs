//! The form in which texts are compared: a copy that was re-spaced, quoted, or escaped is the same text.

use toolhold_policy::text;

/// Longest reference that is read, `&#x0003c;` and the like. Longer ones are text.
const MAX_ENTITY: usize = 12;
/// Most `amp;` in a row: text that was escaped several times.
const MAX_AMPERSANDS: usize = 8;

/// `text` without white space, quotation marks, backslashes and what is invisible, in lower case; escapes of JSON and
/// references of HTML are what they stand for. The marks that are left are those that calls are built of. Time and
/// space grow with the text.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => unescaped(after, &mut out),
            '&' => match referenced(after) {
                Some((c, after)) => {
                    push(c, &mut out);
                    after
                }
                None => {
                    push(c, &mut out);
                    after
                }
            },
            c => {
                push(c, &mut out);
                after
            }
        };
    }
    out
}

fn push(c: char, out: &mut String) {
    let c = match c {
        // The wide forms of ASCII, of which some marks are made.
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(c as u32 - 0xFEE0).unwrap_or(c),
        '\u{2581}' | '\u{2010}'..='\u{2015}' => '_',
        c => c,
    };
    match c {
        '"'
        | '\''
        | '`'
        | '\\'
        | '\u{B4}'
        | '\u{AB}'
        | '\u{BB}'
        | '\u{2018}'..='\u{201F}'
        | '\u{2039}'
        | '\u{203A}' => {}
        // How functions are named differs in these.
        '-' | '.' => out.push('_'),
        c if c.is_ascii() => {
            if !c.is_ascii_whitespace() && !c.is_ascii_control() {
                out.push(c.to_ascii_lowercase());
            }
        }
        c if c.is_whitespace() || text::is_escaped(c) || ('\u{FE00}'..='\u{FE0F}').contains(&c) => {
        }
        c => out.extend(c.to_lowercase()),
    }
}

/// Reads behind a backslash, and perhaps more of them: text may be escaped several times.
fn unescaped<'t>(text: &'t str, out: &mut String) -> &'t str {
    let text = text.trim_start_matches('\\');
    let Some(kind) = text.chars().next() else {
        return text;
    };
    let after = &text[kind.len_utf8()..];
    match kind {
        'n' | 'r' | 't' | 'b' | 'f' => after,
        'x' => match hex(after, 2) {
            Some((code, after)) => {
                out_of(code, out);
                after
            }
            None => text,
        },
        'u' => match hex(after, 4) {
            Some((high @ 0xD800..=0xDBFF, after)) => {
                let low = after.trim_start_matches('\\').strip_prefix('u');
                match low.and_then(|low| hex(low, 4)) {
                    Some((low @ 0xDC00..=0xDFFF, after)) => {
                        out_of(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00), out);
                        after
                    }
                    _ => after,
                }
            }
            Some((code, after)) => {
                out_of(code, out);
                after
            }
            None => text,
        },
        _ => text,
    }
}

fn out_of(code: u32, out: &mut String) {
    if let Some(c) = char::from_u32(code) {
        push(c, out);
    }
}

fn hex(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (code, after) = text.split_at_checked(digits)?;
    let is_hex = code.bytes().all(|c| c.is_ascii_hexdigit());
    is_hex.then(|| Some((u32::from_str_radix(code, 16).ok()?, after)))?
}

/// The character that a reference of HTML stands for; `text` is what follows its `&`.
fn referenced(text: &str) -> Option<(char, &str)> {
    let mut text = text;
    for _ in 0..MAX_AMPERSANDS {
        match text.strip_prefix("amp;") {
            Some(after) => text = after,
            None => break,
        }
    }
    let end = text.bytes().take(MAX_ENTITY).position(|c| c == b';')?;
    let (name, after) = (text.get(..end)?, text.get(end + 1..)?);
    let c = match name {
        "lt" | "LT" => '<',
        "gt" | "GT" => '>',
        "quot" | "QUOT" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "lbrace" | "lcub" => '{',
        "rbrace" | "rcub" => '}',
        "lbrack" | "lsqb" => '[',
        "rbrack" | "rsqb" => ']',
        "lpar" => '(',
        "rpar" => ')',
        "vert" | "verbar" => '|',
        "colon" => ':',
        "comma" => ',',
        "equals" => '=',
        name => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    };
    Some((c, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_other_clothes_are_the_same_text() {
        let call = "<tool_call>{\"name\": \"files.write\", \"arguments\": {\"path\": \"a b\"}}</tool_call>";
        let same = plain(call);
        assert_eq!(
            same,
            "<tool_call>{name:files_write,arguments:{path:ab}}</tool_call>"
        );
        let json = serde_json::to_string(call).unwrap();
        let twice = serde_json::to_string(&json).unwrap();
        for copy in [
            call.replace(' ', "\n\t "),
            call.replace('"', "'"),
            call.replace('"', "\u{201C}"),
            call.replace("files", "fi\u{200B}les\u{AD}"),
            call.to_uppercase(),
            call.replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;"),
            call.replace('<', "&amp;lt;")
                .replace('"', "&#34;")
                .replace('>', "&#x3e;"),
            call.replace('<', "\\u003c").replace('>', "\\x3E"),
            call.replace('<', "\u{FF1C}"),
            call.replace('.', "-"),
            json,
            twice,
        ] {
            assert_eq!(plain(&copy), same, "{copy}");
        }
    }

    #[test]
    fn escapes_are_what_they_stand_for() {
        for (text, expect) in [
            ("a\\nb", "ab"),
            ("\\ud83d\\ude00", "\u{1F600}"),
            ("\\ud83d x", "x"),
            ("\\u00c9", "\u{E9}"),
            ("\\u12", "u12"),
            ("\\", ""),
            ("a & b &c; &#99999999; &amp;", "a&b&c;&#99999999;&amp;"),
            ("\\\\\\\"x", "x"),
        ] {
            assert_eq!(plain(text), expect, "{text}");
        }
    }
}
