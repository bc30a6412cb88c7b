//! Citations: which passages an answer names, and whether what it quotes is in them (docs/protocol.md, 13.4).

use crate::knowledge::RetrievedPassage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A place of an answer that names a passage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Citation {
    /// The passage's: `k1`.
    pub id: String,
    /// Source of its document; absent where no such passage was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What the answer quotes before it, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Whether there is such a passage, and what is quoted is in it.
    pub holds: bool,
}

/// Citations of one answer that are reported.
const MAX_CITATIONS: usize = 200;
/// Longest quote that is looked for, in characters.
const MAX_QUOTE: usize = 2_000;
/// Characters that may stand between a quote and its citation: `"…" (see [k1])`.
const MAX_GAP: usize = 3;

/// The citations in all texts of `output`, in their order.
pub fn citations(output: &Value, passages: &[RetrievedPassage]) -> Vec<Citation> {
    let mut found = Vec::new();
    let normalized: Vec<String> = passages.iter().map(|it| normalized(&it.text)).collect();
    collect(output, &mut |text| {
        of_text(text, passages, &normalized, &mut found);
    });
    found
}

fn collect(value: &Value, take: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => take(text),
        Value::Array(values) => values.iter().for_each(|value| collect(value, take)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, take)),
        _ => {}
    }
}

fn of_text(
    text: &str,
    passages: &[RetrievedPassage],
    normalized: &[String],
    found: &mut Vec<Citation>,
) {
    let mut from = 0;
    while let Some(open) = text.get(from..).and_then(|rest| rest.find('[')) {
        let open = from + open;
        from = open + 1;
        let Some(inside) = text.get(from..).and_then(|rest| rest.split_once(']')) else {
            return;
        };
        let ids: Vec<&str> = inside.0.split([',', ';']).map(str::trim).collect();
        if !ids.iter().all(|id| is_id(id)) {
            continue;
        }
        let quote = text.get(..open).and_then(quote_before);
        for id in ids {
            if found.len() >= MAX_CITATIONS {
                return;
            }
            let at = passages.iter().position(|passage| passage.id == id);
            let text = at.and_then(|at| normalized.get(at));
            found.push(Citation {
                id: id.to_owned(),
                source: at
                    .and_then(|at| passages.get(at))
                    .map(|it| it.source.clone()),
                quote: quote.map(str::to_owned),
                holds: text.is_some_and(|text| quote.is_none_or(|quote| contains(text, quote))),
            });
        }
        from += inside.0.len() + 1;
    }
}

/// Whether this names a passage: `k` and a number.
pub fn is_id(id: &str) -> bool {
    let digits = id.strip_prefix('k').unwrap_or_default();
    (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Pairs of quotation marks, as several languages write them.
const QUOTATION_MARKS: [(char, char); 7] = [
    ('"', '"'),
    ('“', '”'),
    ('„', '“'),
    ('„', '”'),
    ('«', '»'),
    ('»', '«'),
    ('‘', '’'),
];

/// What stands in quotation marks at the end of `text`.
fn quote_before(text: &str) -> Option<&str> {
    let is_between = |it: &char| it.is_whitespace() || ".,;:(–-".contains(*it);
    let gap: usize = text
        .chars()
        .rev()
        .take_while(is_between)
        .take(MAX_GAP + 1)
        .map(char::len_utf8)
        .sum();
    let text = text.get(..text.len() - gap)?;
    let last = text.chars().next_back()?;
    let inside = text.get(..text.len() - last.len_utf8())?;
    let quotes = QUOTATION_MARKS.iter().filter(|(_, close)| *close == last);
    let opened = quotes.filter_map(|(open, _)| Some(inside.rfind(*open)? + open.len_utf8()));
    let quote = inside.get(opened.max()?..)?;
    let length = quote.chars().count();
    (1..=MAX_QUOTE).contains(&length).then_some(quote)
}

/// Whether `quote` is in a normalized text. What it leaves out (`…`, `...`, `[...]`) may be anything.
fn contains(text: &str, quote: &str) -> bool {
    let quote = normalized(quote).replace("[...]", "...");
    let mut parts = quote
        .split("...")
        .map(str::trim)
        .filter(|it| !it.is_empty());
    let mut rest = text;
    let mut is_any = false;
    let holds = parts.all(|part| {
        is_any = true;
        // What ends a sentence of the answer need not end one of the passage.
        let part = part.trim_end_matches(['.', ',', ';', ':']);
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
        true
    });
    holds && is_any
}

/// In small letters, with one space between words, and quotation marks and ellipses of one kind.
fn normalized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for character in word.chars() {
            match character {
                '“' | '”' | '„' | '«' | '»' => out.push('"'),
                '‘' | '’' => out.push('\''),
                '…' => out.push_str("..."),
                other => out.extend(other.to_lowercase()),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn passages() -> Vec<RetrievedPassage> {
        let passage = |id: &str, text: &str| RetrievedPassage {
            id: id.into(),
            source: format!("{id}.md"),
            text: text.into(),
            ..RetrievedPassage::default()
        };
        vec![
            passage(
                "k1",
                "A replacement of a lost\ncard costs 20 euro. It takes five days.",
            ),
            passage("k2", "Cards are “free” for children."),
        ]
    }

    fn of(output: &Value) -> Vec<(String, Option<String>, bool)> {
        let found = citations(output, &passages()).into_iter();
        found.map(|it| (it.id, it.quote, it.holds)).collect()
    }

    fn row(id: &str, quote: Option<&str>, holds: bool) -> (String, Option<String>, bool) {
        (id.to_owned(), quote.map(str::to_owned), holds)
    }

    #[test]
    fn a_citation_holds_if_its_passage_has_what_is_quoted() {
        for (text, expected) in [
            ("It costs 20 euro [k1].", vec![row("k1", None, true)]),
            (
                "\"a lost card costs 20 euro\" [k1]",
                vec![row("k1", Some("a lost card costs 20 euro"), true)],
            ),
            (
                "“a lost card costs 30 euro.” [k1]",
                vec![row("k1", Some("a lost card costs 30 euro."), false)],
            ),
            (
                "„A replacement … costs 20 euro“ ([k1])",
                vec![row("k1", Some("A replacement … costs 20 euro"), true)],
            ),
            (
                "\"five days ... replacement\" [k1]",
                vec![row("k1", Some("five days ... replacement"), false)],
            ),
            (
                "See [k1, k2] and [k9].",
                vec![
                    row("k1", None, true),
                    row("k2", None, true),
                    row("k9", None, false),
                ],
            ),
            (
                "«cards are \"free\"» [k2]",
                vec![row("k2", Some("cards are \"free\""), true)],
            ),
            ("An array[0], [see k1], [k], [k1", vec![]),
            ("\"...\" [k1]", vec![row("k1", Some("..."), false)]),
        ] {
            assert_eq!(of(&json!(text)), expected, "{text}");
        }
    }

    #[test]
    fn all_texts_of_an_output_are_read() {
        let output = json!({"fee": 20, "why": ["as told [k1]", {"also": "[k2]"}]});
        assert_eq!(of(&output), [row("k1", None, true), row("k2", None, true)]);
        let source = citations(&output, &passages()).remove(0).source;
        assert_eq!(source.as_deref(), Some("k1.md"));
    }

    #[test]
    fn citations_are_bounded() {
        let output = json!("[k1]".repeat(MAX_CITATIONS * 2));
        assert_eq!(of(&output).len(), MAX_CITATIONS);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in r#"(\[|\]|k1|k2|,|"|“|„|…|\.|[a-zß€ ]){0,60}"#) {
            for citation in citations(&json!(text), &passages()) {
                prop_assert!(is_id(&citation.id));
                prop_assert!(citation.source.is_some() || !citation.holds);
            }
        }
    }
}
