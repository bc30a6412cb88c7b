//! `toolhold knowledge search`.

use super::{DocumentLabel, OWNER};
use crate::exit::Exit;
use crate::terminal::output::NoteMark;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use toolhold_knowledge::{By, FoundPassage, SearchQuery, Settings, WithoutVectors};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::{host, knowledge};
use toolhold_storage::{Collection, Store};

/// What is looked for, and where.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Words, or a question; several are ways to put one question. A passage need not have all of its words.
    #[arg(required = true, value_name = "TEXT")]
    texts: Vec<String>,
    /// Search this collection; may be repeated [default: all].
    #[arg(long = "collection", value_name = "NAME")]
    collections: Vec<String>,
    /// Only documents with this label; may be repeated, and a document must have all.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<DocumentLabel>,
    /// Find at most N passages.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    most: u32,
    /// Find at most N passages of one document.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    most_of_document: Option<u32>,
    /// Find passages of at most N characters together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    most_characters: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Collections of one search.
const MAX_COLLECTIONS: u32 = 100;

pub async fn search(config: &Configuration, args: SearchArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let collections = collections(&store, &args.collections).await?;
    let configured = knowledge::open(config, store, Settings::default()).await?;
    let question = SearchQuery {
        texts: args.texts,
        by: By::Both,
        labels: super::by_name(args.labels),
        most: usize::try_from(args.most)?,
        most_characters: args.most_characters.map(usize::try_from).transpose()?,
        most_of_document: args.most_of_document.map(usize::try_from).transpose()?,
    };
    let knowledge = &configured.knowledge;
    let found = knowledge.search(OWNER, &collections, &question).await?;
    if let Some(WithoutVectors::Failed(error)) = &found.without_vectors {
        let text = format!("no vector was made of the question: {error}");
        output::note(NoteMark::Warn("note:"), &text);
    }
    if args.json {
        let passages: Vec<_> = found
            .passages
            .iter()
            .map(|it| value(it, &collections))
            .collect();
        let found_by: &[&str] = match found.without_vectors {
            None => &["words", "vectors"],
            Some(_) => &["words"],
        };
        output::json(&json!({"found_by": found_by, "passages": passages}))?;
        return Ok(Exit::Ok);
    }
    for passage in &found.passages {
        output::tell(&text(passage, &collections));
    }
    if found.passages.is_empty() {
        output::remark(
            "no passage has any of these words; `toolhold knowledge list` shows the collections",
        );
    }
    if found.without_vectors.is_some() {
        super::note_words_alone(configured.vectors.as_ref());
    }
    Ok(Exit::Ok)
}

/// # Errors
/// There is none of a name, or there are more than one search may have: nothing is left out in silence.
async fn collections(store: &Store, names: &[String]) -> Result<Vec<Collection>> {
    if names.len() > MAX_COLLECTIONS as usize {
        bail!(
            "a search may have {MAX_COLLECTIONS} collections, and these are {}",
            names.len()
        );
    }
    if names.is_empty() {
        let all = store
            .default_collections(OWNER, MAX_COLLECTIONS + 1)
            .await?;
        if all.len() > MAX_COLLECTIONS as usize {
            bail!(
                "there are more than {MAX_COLLECTIONS} collections, and a search may have no more: name them with \
                 --collection"
            );
        }
        return Ok(all);
    }
    let mut found = Vec::new();
    for name in names {
        found.push(super::collection(store, name).await?);
    }
    Ok(found)
}

fn name_of<'a>(found: &FoundPassage, collections: &'a [Collection]) -> &'a str {
    let own = |it: &&Collection| it.id == found.document.collection;
    collections.iter().find(own).map_or("", |it| &it.name)
}

fn value(found: &FoundPassage, collections: &[Collection]) -> serde_json::Value {
    let (passage, document) = (&found.passage, &found.document);
    json!({
        "id": passage.id, "document": document.id, "collection": name_of(found, collections),
        "source": document.source, "labels": document.labels, "number": passage.number,
        "starts": passage.starts, "ends": passage.ends, "heading": passage.heading, "text": passage.text,
    })
}

/// `passage 7  /notes/fees.md, bytes 20 to 94  (documents)  Fees › Cards`, and its text, each line of which is marked.
fn text(found: &FoundPassage, collections: &[Collection]) -> String {
    let (passage, document) = (&found.passage, &found.document);
    let source = style::bold(&style::line(&document.source));
    let collection = style::line(name_of(found, collections));
    let mut place = format!(
        "bytes {} to {}  ({collection})",
        passage.starts, passage.ends
    );
    if !passage.heading.is_empty() {
        let headings: Vec<String> = passage.heading.lines().map(style::readable_line).collect();
        let _ = write!(place, "  {}", headings.join(" › "));
    }
    let mut text = format!("passage {}  {source}  {}", passage.id, style::dim(&place));
    for line in passage.text.lines() {
        let _ = write!(text, "\n  {}", style::readable_line(line));
    }
    text
}
