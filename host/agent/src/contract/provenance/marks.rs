//! Marks that end a thought, and whether the model only repeats them.

use super::MAX_COMPARED_BYTES;
use super::plain::plain;
use crate::contract::thought::EndMark;
use std::collections::BTreeMap;

/// Maximum letters on each side of a mark that are compared with it, and the minimum: fewer may be a coincidence.
const AROUND_MARK: usize = 24;
const MIN_AROUND_MARK: usize = 8;
/// Letters of the plain form that are made on each side. Those at the cut may be a part of an encoded character, and are
/// not compared.
const MADE: usize = 4 * AROUND_MARK;
/// Bytes of text that are read for them at first; most texts have as many letters in them.
const WINDOW: usize = 256;
/// Minimum searches through the texts: three for each of 64 marks.
const MIN_SEARCHES: usize = 3 * 64;

/// Compares the marks of one reply with texts that the operator did not write. A reply may hold a mark in each 15 bytes,
/// and each comparison is a search through all of these texts (8 MiB), so the number of searches is bounded.
#[derive(Debug)]
pub(in crate::contract) struct MarkComparison<'t> {
    texts: &'t str,
    /// Searches that are left.
    left: usize,
    /// Marks that were looked for, in plain form, and whether they stand in the texts.
    known: BTreeMap<String, bool>,
}

impl<'t> MarkComparison<'t> {
    pub(super) fn with(texts: &'t str) -> Self {
        Self {
            texts,
            left: (MAX_COMPARED_BYTES / texts.len().max(1)).max(MIN_SEARCHES),
            known: BTreeMap::new(),
        }
    }

    /// Whether a mark stands in the texts with the same words before or behind it: then the model repeats it. When no
    /// search is left, each mark that stands in the texts counts as repeated.
    pub(in crate::contract) fn is_quoted(&mut self, mark: EndMark<'_>) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let form = plain(mark.mark);
        let stands = match self.known.get(&form) {
            Some(stands) => *stands,
            None => {
                let stands = self.has(&form);
                self.known.insert(form.clone(), stands);
                stands
            }
        };
        if !stands {
            return false;
        }
        let (before, after) = (last_letters(mark.before), first_letters(mark.after));
        let is_enough = |text: &str| text.len() >= MIN_AROUND_MARK;
        (is_enough(&before) && self.has(&format!("{before}{form}")))
            || (is_enough(&after) && self.has(&format!("{form}{after}")))
    }

    fn has(&mut self, text: &str) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            return true;
        };
        self.left = left;
        self.texts.contains(text)
    }
}

/// The last letters of the plain form, which is made of the end of the text alone: the text may be long, and is read
/// for each mark.
fn last_letters(text: &str) -> String {
    let letters = |bytes: usize| {
        let from = text.floor_char_boundary(text.len().saturating_sub(bytes));
        (plain(&text[from..]), from == 0)
    };
    let plain = widened(letters);
    let from = plain.char_indices().rev().take(AROUND_MARK).last();
    from.map_or_else(String::new, |(from, _)| plain[from..].to_owned())
}

/// The first letters, in the same way.
fn first_letters(text: &str) -> String {
    let letters = |bytes: usize| {
        let to = text.ceil_char_boundary(bytes.min(text.len()));
        (plain(&text[..to]), to == text.len())
    };
    widened(letters).chars().take(AROUND_MARK).collect()
}

/// The plain form of the fewest windows that have [`MADE`] letters, or of the whole text. `letters`: the form of a number
/// of bytes, and whether they are the whole text.
fn widened(letters: impl Fn(usize) -> (String, bool)) -> String {
    let mut bytes = WINDOW;
    loop {
        let (plain, is_all) = letters(bytes);
        if is_all || plain.chars().nth(MADE).is_some() {
            return plain;
        }
        bytes = bytes.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark<'t>(before: &'t str, after: &'t str) -> EndMark<'t> {
        EndMark {
            before,
            mark: "</think>",
            after,
        }
    }

    #[test]
    fn a_mark_is_repeated_with_the_words_around_it() {
        let texts = plain("The very first line of them all.\n</think>\nAll is well.");
        let mut marks = MarkComparison::with(&texts);
        assert!(marks.is_quoted(mark("It says: The very first line of them all.\n", "\nHm.")));
        assert!(marks.is_quoted(mark("It ends.", "\nAll   is well.")));
        assert!(!marks.is_quoted(mark("It ends.", "\nAll was well, and I am done.")));
        assert!(!marks.is_quoted(mark("it.", "All")), "too short");
        assert!(!MarkComparison::with("").is_quoted(mark("First line of it.", "")));
    }

    #[test]
    fn marks_that_are_not_compared_count_as_repeated() {
        let shown = plain("Of the model: </think>");
        let large = "x".repeat(MAX_COMPARED_BYTES / 8);
        for (texts, is_quoted) in [(format!("{shown}{large}"), true), (large, false)] {
            let mut marks = MarkComparison::with(&texts);
            for _ in 0..64 {
                assert!(!marks.is_quoted(mark("My own thought.", "My own answer.")));
            }
            assert_eq!(
                (0..64).any(|_| marks.is_quoted(mark("My own thought.", ""))),
                is_quoted
            );
        }
    }

    proptest! {
        /// Text far from the mark changes nothing.
        #[test]
        fn letters_are_those_of_the_whole_text(text in "([a-z<>é {}\\[\\]\n]|\u{1F469}|\u{E9}){0,2000}") {
            let whole: Vec<char> = plain(&text).chars().collect();
            let first: String = whole.iter().take(AROUND_MARK).collect();
            let last: String = whole[whole.len().saturating_sub(AROUND_MARK)..].iter().collect();
            prop_assert_eq!((first_letters(&text), last_letters(&text)), (first, last));
        }
    }
}
