//! `toolhold knowledge remove`.

use super::list::each_document;
use super::{DEFAULT_COLLECTION, OWNER};
use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::path::Path;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::now_ms;
use toolhold_storage::{Collection, CollectionDocument, Store};
use uuid::Uuid;

/// What is deleted.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Ids of documents, or paths as they were added; a folder stands for all documents from it.
    #[arg(required_unless_present = "all", value_name = "DOCUMENT")]
    documents: Vec<String>,
    /// The collection that they are in.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_COLLECTION)]
    collection: String,
    /// Delete the whole collection.
    #[arg(long, conflicts_with = "documents")]
    all: bool,
    /// Delete the whole collection; without this option, only what it holds is printed.
    #[arg(long, requires = "all")]
    yes: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub async fn remove(config: &Configuration, args: RemoveArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let collection = super::collection(&store, &args.collection).await?;
    let documents = if args.all {
        if !args.yes {
            output::tell(&format!(
                "{} of {} would be deleted; --yes deletes them",
                style::plural(collection.documents, "document"),
                args.collection
            ));
            return Ok(Exit::Ok);
        }
        store.delete_collection(OWNER, &collection).await?;
        collection.documents
    } else {
        let named = named(&store, &collection, &args.documents).await?;
        let mut deleted = 0;
        for document in named {
            deleted += u64::from(store.delete_document(OWNER, &collection, document).await?);
        }
        deleted
    };
    // Also what was left staged, now and not after a day: it may hold the same text.
    let passages = store.remove_gone_passages(now_ms()).await?;
    if args.json {
        output::json_line(&json!({"documents": documents, "passages": passages}))?;
        return Ok(Exit::Ok);
    }
    output::tell(&format!(
        "{} {}; {} removed from the database",
        style::good("deleted:"),
        style::plural(documents, "document"),
        style::plural(passages, "passage")
    ));
    Ok(Exit::Ok)
}

/// The documents that are meant.
///
/// # Errors
/// One of them is not in the collection: nothing is deleted then.
async fn named(store: &Store, collection: &Collection, names: &[String]) -> Result<Vec<Uuid>> {
    let mut wanted = Vec::new();
    for name in names {
        let id = name.parse::<Uuid>().ok();
        wanted.push((name, id, super::absolute(Path::new(name))?, false));
    }
    let mut found = Vec::new();
    each_document(store, collection, |document: &CollectionDocument| {
        for (_, id, path, is_found) in &mut wanted {
            if *id == Some(document.id) || Path::new(&document.source).starts_with(&*path) {
                found.push(document.id);
                *is_found = true;
                break;
            }
        }
        Ok(())
    })
    .await?;
    match wanted.iter().find(|(.., is_found)| !is_found) {
        Some((name, ..)) => bail!(
            "{} has no document {name:?}, and none from a folder of this name; `toolhold knowledge list --collection \
             {}` shows them",
            collection.name,
            collection.name
        ),
        None => Ok(found),
    }
}
