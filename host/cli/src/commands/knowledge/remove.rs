//! `toolhold knowledge remove`.

use super::list::each_document;
use super::{DEFAULT_COLLECTION, OWNER};
use crate::commands::record::taken_out_of;
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
    /// Delete all documents of the collection, by --all or by a folder that all are from; without this option, only
    /// their number is printed.
    #[arg(long)]
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
            return would_delete(&args, collection.documents);
        }
        store.delete_collection(OWNER, &collection).await?;
        collection.documents
    } else {
        let named = named(&store, &collection, &args.documents).await?;
        if named.are_all_by_folder && !args.yes {
            return would_delete(&args, named.documents.len() as u64);
        }
        let mut deleted = 0;
        for document in named.documents {
            deleted += u64::from(store.delete_document(OWNER, &collection, document).await?);
        }
        deleted
    };
    super::expire(&store, &collection).await;
    // Also what was left staged, now and not after a day: it may hold the same text.
    let removal = store.remove_gone_passages(now_ms()).await?;
    let passages = removal.passages;
    super::note_log(&removal);
    if args.json {
        output::json_line(&json!({
            "documents": documents, "passages": passages, "records": removal.records, "in_log": removal.is_in_log,
        }))?;
        return Ok(Exit::Ok);
    }
    output::tell(&format!(
        "{} {}; {} removed from the database{}",
        style::good("deleted:"),
        style::plural(documents, "document"),
        style::plural(passages, "passage"),
        taken_out_of(removal.records)
    ));
    Ok(Exit::Ok)
}

/// Says what --yes would delete.
fn would_delete(args: &RemoveArgs, documents: u64) -> Result<Exit> {
    if args.json {
        output::json_line(&json!({"documents": 0, "passages": 0, "would_delete": documents}))?;
    } else {
        output::tell(&format!(
            "{} of {} would be deleted, and no other is there; --yes deletes them",
            style::plural(documents, "document"),
            args.collection
        ));
    }
    Ok(Exit::Ok)
}

/// The documents that are meant.
struct NamedDocuments {
    documents: Vec<Uuid>,
    /// Whether the collection has no others, and not each of them was named itself: `.` and `/` say less than they do.
    are_all_by_folder: bool,
}

/// # Errors
/// One of them is not in the collection: nothing is deleted then.
async fn named(store: &Store, collection: &Collection, names: &[String]) -> Result<NamedDocuments> {
    let mut wanted = Vec::new();
    for name in names {
        let id = name.parse::<Uuid>().ok();
        wanted.push((name, id, super::absolute(Path::new(name))?, false));
    }
    let mut found = Vec::new();
    let (mut is_by_folder, mut are_all) = (false, true);
    each_document(store, collection, |document: &CollectionDocument| {
        let source = Path::new(&document.source);
        let (mut is_meant, mut is_itself) = (false, false);
        // All names, though one is enough: each must be of a document.
        for (_, id, path, is_found) in &mut wanted {
            let is_this = *id == Some(document.id) || source == path.as_path();
            if is_this || source.starts_with(&*path) {
                *is_found = true;
                is_meant = true;
                is_itself |= is_this;
            }
        }
        if is_meant {
            found.push(document.id);
            is_by_folder |= !is_itself;
        } else {
            are_all = false;
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
        None => Ok(NamedDocuments {
            documents: found,
            are_all_by_folder: are_all && is_by_folder,
        }),
    }
}
