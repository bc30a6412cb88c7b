//! `toolhold knowledge`: documents in collections, and passages found in them.
//!
//! The user of this machine's terminal has collections of their own, beside those of the server's keys.

mod add;
mod list;
mod remove;
mod search;
mod walk;

use crate::exit::Exit;
use crate::terminal::output;
use anyhow::{Result, bail};
use clap::Subcommand;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toolhold_runtime::config::Configuration;
use toolhold_storage::{Collection, RemovedPassages, Store, Vectors};

/// Owner of the collections of this machine's terminal.
const OWNER: &str = "";
/// The collection that commands use where none is named.
const DEFAULT_COLLECTION: &str = "documents";

#[derive(Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Add files, and the files in folders, to a collection.
    ///
    /// Documents are texts in UTF-8 (plain text, Markdown, CSV, source code), and web pages, office documents and
    /// PDF, which are read by modules in the sandbox. A file that was added before is replaced if it changed. What
    /// cannot be read is refused with its reason.
    Add(add::AddArgs),
    /// List the collections, or the documents of one.
    List(list::ListArgs),
    /// Find passages by their words, and by vectors where a model is configured.
    Search(search::SearchArgs),
    /// Delete documents, or a whole collection.
    Remove(remove::RemoveArgs),
}

pub async fn knowledge(config: &Configuration, command: KnowledgeCommand) -> Result<Exit> {
    match command {
        KnowledgeCommand::Add(args) => add::add(config, args).await,
        KnowledgeCommand::List(args) => list::list(config, &args).await,
        KnowledgeCommand::Search(args) => search::search(config, args).await,
        KnowledgeCommand::Remove(args) => remove::remove(config, args).await,
    }
}

/// A label as `--label` takes it.
#[derive(Debug, Clone)]
struct DocumentLabel {
    name: String,
    value: String,
}

impl FromStr for DocumentLabel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("a label is NAME=VALUE, such as team=support"),
        }
    }
}

/// Of labels with one name the last one counts.
fn by_name(labels: Vec<DocumentLabel>) -> BTreeMap<String, String> {
    let labels = labels.into_iter().map(|label| (label.name, label.value));
    labels.collect()
}

/// The user's collection of this name.
async fn collection(store: &Store, name: &str) -> Result<Collection> {
    match store.collection(OWNER, OWNER, name).await? {
        Some((collection, _)) => Ok(collection),
        None => bail!("there is no collection {name:?}; `toolhold knowledge list` shows them"),
    }
}

/// The path as documents are named by it: absolute, and as it was typed otherwise.
fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(path)?)
}

/// Said where passages have no vectors, or theirs do not count. `vectors`: those of the configured model.
fn note_words_alone(vectors: Option<&Vectors>) {
    output::remark(match vectors {
        None => "found by words alone: knowledge.weights names no model",
        Some(_) => {
            "found by words alone: the collection was made without the model of knowledge.weights; a new one has its \
             vectors"
        }
    });
}

/// Said where it could not be overwritten yet.
fn note_log(removal: &RemovedPassages) {
    if removal.is_in_log {
        output::remark(
            "another process reads the database: until it is done, the write-ahead log (toolhold.db-wal) may still \
             hold what was removed; the next `toolhold knowledge add` or `remove` overwrites it",
        );
    }
}
