//! `toolhold memory forget`.

use crate::commands::record::{STILL_IN_LOG, taken_out_of};
use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_storage::ForgetExtent;
use uuid::Uuid;

/// What is deleted.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// Ids of facts.
    #[arg(required = true, value_name = "FACT")]
    facts: Vec<Uuid>,
    /// Delete the whole history of each, too: what it took the place of, and what took its place.
    #[arg(long)]
    history: bool,
    /// They belong to this API key [default: to this terminal].
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    key: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub async fn forget(config: &Configuration, args: &ForgetArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let extent = if args.history {
        ForgetExtent::Chain
    } else {
        ForgetExtent::Fact
    };
    let (mut forgotten, mut is_in_log) = (Vec::new(), false);
    for fact in &args.facts {
        match store.forget(&args.key, *fact, extent, "person").await? {
            Some(done) => {
                forgotten.extend(done.facts);
                is_in_log = done.is_in_log;
            }
            // One of the history of another.
            None if forgotten.contains(fact) => {}
            None => bail!(
                "there is no fact {fact}, or it was forgotten before; `toolhold memory list` shows them"
            ),
        }
    }
    let redacted = Box::pin(store.redact_records()).await?;
    is_in_log |= redacted.is_in_log;
    if is_in_log {
        output::remark(STILL_IN_LOG);
    }
    if args.json {
        output::json_line(&json!({
            "facts": forgotten, "records": redacted.records, "in_log": is_in_log,
        }))?;
        return Ok(Exit::Ok);
    }
    output::tell(&format!(
        "{} {}{}",
        style::good("forgotten:"),
        style::plural(forgotten.len() as u64, "fact"),
        taken_out_of(redacted.records)
    ));
    Ok(Exit::Ok)
}
