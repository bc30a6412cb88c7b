//! `toolhold knowledge`: documents in collections, and passages found in them.
//!
//! The user of this machine's terminal has collections of their own, beside those of the server's keys.

mod add;
mod fetch;
mod keep;
mod list;
mod named;
mod remove;
mod search;
mod share;
mod transfer;
mod walk;

use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Subcommand;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toolhold_policy::is_name;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::stats::now_ms;
use toolhold_storage::{Collection, RemovedPassages, Store, Vectors};

/// Owner of the collections of this machine's terminal.
pub const OWNER: &str = "";
/// The collection that commands use where none is named.
const DEFAULT_COLLECTION: &str = "documents";
/// How long what a dead process left staged is kept, so that adding the same file goes on with it.
const KEEP_STAGED_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Add files, the files in folders, and what is at addresses to a collection.
    ///
    /// Documents are texts in UTF-8 (plain text, Markdown, CSV, source code), and web pages, office documents and
    /// PDF, which are read by modules in the sandbox. A file that was added before is replaced if it changed. What
    /// cannot be read is refused with its reason.
    Add(add::AddArgs),
    /// List the collections, or the documents of one.
    List(list::CollectionListArgs),
    /// Find passages by their words, and by vectors where a model is configured.
    Search(search::SearchArgs),
    /// Delete documents, or a whole collection.
    Remove(remove::RemoveArgs),
    /// Let a key of `toolhold serve` use a collection: it names it ~/COLLECTION.
    Share(share::ShareArgs),
    /// Share a collection with a key no more.
    Unshare(share::UnshareArgs),
    /// Delete documents of a collection when they are older than so many days.
    Keep(keep::KeepArgs),
    /// Write a collection to a file, as lines of JSON.
    Export(transfer::ExportArgs),
    /// Read such a file into a collection.
    Import(transfer::ImportArgs),
}

pub async fn knowledge(config: &Configuration, command: KnowledgeCommand) -> Result<Exit> {
    match command {
        KnowledgeCommand::Add(args) => Box::pin(add::add(config, args)).await,
        KnowledgeCommand::List(args) => list::list(config, &args).await,
        KnowledgeCommand::Search(args) => search::search(config, args).await,
        KnowledgeCommand::Remove(args) => remove::remove(config, args).await,
        KnowledgeCommand::Share(args) => share::share(config, &args).await,
        KnowledgeCommand::Unshare(args) => share::unshare(config, &args).await,
        KnowledgeCommand::Keep(args) => keep::keep(config, &args).await,
        KnowledgeCommand::Export(args) => transfer::export(config, args).await,
        KnowledgeCommand::Import(args) => transfer::import(config, args).await,
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

/// The user's collection of this name, which is created if there is none.
async fn collection_or_new(
    store: &Store,
    name: &str,
    vectors: Option<&Vectors>,
) -> Result<Collection> {
    check_name(name)?;
    // One that is there already is as good.
    store.create_collection(OWNER, name, vectors, None).await?;
    collection(store, name).await
}

fn check_name(name: &str) -> Result<()> {
    if !is_name(name) {
        bail!(
            "{name:?}: a collection's name is lower case letters, digits and _, at most 48, starting with a letter"
        );
    }
    Ok(())
}

/// Documents of a collection that are older than it keeps them are deleted.
async fn expire(store: &Store, collection: &Collection) {
    match store.expire_documents(collection, now_ms()).await {
        Ok(0) => {}
        Ok(expired) => output::remark(&format!(
            "{} of {} deleted, because the collection keeps none so long",
            style::plural(expired, "document"),
            collection.name
        )),
        Err(error) => output::remark(&format!(
            "documents that are older than {} keeps them are still there: {error}",
            collection.name
        )),
    }
}

/// The path as documents are named by it: absolute, and as it was typed otherwise. An address stays what it is.
fn absolute(path: &Path) -> Result<PathBuf> {
    if fetch::is_address(path) {
        return Ok(path.to_owned());
    }
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
