//! `toolhold memory show`.

use crate::exit::Exit;
use crate::terminal::output;
use anyhow::{Result, bail};
use clap::Args;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use uuid::Uuid;

/// What is shown.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Id of the fact.
    fact: Uuid,
    /// It belongs to this API key [default: to this terminal].
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    key: String,
    /// Print one JSON object per fact and line, oldest first.
    #[arg(long)]
    json: bool,
}

/// Facts of one history: as many as an owner may have.
const MAX_HISTORY: u32 = 10_000;

pub async fn show(config: &Configuration, args: &ShowArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let history = store
        .fact_history(&args.key, args.fact, MAX_HISTORY)
        .await?;
    if history.is_empty() {
        bail!(
            "there is no fact {}; `toolhold memory list` shows them",
            args.fact
        );
    }
    for fact in &history {
        if args.json {
            output::json_line(&super::value(fact))?;
        } else {
            output::tell(&super::text(fact));
        }
    }
    Ok(Exit::Ok)
}
