//! How scripts divide words.

use unicode_normalization::char::is_combining_mark;
use unicode_script::{Script, UnicodeScript as _};

/// Way in which a script separates words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptKind {
    /// By spaces and signs.
    Spaced,
    /// Korean: by spaces, with particles and endings written onto words.
    Hangul,
    /// Chinese and Japanese: not at all, and each character may be a word.
    Characters,
    /// Thai, Lao, Khmer and Burmese: not at all, and letters make syllables.
    Syllables(Script),
}

/// `ー`, which belongs to hiragana and katakana alike.
const LONG_KANA: char = '\u{30fc}';

/// True for letters, digits, and the marks that are written with them.
pub(super) fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

/// True for a character of Japan's two alphabets.
pub(super) fn is_kana(c: char) -> bool {
    c == LONG_KANA || matches!(c.script(), Script::Hiragana | Script::Katakana)
}

impl ScriptKind {
    /// Tells the kind of a character. Signs and spaces are [`Self::Spaced`].
    pub(super) fn of(c: char) -> Self {
        if c.is_ascii() || !is_part_of_word(c) {
            return Self::Spaced;
        }
        match c.script() {
            Script::Hangul => Self::Hangul,
            Script::Han | Script::Hiragana | Script::Katakana | Script::Bopomofo => {
                Self::Characters
            }
            script @ (Script::Thai | Script::Lao | Script::Khmer | Script::Myanmar) => {
                Self::Syllables(script)
            }
            _ if c == LONG_KANA => Self::Characters,
            _ => Self::Spaced,
        }
    }
}

/// The longest stretches of one kind.
pub(super) fn runs(text: &str) -> impl Iterator<Item = (ScriptKind, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut characters = rest.char_indices();
        let (_, first) = characters.next()?;
        let kind = ScriptKind::of(first);
        let end = characters
            .find(|(_, c)| !continues(kind, *c))
            .map_or(rest.len(), |(at, _)| at);
        let (run, after) = rest.split_at(end);
        rest = after;
        Some((kind, run))
    })
}

/// True if `c` belongs to a stretch of this kind: it is of it, or a mark that takes the script of what it stands on.
fn continues(kind: ScriptKind, c: char) -> bool {
    ScriptKind::of(c) == kind || (is_combining_mark(c) && c.script() == Script::Inherited)
}
