//! The words of a text, as passages are found by them: the same for a passage and for what is looked for.

use std::collections::HashMap;
use toolhold_storage::QuestionWord;
use toolhold_text::words::TermSplitter;

pub use toolhold_text::words::{Language, VERSION};

/// Different words that are looked for at most: the first of a question. Questions of the length that a question may
/// have are rarely of more, unless they are made for it: each is counted in the index.
pub const MAX_QUERY_WORDS: usize = 1_024;

/// Divides texts into words.
#[derive(Debug)]
pub struct WordSplitter {
    terms: TermSplitter,
    language: Language,
}

impl WordSplitter {
    /// For texts in `language`. Words of other languages are found, too, with the endings of their script's language or in
    /// the form in which they were written.
    pub fn new(language: Language) -> Self {
        Self {
            terms: TermSplitter::new(language),
            language,
        }
    }

    /// The words of `text` in their order, separated by spaces; each has letters and digits only.
    pub fn words(&self, text: &str) -> String {
        let mut words = String::with_capacity(text.len());
        self.terms.each(text, |word| {
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
        self.terms.each(text, |word| {
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
    fn words_of_a_text_are_separated_by_spaces() {
        let english = WordSplitter::new(Language::English);
        assert_eq!(english.words("The Foxes' den, again"), "the fox den again");
        assert_eq!(english.words("... \u{0}"), "");
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
        fn words_of_a_question_are_counted(text in "\\PC{0,80}") {
            let splitter = WordSplitter::new(Language::English);
            let words = splitter.words(&text);
            for word in splitter.query(&text) {
                let count = words.split(' ').filter(|it| *it == word.word).count();
                proptest::prop_assert_eq!(count, word.count as usize);
            }
        }
    }
}
