//! Passages of documents, and what an answer cites of them, in lines for people.

use super::words::cut;
use crate::terminal::style::{bad, dim, line};
use toolhold_protocol::citation::Citation;
use toolhold_protocol::knowledge::RetrievedPassage;

/// Documents that are named in one line.
const MAX_NAMED: usize = 3;

/// What was found, in one line.
pub fn retrieved(passages: &[RetrievedPassage]) -> String {
    let mut sources: Vec<&str> = Vec::new();
    for passage in passages {
        if !sources.contains(&passage.source.as_str()) {
            sources.push(&passage.source);
        }
    }
    let count = match passages.len() {
        0 => return "no passages found".to_owned(),
        1 => "1 passage found".to_owned(),
        count => format!("{count} passages found"),
    };
    let named: Vec<&str> = sources.iter().take(MAX_NAMED).copied().collect();
    let others = match sources.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    line(&format!("{count}: {}{others}", named.join(", ")))
}

/// A passage, in one line.
pub fn passage(passage: &RetrievedPassage) -> String {
    let headings = passage
        .heading
        .lines()
        .map(|heading| format!(" › {heading}"));
    let place = format!("{}{}", passage.source, headings.collect::<String>());
    format!(
        "{} {}: {}",
        line(&passage.id),
        line(&place),
        cut(&line(passage.text.trim()))
    )
}

/// What an answer cites, in one line; nothing if it cites nothing.
pub fn cited(citations: &[Citation]) -> Option<String> {
    let mut shown: Vec<String> = Vec::new();
    for citation in citations {
        let source = citation.source.as_deref().unwrap_or("no such passage");
        let named = line(&format!("{} {source}", citation.id));
        let text = match (citation.holds, &citation.source) {
            (true, _) => dim(&named),
            (false, Some(_)) => format!("{} {}", dim(&named), bad("✗ does not have the quote")),
            (false, None) => format!("{} {}", dim(&named), bad("✗")),
        };
        if !shown.contains(&text) {
            shown.push(text);
        }
    }
    (!shown.is_empty()).then(|| format!("{} {}", dim("cites"), shown.join(&dim(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> RetrievedPassage {
        RetrievedPassage {
            id: "k1".into(),
            source: source.into(),
            heading: "Fees\nCards".into(),
            text: "A card\ncosts 20 euro.".into(),
            ..RetrievedPassage::default()
        }
    }

    #[test]
    fn what_was_found_is_one_line() {
        assert_eq!(retrieved(&[]), "no passages found");
        assert_eq!(
            retrieved(&[of("a\u{1b}[2J")]),
            "1 passage found: a\\u{1b}[2J"
        );
        let five = ["a", "a", "b", "c", "d"].map(of);
        assert_eq!(retrieved(&five), "5 passages found: a, b, c and 1 more");
    }

    #[test]
    fn a_citation_says_what_is_wrong_with_it() {
        let citation = |id: &str, source: Option<&str>, holds| Citation {
            id: id.into(),
            source: source.map(str::to_owned),
            quote: None,
            holds,
        };
        assert_eq!(cited(&[]), None);
        let text = cited(&[
            citation("k1", Some("a.md"), true),
            citation("k1", Some("a.md"), true),
            citation("k2", Some("b.md"), false),
            citation("k9", None, false),
        ]);
        assert_eq!(
            text.unwrap(),
            "cites k1 a.md, k2 b.md ✗ does not have the quote, k9 no such passage ✗"
        );
    }
}
