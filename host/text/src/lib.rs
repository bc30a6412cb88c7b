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
    let before = text.get(..at).and_then(|before| before.chars().next_back());
    !before.is_some_and(continues_value)
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
