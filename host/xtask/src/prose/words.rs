//! Words and phrases that hide who acts, or what is acted on.

use super::rust::DocComment;

/// In lower case. A phrase may go over the end of a line.
const PHRASES: [&str; 12] = [
    "nobody",
    "whoever",
    "somebody",
    "whatever",
    "what is there",
    "what there is",
    "is told",
    "are told",
    "was told",
    "goes on",
    "as far as",
    "so many",
];

/// Rest of "told apart", which means "distinguished" and has no listener.
const APART: &str = " apart";

/// Phrase that is clear behind an article and a noun, and a riddle behind a pronoun.
const CONTINUES: &str = "goes on";

/// Words before a noun.
const ARTICLES: [&str; 5] = ["a", "an", "the", "its", "this"];

/// Indices of the lines on which a phrase begins, one for each phrase.
pub fn signs(comment: &DocComment) -> Vec<usize> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for line in &comment.lines {
        starts.push(text.len());
        text.push_str(&line.text.trim().to_lowercase());
        text.push(' ');
    }
    let mut indices = Vec::new();
    for phrase in PHRASES {
        for (at, _) in text.match_indices(phrase) {
            let (before, rest) = (&text[..at], &text[at + phrase.len()..]);
            let is_whole = !before.ends_with(is_of_word) && !rest.starts_with(is_of_word);
            let is_clear = match phrase {
                CONTINUES => ends_with_noun(before),
                _ => rest.starts_with(APART),
            };
            if is_whole && !is_clear {
                indices.push(starts.partition_point(|start| *start <= at) - 1);
            }
        }
    }
    indices.sort_unstable();
    indices
}

/// True if the word before the last one is an article.
fn ends_with_noun(text: &str) -> bool {
    let article = text.split_whitespace().rev().nth(1);
    article.is_some_and(|word| ARTICLES.contains(&word))
}

pub fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Vec<usize> {
        signs(&DocComment::of(lines))
    }

    #[test]
    fn phrases_are_found_in_any_line_and_over_its_end() {
        assert_eq!(
            found(&["A lock that Nobody holds.", "The guest is told."]),
            [0, 1]
        );
        assert_eq!(found(&["Bytes, as far", "as they are known."]), [0]);
        assert_eq!(found(&["Whoever asks goes on."]), [0, 0]);
    }

    #[test]
    fn parts_of_words_and_other_meanings_are_left() {
        assert_eq!(
            found(&["What is therefore kept.", "`whatever_it_is`"]),
            [] as [usize; 0]
        );
        assert_eq!(found(&["Keys that are told apart."]), [] as [usize; 0]);
        assert_eq!(found(&["The run goes on."]), [] as [usize; 0]);
        assert_eq!(found(&["What goes on with the run goes", "on."]), [0]);
    }
}
