//! Texts of all scripts: their words ([`words`]), where a value may begin and end, characters that stand for
//! digits and signs of ASCII ([`fold`]), which characters are hidden ([`hidden`]), the language of a short text
//! ([`language`]), and texts that are cut for a message.
//!
//! Values that the host looks for (numbers of cards, keys, addresses) are of ASCII letters and digits, and people write
//! them into texts of their own script, without a space where the script has none: `卡号4111…`, `смотриhttp://…`. So a
//! value ends where its own kind of characters ends, and not where the next letter of any script is
//! (`char::is_alphanumeric`, `\b`).

pub mod fold;
pub mod hidden;
pub mod language;
pub mod words;

use unicode_script::{Script, UnicodeScript as _};

/// Whether `c`, directly beside a value of ASCII letters and digits, makes both one longer word: a letter of the Latin
/// script, with accents too, or a digit of ASCII (the property Script of UAX #24). An underscore does not; who takes
/// it for a part of a word asks for it beside.
pub fn continues_value(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric()
    } else {
        c.is_alphabetic() && c.script() == Script::Latin
    }
}

/// Whether a value may begin at this byte of the text.
pub fn may_begin(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    let last = before.chars().next_back();
    !last.is_some_and(continues_value) || ends_in_escaped_character(before)
}

/// True if the character behind `text` is escaped by a backslash at its end.
pub fn ends_in_escape(text: &str) -> bool {
    let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    backslashes % 2 == 1
}

/// True if `text` ends in an escape for one character: `\n` of JSON, also of JSON in JSON; `\u003e` and `\x3e` of JSON and
/// programs; `%3E` of URLs; or in a style of a terminal. Its letters and digits belong to no value that stands behind it.
pub fn ends_in_escaped_character(text: &str) -> bool {
    let mut all = text.chars();
    let is_letter = all.next_back().is_some_and(|c| "nrtbf".contains(c));
    if is_letter && all.as_str().ends_with('\\') || ends_in_style(text) {
        return true;
    }
    let marks = [("\\u", 4), ("\\U", 8), ("\\x", 2), ("%", 2)];
    marks.into_iter().any(|(mark, length)| {
        let digits_at = text.len().checked_sub(length);
        let parts = digits_at.and_then(|at| text.split_at_checked(at));
        parts.is_some_and(|(head, digits)| {
            head.ends_with(mark) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    })
}

/// True if `text` ends in a colour or another style of a terminal (ECMA-48: ESC, `[`, numbers, `m`), also where ESC is
/// written as an escape.
fn ends_in_style(text: &str) -> bool {
    let Some(style) = text.strip_suffix(['m', 'K']) else {
        return false;
    };
    let head = style.trim_end_matches(|c: char| c.is_ascii_digit() || c == ';');
    let escapes = [
        "\u{1b}", "\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033", "\\e",
    ];
    head.strip_suffix('[')
        .is_some_and(|head| escapes.iter().any(|escape| head.ends_with(escape)))
}

/// At most `max` characters of `text`, with an ellipsis where something is missing.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_told_from_the_script_around_it() {
        for around in [
            "", " ", "卡", "の", "カ", "บ", "각", "м", "λ", "א", "ب", "क", "…", "，", "_",
        ] {
            let text = format!("{around}4111");
            assert!(may_begin(&text, around.len()), "{text}");
        }
        for around in ["a", "Z", "0", "é", "ß", "ł", "Ａ"] {
            let text = format!("{around}4111");
            assert!(!may_begin(&text, around.len()), "{text}");
        }
    }

    #[test]
    fn a_value_may_begin_behind_an_escape() {
        for before in [
            r"a\n",
            r"a\t",
            r"a\\n",
            r"a\u003e",
            r"a\u003D",
            r"\x3e",
            r"\U0001F600",
            "a%3D",
            "%20",
            "\u{1b}[1;31m",
            r"\u001b[0m",
            r"\033[K",
        ] {
            let text = format!("{before}4111");
            assert!(may_begin(&text, before.len()), "{text}");
        }
        for before in [
            "n", r"\q", "u003e", "x3e", "3D", r"\u03e", "%é", "%3g", "[31m", "a[m",
        ] {
            let text = format!("{before}4111");
            assert!(!may_begin(&text, before.len()), "{text}");
        }
    }

    proptest! {
        /// Letters of other scripts end a value, and no place in a text panics.
        #[test]
        fn letters_of_other_scripts_end_a_value(c in any::<char>(), at in 0_usize..12) {
            let text = format!("{c}4111{c}");
            prop_assert_eq!(may_begin(&text, c.len_utf8()), !continues_value(c));
            if !c.is_ascii_alphanumeric() && c.script() != Script::Latin {
                prop_assert!(!continues_value(c));
            }
            let _ = may_begin(&text, at);
        }
    }
}
