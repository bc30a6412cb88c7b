//! Search for tools by their purpose, used when there are too many to show them all.
//!
//! BM25 over names and descriptions, by the words that passages are found by, too. Of the crates that rank,
//! those that are kept up bring an index, a language detector or a tokenizer; a few hundred descriptions
//! need none of these.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toolhold_protocol::tool::Tool;
use toolhold_text::words::{Language, TermSplitter};

/// The tool by which the model finds others.
pub const FIND_TOOLS: &str = "find_tools";
/// Maximum search results.
const MAX_FOUND_TOOLS: usize = 5;
/// The usual constants (Robertson and Zaragoza, 2009).
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The search index of the tools.
#[derive(Debug, Default)]
pub struct Toolbook {
    pages: Vec<IndexedTool>,
    /// In how many pages a word is.
    spread: BTreeMap<String, usize>,
    average: f64,
}

#[derive(Debug)]
struct IndexedTool {
    name: String,
    words: BTreeMap<String, usize>,
    length: usize,
}

impl Toolbook {
    pub fn new(tools: &[Arc<Tool>]) -> Self {
        let mut book = Self::default();
        let splitter = splitter();
        for tool in tools {
            let mut words: BTreeMap<String, usize> = BTreeMap::new();
            let parameters = tool.parameters["properties"].as_object();
            let names = parameters.into_iter().flat_map(|all| all.keys());
            // A name says more about a tool than a sentence does.
            let text = [tool.name.as_str(), &tool.name, &tool.description];
            for text in text.into_iter().chain(names.map(String::as_str)) {
                splitter.each(text, |word| {
                    if let Some(count) = words.get_mut(word) {
                        *count += 1;
                    } else {
                        words.insert(word.to_owned(), 1);
                    }
                });
            }
            for word in words.keys() {
                *book.spread.entry(word.clone()).or_default() += 1;
            }
            book.pages.push(IndexedTool {
                name: tool.name.clone(),
                length: words.values().sum(),
                words,
            });
        }
        let all: usize = book.pages.iter().map(|page| page.length).sum();
        book.average = number(all) / number(book.pages.len().max(1));
        book
    }

    /// The names of the tools that `query` speaks of, the best first; those that it does not speak of
    /// are left out.
    pub fn find(&self, query: &str) -> Vec<&str> {
        // A long text has more words than all tools together.
        let mut words: BTreeSet<&str> = BTreeSet::new();
        splitter().each(query, |word| {
            if let Some((word, _)) = self.spread.get_key_value(word) {
                words.insert(word);
            }
        });
        let mut found: Vec<(f64, &str)> = self
            .pages
            .iter()
            .map(|page| (self.score(page, &words), page.name.as_str()))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        // Ties keep the order of the tools.
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn score(&self, page: &IndexedTool, words: &BTreeSet<&str>) -> f64 {
        let pages = number(self.pages.len());
        words
            .iter()
            .filter_map(|word| {
                let count = number(*page.words.get(*word)?);
                let spread = number(self.spread.get(*word).copied().unwrap_or(0));
                let rare = (1.0 + (pages - spread + 0.5) / (spread + 0.5)).ln();
                let long = 1.0 - B + B * number(page.length) / self.average;
                Some(rare * count * (K1 + 1.0) / (count + K1 * long))
            })
            .sum()
    }

    /// What a call of [`FIND_TOOLS`] returns, and the names of the tools that are to be shown.
    pub fn answer<'a>(&'a self, arguments: &Value, tools: &[Arc<Tool>]) -> (Value, Vec<&'a str>) {
        let query = arguments["query"].as_str().unwrap_or_default();
        let mut found = self.find(query);
        found.truncate(MAX_FOUND_TOOLS);
        let shown: Vec<Value> = found
            .iter()
            .filter_map(|name| tools.iter().find(|tool| tool.name == **name))
            .map(|tool| json!({"tool": tool.name, "description": tool.description}))
            .collect();
        let answer = match shown.as_slice() {
            [] => json!({"found": [], "hint": "say in other words what the tool should do"}),
            _ => json!({"found": shown, "hint": "these can be called from now on"}),
        };
        (answer, found)
    }
}

/// The parameters of [`FIND_TOOLS`].
pub fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"query": {"type": "string", "minLength": 1, "description": "What the tool should do, in a few words."}},
        "required": ["query"],
        "additionalProperties": false,
    })
}

/// Descriptions in Latin letters are mostly English.
fn splitter() -> TermSplitter {
    TermSplitter::new(Language::English)
}

#[expect(clippy::cast_precision_loss, reason = "counts of words")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Arc<Tool> {
        Arc::new(Tool {
            description: description.into(),
            parameters: json!({"type": "object", "properties": {"path": {}}}),
            ..Tool::new(name)
        })
    }

    #[test]
    fn tools_that_the_task_names_are_found_first() {
        let tools = [
            tool("files.read", "Reads a file."),
            tool("mail.send", "Sends an e-mail to somebody."),
            tool("weather.now", "The weather in a city now."),
            tool("files.write", "Writes a file, or appends to one."),
        ];
        let book = Toolbook::new(&tools);
        for (query, first) in [
            ("send a mail to Ada", "mail.send"),
            ("What is the weather in Paris?", "weather.now"),
            ("read files", "files.read"),
            ("append to a file", "files.write"),
        ] {
            assert_eq!(book.find(query).first(), Some(&first), "{query}");
        }
        assert!(book.find("quux").is_empty());
        let (answer, shown) = book.answer(&json!({"query": "weather"}), &tools);
        assert_eq!(shown, ["weather.now"]);
        assert_eq!(
            answer["found"][0]["description"],
            "The weather in a city now."
        );
    }
}
