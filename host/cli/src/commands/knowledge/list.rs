//! `toolhold knowledge list`.

use super::OWNER;
use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::now_ms;
use toolhold_storage::{Collection, CollectionDocument, Store};

/// What is listed, and how.
#[derive(Debug, Args)]
pub struct CollectionListArgs {
    /// List the documents of this collection, newest first.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Collections that are listed at most.
const MAX_COLLECTIONS: u32 = 1_000;
/// Documents of one query.
const PAGE_DOCUMENTS: u32 = 500;

pub async fn list(config: &Configuration, args: &CollectionListArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    if let Some(name) = &args.collection {
        let collection = super::collection(&store, name).await?;
        each_document(&store, &collection, |document| show(document, args.json)).await?;
        return Ok(Exit::Ok);
    }
    let mut collections = store.collections(OWNER, MAX_COLLECTIONS + 1).await?;
    let has_more = collections.len() > MAX_COLLECTIONS as usize;
    collections.truncate(MAX_COLLECTIONS as usize);
    for (collection, _) in &collections {
        if args.json {
            output::json_line(&json!({
                "name": collection.name, "documents": collection.documents,
                "passages": collection.passages, "bytes": collection.bytes,
                "keep_days": collection.keep_days, "created_ms": collection.created_ms,
            }))?;
        } else {
            let mut holds = format!(
                "{}, {}, {}",
                style::plural(collection.documents, "document"),
                style::plural(collection.passages, "passage"),
                style::bytes(collection.bytes)
            );
            if let Some(days) = collection.keep_days {
                let _ = write!(holds, ", each kept {}", style::plural(days.get(), "day"));
            }
            let name = style::bold(&style::line(&collection.name));
            output::tell(&format!("{name}  {}", style::dim(&holds)));
        }
    }
    if has_more {
        output::remark(&format!(
            "these are the first {MAX_COLLECTIONS}; `toolhold knowledge list --collection NAME` shows any other"
        ));
    }
    if collections.is_empty() {
        output::remark("no collections; toolhold knowledge add PATH");
    }
    Ok(Exit::Ok)
}

/// Shows all documents of a collection, newest first, a page at a time.
pub async fn each_document(
    store: &Store,
    collection: &Collection,
    mut show: impl FnMut(&CollectionDocument) -> Result<()>,
) -> Result<()> {
    let mut before = None;
    loop {
        let page = store.documents(collection, before, PAGE_DOCUMENTS).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        before = Some(last.id);
        for document in &page {
            show(document)?;
        }
    }
}

fn show(document: &CollectionDocument, is_json: bool) -> Result<()> {
    if is_json {
        return output::json_line(&json!({
            "id": document.id, "source": document.source, "title": document.title,
            "media_type": document.media_type, "digest": document.digest, "labels": document.labels,
            "bytes": document.bytes, "passages": document.passages, "created_ms": document.created_ms,
        }));
    }
    let age = style::ago(now_ms().saturating_sub(document.created_ms) / 1_000);
    let labels = document.labels.iter();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("  {name}={value}"))
        .collect();
    let holds = format!(
        "{age:>11}  {}, {}{}",
        style::plural(document.passages, "passage"),
        style::bytes(document.bytes),
        style::line(&labels.concat())
    );
    let source = style::line(&document.source);
    output::tell(&format!(
        "{}  {source}  {}",
        document.id,
        style::dim(&holds)
    ));
    Ok(())
}
