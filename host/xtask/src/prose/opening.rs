//! Signs of the beginning of a doc comment.

use super::rust::DocComment;
use super::sign::Sign;
use super::words::is_of_word;

/// First words that stand for a noun, and phrases of them.
const OPENINGS: [&str; 19] = [
    "What", "Of", "Those", "One that", "As", "It", "They", "That", "Who", "Which", "None",
    "Nothing", "So many", "The same", "And", "But", "Said", "Told", "Where",
];

/// Beginnings of a line that refer to another comment.
const REFERENCES: [&str; 3] = ["The same", "As there", "As above"];

/// Texts behind a reference; before a noun, as in "The same file", the words refer to nothing.
const REFERENCE_ENDS: [&str; 9] = ["", ".", ",", ";", ":", " as ", " for ", " of ", " with "];

/// Names of products and protocols that are written as identifiers are.
const PROPER_NAMES: [&str; 12] = [
    "GitHub",
    "GitLab",
    "GraphQL",
    "JavaScript",
    "OpenAI",
    "OpenAPI",
    "PostgreSQL",
    "QuickJS",
    "SplitMix64",
    "TypeScript",
    "WebSocket",
    "WebSockets",
];

/// Indices of lines, each with its sign.
pub fn signs(comment: &DocComment) -> Vec<(usize, Sign)> {
    let mut signs = Vec::new();
    for (index, line) in comment.lines.iter().enumerate() {
        let text = line.text.as_str();
        if index == 0 && OPENINGS.iter().any(|opening| begins_with(text, opening)) {
            signs.push((index, Sign::Opening));
        } else if index == 0 && begins_with_identifier(text) {
            signs.push((index, Sign::Identifier));
        } else if is_reference(text) {
            signs.push((index, Sign::Reference));
        }
    }
    signs
}

/// True if `text` begins with the words of `phrase`, and not with a longer word.
fn begins_with(text: &str, phrase: &str) -> bool {
    text.strip_prefix(phrase)
        .is_some_and(|rest| !rest.starts_with(is_of_word))
}

fn is_reference(text: &str) -> bool {
    let rests = REFERENCES
        .iter()
        .filter_map(|phrase| text.strip_prefix(phrase));
    rests.into_iter().any(|rest| {
        let mut ends = REFERENCE_ENDS.iter();
        ends.any(|end| {
            if end.is_empty() {
                rest.is_empty()
            } else {
                rest.starts_with(end)
            }
        })
    })
}

/// True for `MemoryLimiter` and `OneThing`, whose parts begin with capital letters.
fn begins_with_identifier(text: &str) -> bool {
    let end = text.find(|letter| !is_of_word(letter));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let small = |letter: char| letter.is_ascii_lowercase();
    let Some(tail) = word.strip_prefix(|letter: char| letter.is_ascii_uppercase()) else {
        return false;
    };
    let after_small = tail.trim_start_matches(small);
    after_small.len() < tail.len()
        && after_small.len() > 1
        && after_small.starts_with(|letter: char| letter.is_ascii_uppercase())
        && !rest.starts_with('`')
        && !PROPER_NAMES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Vec<(usize, Sign)> {
        signs(&DocComment::of(lines))
    }

    #[test]
    fn pronouns_open_a_comment() {
        for text in [
            "What is kept.",
            "One that waits.",
            "It",
            "So many bytes.",
            "Where: there.",
        ] {
            assert_eq!(found(&[text]), [(0, Sign::Opening)], "{text}");
        }
        for text in [
            "Whatever",
            "One thing that waits.",
            "Items",
            "Offset.",
            "what",
            "",
        ] {
            assert_eq!(found(&[text]), [], "{text}");
        }
        assert_eq!(found(&["Bytes", "What follows."]), [], "a later line");
    }

    #[test]
    fn identifiers_open_a_comment_without_backticks() {
        assert_eq!(found(&["DecisionEffect, kept."]), [(0, Sign::Identifier)]);
        for text in [
            "`DecisionEffect`, kept.",
            "JSON text.",
            "PostgreSQL: a lock.",
            "HTTPServer",
            "McpX is short.",
        ] {
            assert_eq!(found(&[text]), [], "{text}");
        }
    }

    #[test]
    fn references_are_found_in_later_lines_too() {
        assert_eq!(found(&["# Errors", "The same."]), [(1, Sign::Reference)]);
        assert_eq!(
            found(&["Reads.", "As above, with a limit."]),
            [(1, Sign::Reference)]
        );
        assert_eq!(found(&["Reads", "The same Solution in several ways."]), []);
    }
}
