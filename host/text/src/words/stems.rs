//! Words without their endings, by Snowball's rules and those of `arabic`.

use super::arabic;
use frostem::{Algorithm, Stemmer};
use std::borrow::Cow;
use unicode_script::{Script, UnicodeScript as _};

/// The language by whose rules endings are taken off words in Latin letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// No endings are taken off, of no script.
    None,
    #[default]
    English,
    French,
    German,
    Italian,
    Portuguese,
    Russian,
    Spanish,
}

/// The rules of a language for Latin letters, and of one language for each other script that has them.
#[derive(Clone, Copy)]
pub(super) struct Stems {
    latin: Option<Stemmer>,
    cyrillic: Stemmer,
    devanagari: Stemmer,
}

impl Stems {
    pub(super) fn new(language: Language) -> Self {
        let latin = match language {
            Language::None => None,
            // English words in a Russian text.
            Language::English | Language::Russian => Some(Algorithm::English),
            Language::French => Some(Algorithm::French),
            Language::German => Some(Algorithm::German),
            Language::Italian => Some(Algorithm::Italian),
            Language::Portuguese => Some(Algorithm::Portuguese),
            Language::Spanish => Some(Algorithm::Spanish),
        };
        Self {
            latin: latin.map(Stemmer::new),
            cyrillic: Stemmer::new(Algorithm::Russian),
            devanagari: Stemmer::new(Algorithm::Hindi),
        }
    }

    /// The word, in its normal form, without its ending.
    pub(super) fn stem<'a>(&self, word: &'a str) -> Cow<'a, str> {
        let Some(latin) = &self.latin else {
            return Cow::Borrowed(word);
        };
        match word.chars().next().map(|c| c.script()) {
            Some(Script::Cyrillic) => self.cyrillic.stem(word),
            Some(Script::Arabic) => Cow::Owned(arabic::stem(word)),
            Some(Script::Devanagari) => self.devanagari.stem(word),
            _ => latin.stem(word),
        }
    }
}

/// True for a letter of a script whose words are found in all of their forms. A word in Latin letters tells nothing of its
/// language, so a keyword in them is found in the form in which it was written.
pub(super) fn is_inflected(c: char) -> bool {
    matches!(
        c.script(),
        Script::Cyrillic | Script::Arabic | Script::Devanagari
    )
}
