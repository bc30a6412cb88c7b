//! Words that are frequent in a language, and its letters, for the languages of one script.
//!
//! A line of a table is the tag of a language and its words: pronouns, prepositions, numbers, and the verbs and nouns of
//! ordinary tasks, in the forms that requests and everyday speech use. The tables were written by hand; the most frequent
//! words of 1 000 sentences of each language were added (test data of the crate lingua, Apache-2.0). Which other languages
//! have a word was looked up in the frequency lists of wordfreq and in Hunspell's dictionaries.
//!
//! A word stands in the line of each language that has it. Where it is missing in one, it speaks for the others against
//! that one, and this is how a wrong result comes about: check a new word against all relatives of its language.
//! Indonesian has words alone that Malay knows but seldom uses (`singkat`, `hapus`); not the other way round, since
//! most texts that could be either are Indonesian.

use super::alphabets::{self, Alphabet};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// Minimum number of letters before an ending.
const MIN_STEM: usize = 3;

/// A set of the languages of a family, one bit each.
pub(super) type LanguageSet = u64;

/// The languages that share a script.
pub(super) struct Lexicon {
    name: &'static str,
    tables: LazyLock<Tables>,
}

struct Tables {
    tags: Vec<&'static str>,
    words: HashMap<&'static str, LanguageSet>,
    letters: HashMap<char, LanguageSet>,
    endings: Vec<(&'static str, LanguageSet)>,
    alphabet: &'static Alphabet,
}

pub(super) static LATIN: Lexicon = Lexicon {
    name: "latin",
    tables: LazyLock::new(|| Tables::read(include_str!("latin.txt"), &alphabets::LATIN)),
};

pub(super) static CYRILLIC: Lexicon = Lexicon {
    name: "cyrillic",
    tables: LazyLock::new(|| Tables::read(include_str!("cyrillic.txt"), &alphabets::CYRILLIC)),
};

pub(super) static ARABIC: Lexicon = Lexicon {
    name: "arabic",
    tables: LazyLock::new(|| Tables::read(include_str!("arabic.txt"), &alphabets::ARABIC)),
};

pub(super) static DEVANAGARI: Lexicon = Lexicon {
    name: "devanagari",
    tables: LazyLock::new(|| Tables::read(include_str!("devanagari.txt"), &alphabets::DEVANAGARI)),
};

impl fmt::Debug for Lexicon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Lexicon {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Lexicon {}

impl Lexicon {
    /// Each language alone.
    pub fn masks(&self) -> impl Iterator<Item = LanguageSet> + use<> {
        (0..self.tables.tags.len()).map(|index| 1 << index)
    }

    /// The tag of the only language of `mask`. Absent for a rival.
    pub fn told(&self, mask: LanguageSet) -> Option<&'static str> {
        let index = mask.trailing_zeros() as usize;
        let tag = self.tables.tags.get(index)?;
        super::name(tag).map(|_| *tag)
    }

    /// Bytes of the hash table of words: slots for a word, its languages and a byte of the hash.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let slots = (self.tables.words.capacity() * 8 / 7).next_power_of_two();
        slots * (size_of::<(&str, LanguageSet)>() + 1)
    }

    /// The languages with these tags.
    #[cfg(test)]
    pub fn languages(&self, tags: &[&str]) -> LanguageSet {
        self.tables.languages(tags)
    }

    /// The languages in which this word is frequent.
    pub fn word(&self, word: &str) -> Option<LanguageSet> {
        self.tables.words.get(word).copied()
    }

    /// The languages that have all letters of this word.
    pub fn spelling(&self, word: &str) -> LanguageSet {
        let tables = &*self.tables;
        let all = tables.all();
        word.chars().fold(all, |mask, letter| {
            mask & match tables.letters.get(&letter) {
                Some(languages) => *languages,
                None if (tables.alphabet.is_common)(letter) => all,
                None => 0,
            }
        })
    }

    /// The languages that form words with the longest ending of this word. Absent if no ending of it is known.
    pub fn ending(&self, word: &str) -> Option<LanguageSet> {
        let endings = self.tables.endings.iter().filter(|(ending, _)| {
            word.strip_suffix(ending)
                .is_some_and(|stem| stem.chars().nth(MIN_STEM - 1).is_some())
        });
        let (_, languages) = endings.max_by_key(|(ending, _)| ending.len())?;
        Some(*languages)
    }
}

impl Tables {
    fn read(text: &'static str, alphabet: &'static Alphabet) -> Self {
        let mut tables = Self {
            tags: Vec::new(),
            words: HashMap::new(),
            letters: HashMap::new(),
            endings: Vec::new(),
            alphabet,
        };
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split(' ');
            let Some(tag) = words.next() else { continue };
            tables.tags.push(tag);
            for word in words {
                *tables.words.entry(word).or_default() |= 1 << index;
            }
            let letters = alphabet.letters.iter().find(|(of, _)| *of == tag);
            for letter in letters.map_or("", |(_, letters)| letters).chars() {
                *tables.letters.entry(letter).or_default() |= 1 << index;
            }
        }
        for (ending, tags) in alphabet.endings {
            let languages = tables.languages(tags);
            tables.endings.push((ending, languages));
        }
        tables
    }

    fn languages(&self, tags: &[&str]) -> LanguageSet {
        let indexes = self.tags.iter().enumerate();
        let named = indexes.filter(|(_, tag)| tags.contains(tag));
        named.fold(0, |mask, (index, _)| mask | (1 << index))
    }

    fn all(&self) -> LanguageSet {
        (1 << self.tags.len()) - 1
    }
}
