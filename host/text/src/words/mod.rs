//! Words in every script: what a text is found by ([`TermSplitter`]), and whether it has a keyword ([`KeywordText`]).
//!
//! A term is what two texts have in common where they are about the same: a word in small letters and without its ending.
//! In scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) no division into words is certain: the same
//! word is divided in one sentence and is a part of a longer one in another. So such a text has two kinds of terms: its
//! words by a dictionary, and all pairs of neighbouring characters, which are the same beside any other word.
//! Korean words have spaces, but particles are written onto them, so they are divided into pairs as well.
//!
//! The dictionaries are those of ICU. They are constants of the binary, by which passages are cut as well, so
//! that the operating system reads a page of them when a text needs it, and nothing is made in memory. ICU's other models
//! (LSTM) are smaller, but slower, and there are none for Chinese and Japanese.
//!
//! All functions take time in proportion to the text.

mod arabic;
mod keywords;
mod korean;
mod normal;
mod script;
mod segments;
mod stems;

pub use keywords::KeywordText;
pub use stems::Language;

use normal::normal;
use script::{ScriptKind, is_kana, is_part_of_word, runs};
use std::borrow::Cow;
use stems::Stems;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation as _;

/// Version of the rules. It rises when the same text has other terms, and stored terms are then made anew.
pub const VERSION: u32 = 3;

/// Maximum length of a term in bytes. Longer words are encoded data and the like, for which people do not search.
pub const MAX_TERM_BYTES: usize = 64;

/// Divides texts into terms.
#[derive(Clone)]
pub struct TermSplitter {
    stems: Stems,
}

impl std::fmt::Debug for TermSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TermSplitter").finish_non_exhaustive()
    }
}

impl TermSplitter {
    /// `language` is that of words in Latin letters. Words in other letters have the endings of their script's language.
    pub fn new(language: Language) -> Self {
        Self {
            stems: Stems::new(language),
        }
    }

    /// Gives the terms of `text` in their order. Each has letters and digits only, and at most [`MAX_TERM_BYTES`] before
    /// its ending is taken off.
    pub fn each(&self, text: &str, mut term: impl FnMut(&str)) {
        let text = normal(text);
        for (kind, run) in runs(&text) {
            match kind {
                ScriptKind::Spaced => {
                    for word in run.unicode_words() {
                        self.each_of_word(word, &mut term);
                    }
                }
                ScriptKind::Hangul => each_of_hangul(run, &mut term),
                ScriptKind::Characters | ScriptKind::Syllables(_) => {
                    each_of_unspaced(run, &mut term);
                }
            }
        }
    }

    /// The parts of a word between characters that belong to no word.
    fn each_of_word(&self, word: &str, term: &mut impl FnMut(&str)) {
        // The owner's ending goes, and another apostrophe is left out.
        let word = word.strip_suffix("'s").unwrap_or(word).replace('\'', "");
        for part in word.split(|c: char| !is_part_of_word(c)) {
            if !part.is_empty() && part.len() <= MAX_TERM_BYTES {
                tell(&self.stems.stem(part), term);
            }
        }
    }
}

/// The pairs of syllables of a Korean word, and the word without its particle.
fn each_of_hangul(run: &str, term: &mut impl FnMut(&str)) {
    let ends = cluster_ends(run);
    each_pair(run, &ends, term);
    let bare = korean::without_particle(run);
    let is_pair = ends.get(1).is_some_and(|end| *end == bare.len());
    if !is_pair {
        tell(bare, term);
    }
}

/// The pairs of characters of a run in a script without spaces, and its words that are no pairs.
fn each_of_unspaced(run: &str, term: &mut impl FnMut(&str)) {
    let ends = cluster_ends(run);
    if ends.len() < 2 {
        tell(run, term);
        return;
    }
    each_pair(run, &ends, term);
    let mut clusters = ends.iter().peekable();
    let mut start = 0;
    for end in segments::word_ends(run) {
        let mut count = 0_usize;
        while clusters.next_if(|cluster| **cluster <= end).is_some() {
            count += 1;
        }
        let word = run.get(start..end).unwrap_or_default();
        start = end;
        let is_term = match count {
            0 | 2 => false,
            // A single kana is a particle or a part of a word that the dictionary does not have.
            1 => !word.chars().all(is_kana),
            _ => true,
        };
        if is_term {
            tell(word, term);
        }
    }
}

/// Returns the end of each character of `run`, marks included, in bytes.
fn cluster_ends(run: &str) -> Vec<usize> {
    let clusters = run.grapheme_indices(true);
    clusters.map(|(at, cluster)| at + cluster.len()).collect()
}

/// The pairs of neighbouring characters, which end at `ends`.
fn each_pair(run: &str, ends: &[usize], term: &mut impl FnMut(&str)) {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    for (start, end) in starts.zip(ends.iter().skip(1)) {
        tell(run.get(start..*end).unwrap_or_default(), term);
    }
}

/// Gives a term without the characters that are neither letters nor digits, if it has any others.
fn tell(word: &str, term: &mut impl FnMut(&str)) {
    let is_whole = word.chars().all(char::is_alphanumeric);
    let word = if is_whole {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.chars().filter(|c| c.is_alphanumeric()).collect())
    };
    let is_term = word.chars().next().is_some_and(|c| !is_combining_mark(c));
    if is_term && word.len() <= MAX_TERM_BYTES {
        term(&word);
    }
}

#[cfg(test)]
mod tests;
