//! The one spelling of a text in which words are compared.

use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization as _;

/// Accents and other marks on letters of Latin, Greek and Cyrillic. Marks of other scripts are vowels.
const ACCENTS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';
/// The mark of `й`, which is a letter of its own.
const BREVE: char = '\u{306}';

/// Joiners, which are written within words and mean nothing for search, and the soft hyphen.
const JOINERS: [char; 3] = ['\u{200c}', '\u{200d}', '\u{ad}'];

/// Vowels that compatibility forms write as two characters, and dictionaries as one: `ำ` of Thai and `ຳ` of Lao.
const WHOLE_VOWELS: [(&str, &str); 2] =
    [("\u{e4d}\u{e32}", "\u{e33}"), ("\u{ecd}\u{eb2}", "\u{eb3}")];

/// `text` in small letters, without accents, and with one spelling for what looks the same.
pub(super) fn normal(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let is_small = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        return if is_small {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.to_ascii_lowercase())
        };
    }
    let apostrophes = text.chars().map(|c| if c == '\u{2019}' { '\'' } else { c });
    let mut before = None;
    let plain = apostrophes.nfkd().filter(move |c| {
        if ACCENTS.contains(c) {
            return *c == BREVE && matches!(before, Some('и' | 'И'));
        }
        before = Some(*c);
        !JOINERS.contains(c)
    });
    // Composed again, so that syllables of Hangul and marked letters of other scripts stay one.
    let mut normal: String = plain.flat_map(char::to_lowercase).nfc().collect();
    for (parts, whole) in WHOLE_VOWELS {
        if normal.contains(parts) {
            normal = normal.replace(parts, whole);
        }
    }
    Cow::Owned(normal)
}
