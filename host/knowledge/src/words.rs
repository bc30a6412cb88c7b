//! The words of a text, as passages are found by them: the same for a passage and for what is looked for.

use frostem::{Algorithm, Stemmer};
use std::borrow::Cow;
use std::collections::HashMap;
use toolhold_storage::QuestionWord;
use unicode_normalization::UnicodeNormalization as _;
use unicode_segmentation::UnicodeSegmentation as _;

/// Changes when the same text gives other words: what is stored is then made anew.
pub const VERSION: u32 = 2;

/// Longer words are no words of a language, and nobody looks for them by typing: encoded data, for example.
const MAX_WORD_BYTES: usize = 64;

/// Different words that are looked for at most: the first of a question. Questions of the length that a question may
/// have are rarely of more, unless they are made for it: each is counted in the index.
pub const MAX_QUERY_WORDS: usize = 1_024;

/// Accents and other marks on letters of Latin, Greek and Cyrillic. Marks of other scripts are vowels.
const ACCENTS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';

/// The language by whose rules endings are taken off words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// No endings are taken off.
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

/// Divides texts into words.
pub struct WordSplitter {
    stemmer: Option<Stemmer>,
    language: Language,
}

impl WordSplitter {
    /// For texts in `language`. Words of other languages are found, too, in the form in which they were written.
    pub fn new(language: Language) -> Self {
        let algorithm = match language {
            Language::None => None,
            Language::English => Some(Algorithm::English),
            Language::French => Some(Algorithm::French),
            Language::German => Some(Algorithm::German),
            Language::Italian => Some(Algorithm::Italian),
            Language::Portuguese => Some(Algorithm::Portuguese),
            Language::Russian => Some(Algorithm::Russian),
            Language::Spanish => Some(Algorithm::Spanish),
        };
        Self {
            stemmer: algorithm.map(Stemmer::new),
            language,
        }
    }

    /// The words of `text` in their order, separated by spaces; each has letters and digits only.
    pub fn words(&self, text: &str) -> String {
        let mut words = String::with_capacity(text.len());
        self.each(text, |word| {
            if !words.is_empty() {
                words.push(' ');
            }
            words.push_str(word);
        });
        words
    }

    /// The words to look for, in the order of the question, each with how often it is there; without those that every
    /// text has, unless there are no others; at most [`MAX_QUERY_WORDS`].
    pub fn query(&self, text: &str) -> Vec<QuestionWord> {
        let (mut rare, mut common) = (WordCounts::default(), WordCounts::default());
        self.each(text, |word| {
            if self.is_common(word) {
                common.count(word);
            } else {
                rare.count(word);
            }
        });
        if rare.words.is_empty() {
            common.words
        } else {
            rare.words
        }
    }

    fn each(&self, text: &str, mut word: impl FnMut(&str)) {
        // Scripts without spaces: each pair of neighbouring characters is a word.
        let mut before: Option<(usize, char)> = None;
        let mut was_paired = false;
        for (at, found) in text.unicode_word_indices() {
            let alone = alone(found);
            if let Some((end, left)) = before.take() {
                match alone {
                    Some(right) if end == at => {
                        word(&normal(&format!("{left}{right}")));
                        was_paired = true;
                    }
                    _ => {
                        if !was_paired {
                            word(&normal(left.encode_utf8(&mut [0; 4])));
                        }
                        was_paired = false;
                    }
                }
            }
            match alone {
                Some(character) => before = Some((at + found.len(), character)),
                None => self.each_part(found, &mut word),
            }
        }
        if let Some((_, left)) = before
            && !was_paired
        {
            word(&normal(left.encode_utf8(&mut [0; 4])));
        }
    }

    /// The parts of a word between characters that are neither letters nor digits.
    fn each_part(&self, found: &str, word: &mut impl FnMut(&str)) {
        let found = normal(found);
        // What an apostrophe is in: the owner's ending goes, and otherwise it is left out.
        let found = found.strip_suffix("'s").unwrap_or(&found).replace('\'', "");
        for part in found.split(|c: char| !c.is_alphanumeric()) {
            if part.is_empty() || part.len() > MAX_WORD_BYTES {
                continue;
            }
            match &self.stemmer {
                Some(stemmer) => word(&stemmer.stem(part)),
                None => word(part),
            }
        }
    }

    fn is_common(&self, word: &str) -> bool {
        self.language == Language::English && COMMON.binary_search(&word).is_ok()
    }
}

/// The first different words of a text.
#[derive(Default)]
struct WordCounts {
    words: Vec<QuestionWord>,
    /// Where each is.
    places: HashMap<String, usize>,
}

impl WordCounts {
    fn count(&mut self, word: &str) {
        if let Some(place) = self.places.get(word) {
            let count = &mut self.words[*place].count;
            *count = count.saturating_add(1);
        } else if self.words.len() < MAX_QUERY_WORDS {
            self.places.insert(word.to_owned(), self.words.len());
            self.words.push(QuestionWord {
                word: word.to_owned(),
                count: 1,
            });
        }
    }
}

impl std::fmt::Debug for WordSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordSplitter")
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

/// The character, if `found` is one of a script without spaces.
fn alone(found: &str) -> Option<char> {
    let mut characters = found.chars();
    let first = characters.next()?;
    let is_unspaced = matches!(first, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}');
    (is_unspaced && characters.next().is_none()).then_some(first)
}

/// In small letters, without accents, and with one spelling for what looks the same.
fn normal(word: &str) -> Cow<'_, str> {
    if word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return Cow::Borrowed(word);
    }
    let apostrophes = word.chars().map(|c| if c == '\u{2019}' { '\'' } else { c });
    let plain = apostrophes.nfkd().filter(|c| !ACCENTS.contains(c));
    // Composed again, so that syllables of Hangul and marked letters of other scripts stay one.
    Cow::Owned(plain.flat_map(char::to_lowercase).nfc().collect())
}

/// English words, as they are without their endings, that say little about what a text is about; sorted.
const COMMON: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "ani", "are", "as", "at", "be",
    "becaus", "been", "befor", "but", "by", "can", "could", "did", "do", "doe", "for", "from",
    "had", "has", "have", "he", "her", "him", "his", "how", "i", "if", "in", "into", "is", "it",
    "just", "me", "my", "no", "not", "of", "on", "or", "our", "she", "should", "so", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "us",
    "was", "we", "were", "what", "when", "where", "whi", "which", "who", "will", "with", "would",
    "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_however_it_is_written() {
        let english = WordSplitter::new(Language::English);
        for (text, words) in [
            ("The Foxes' den", "the fox den"),
            ("fox's", "fox"),
            ("fox\u{2019}s FOX ＦＯＸ", "fox fox fox"),
            ("can't", "cant"),
            ("naïve cafe\u{301}", "naiv cafe"),
            ("foo_bar-baz.qux 3.14", "foo bar baz qux 3 14"),
            ("running runs", "run run"),
            ("東京都に", "東京 京都 都に"),
            ("水 と 火", "水 と 火"),
            ("한국어", "한국어"),
            ("हिन्दी", "हिन दी"),
            ("ไทย", "ไท ทย"),
            ("", ""),
            ("... --- '' \u{0}", ""),
        ] {
            assert_eq!(english.words(text), words, "{text}");
        }
        assert_eq!(WordSplitter::new(Language::German).words("Häuser"), "haus");
        assert_eq!(WordSplitter::new(Language::None).words("Häuser"), "hauser");
        assert_eq!(english.words(&"x".repeat(65)), "");
    }

    #[test]
    fn a_question_counts_each_word_and_common_ones_only_without_others() {
        let english = WordSplitter::new(Language::English);
        let counted = |text| {
            let words = english.query(text).into_iter();
            words.map(|it| (it.word, it.count)).collect::<Vec<_>>()
        };
        assert_eq!(
            counted("What is the fee of the card fees?"),
            [("fee".to_owned(), 2), ("card".to_owned(), 1)]
        );
        let common = [("to", 2), ("be", 2), ("or", 1), ("not", 1)];
        assert_eq!(
            counted("to be or not to be"),
            common.map(|(word, count)| (word.to_owned(), count))
        );
        let many: Vec<String> = (0..2_000).map(|n| format!("w{n}")).collect();
        // The first of them are counted to the end.
        let many = english.query(&format!("{} w0", many.join(" ")));
        assert_eq!((many.len(), many[0].count), (MAX_QUERY_WORDS, 2));
        assert!(COMMON.is_sorted());
    }

    proptest::proptest! {
        #[test]
        fn words_have_letters_and_digits_only(text in "\\PC{0,80}") {
            let splitter = WordSplitter::new(Language::English);
            let words = splitter.words(&text);
            for word in words.split(' ').filter(|word| !word.is_empty()) {
                proptest::prop_assert!(word.len() <= MAX_WORD_BYTES * 3, "{word:?}");
            }
            for word in splitter.query(&text) {
                let count = words.split(' ').filter(|it| *it == word.word).count();
                proptest::prop_assert_eq!(count, word.count as usize);
            }
        }
    }
}
