//! `[knowledge]`: what makes vectors of documents' passages, and what a run looks for before its model is asked.

use crate::config::configuration::Configuration;
use crate::config::fetched::check_fetched;
use crate::config::surroundings::{ConfigFault, at_least_one};
use crate::document_addresses::DocumentAddresses;
use serde::Deserialize;
use std::path::PathBuf;
use toolhold_policy::HttpGrant;
use toolhold_protocol::knowledge::{CitationRule, MAX_RETRIEVED, Retrieval, RetrievedWhen};

/// Keys of `[knowledge]` that an agent may set for its runs, as `[agents.NAME.knowledge]`. The others are those of the
/// process.
pub const RETRIEVAL_KEYS: [&str; 5] = ["collections", "passages", "tokens", "when", "citations"];

/// Most tokens of them: of a small book.
const MAX_TOKENS: u32 = 200_000;
/// Most collections of one search.
const MAX_COLLECTIONS: usize = 100;

/// The table as it is written.
#[derive(Debug, Clone, Deserialize)]
pub struct KnowledgeTable {
    /// Names of modules that read documents, in the order in which they are asked.
    pub extractors: Vec<String>,
    /// The weights of a static model; empty, like its tokenizer, where there is none.
    pub weights: PathBuf,
    pub tokenizer: PathBuf,
    /// Addresses of documents that a task may name.
    http: Vec<HttpGrant>,
    collections: Vec<String>,
    passages: u32,
    tokens: u32,
    when: RetrievedWhen,
    citations: CitationRule,
}

impl KnowledgeTable {
    /// The addresses whose documents a task may name.
    pub fn addresses(&self) -> DocumentAddresses {
        DocumentAddresses::granted(self.http.clone())
    }

    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        check_fetched(&self.http, "a document")?;
        at_least_one([
            ("passages", self.passages == 0),
            ("tokens", self.tokens == 0),
        ])?;
        for (key, is_wrong, reason) in [
            (
                "passages",
                self.passages > MAX_RETRIEVED,
                format!("is at most {MAX_RETRIEVED}"),
            ),
            (
                "tokens",
                self.tokens > MAX_TOKENS,
                format!("is at most {MAX_TOKENS}"),
            ),
            (
                "collections",
                self.collections.len() > MAX_COLLECTIONS,
                format!("names at most {MAX_COLLECTIONS}"),
            ),
        ] {
            if is_wrong {
                return Err(ConfigFault::new(key, reason));
            }
        }
        Ok(())
    }
}

impl Configuration {
    /// What makes vectors of documents' passages.
    pub fn knowledge(&self) -> &KnowledgeTable {
        &self.tables.knowledge
    }

    /// What a run looks for before its model is asked, if it is anything. `attached`: the collection of the documents that
    /// came with it.
    pub fn retrieval(&self, attached: Option<String>) -> Option<Retrieval> {
        let table = &self.tables.knowledge;
        if table.collections.is_empty() && attached.is_none() {
            return None;
        }
        Some(Retrieval {
            collections: table.collections.clone(),
            attached,
            passages: table.passages,
            tokens: table.tokens,
            when: table.when,
            citations: table.citations,
        })
    }
}
