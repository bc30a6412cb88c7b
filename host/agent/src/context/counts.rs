//! Token counts of texts by the endpoint's own tokenizer. Each text is counted once: most of a Request
//! repeats the Request before it.

use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens by the SHA-256 of the text.
#[derive(Debug, Default)]
pub struct TokenCounts(BTreeMap<[u8; 32], u64>);

impl TokenCounts {
    /// An empty text has no tokens, and needs no count.
    pub fn of(&self, text: &str) -> Option<u64> {
        if text.is_empty() {
            return Some(0);
        }
        self.0.get(&digest(text)).copied()
    }

    pub fn add(&mut self, text: &str, tokens: u64) {
        self.0.insert(digest(text), tokens);
    }

    /// The texts that have no count yet, each once.
    pub fn lacking<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Vec<String> {
        let mut seen = BTreeSet::new();
        texts
            .filter(|text| seen.insert(*text) && self.of(text).is_none())
            .map(str::to_owned)
            .collect()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_once() {
        let mut counts = TokenCounts::default();
        counts.add("known", 7);
        assert_eq!(counts.of("known"), Some(7));
        assert_eq!(counts.of(""), Some(0));
        let texts = ["new", "known", "", "other", "new"];
        assert_eq!(counts.lacking(texts.into_iter()), ["new", "other"]);
    }
}
