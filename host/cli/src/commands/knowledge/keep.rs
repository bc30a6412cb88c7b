//! `toolhold knowledge keep`.

use super::OWNER;
use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::Result;
use clap::Args;
use std::num::NonZeroU32;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;

/// How long documents are kept.
#[derive(Debug, Args)]
pub struct KeepArgs {
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// Days after which a document is deleted, counted from when it was added.
    #[arg(value_name = "DAYS", required_unless_present = "forever")]
    days: Option<NonZeroU32>,
    /// Delete no document by its age.
    #[arg(long, conflicts_with = "days")]
    forever: bool,
}

pub async fn keep(config: &Configuration, args: &KeepArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let mut collection = super::collection(&store, &args.collection).await?;
    store
        .keep_documents_for(OWNER, &collection, args.days)
        .await?;
    collection.keep_days = args.days;
    super::expire(&store, &collection).await;
    let kept = match args.days {
        Some(days) => style::plural(days.get(), "day"),
        None => "for ever".to_owned(),
    };
    output::tell(&format!(
        "{} documents of {} are kept {kept}",
        style::good("settled:"),
        collection.name
    ));
    Ok(Exit::Ok)
}
