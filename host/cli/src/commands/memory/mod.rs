//! `toolhold memory`: the facts that agents keep for the user of this machine's terminal, and for the server's keys.

mod forget;
mod list;
mod show;

use crate::exit::Exit;
use crate::terminal::style;
use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};
use std::fmt::Write as _;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::stats::now_ms;
use toolhold_storage::{Fact, FactScope};

#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// List the facts that are found, newest first.
    List(list::FactListArgs),
    /// Print a fact with its history: what it took the place of, and what took its place.
    Show(show::ShowArgs),
    /// Delete the texts of facts.
    Forget(forget::ForgetArgs),
}

pub async fn memory(config: &Configuration, command: MemoryCommand) -> Result<Exit> {
    match command {
        MemoryCommand::List(args) => list::list(config, &args).await,
        MemoryCommand::Show(args) => show::show(config, &args).await,
        MemoryCommand::Forget(args) => forget::forget(config, &args).await,
    }
}

fn value(fact: &Fact) -> Value {
    json!({
        "id": fact.id, "scope": fact.scope.name(), "of": fact.scope.subject(), "text": fact.text,
        "source": fact.source, "confidence": fact.confidence, "created_ms": fact.created_ms,
        "ended_ms": fact.ended_ms, "superseded_by": fact.superseded_by, "forgotten_ms": fact.forgotten_ms,
    })
}

/// The fact's id, scope, age and source, and its text, each line of which is marked.
fn text(fact: &Fact) -> String {
    let ago = |ms: u64| style::ago(now_ms().saturating_sub(ms) / 1_000);
    let scope = match &fact.scope {
        FactScope::User => "user".to_owned(),
        other => format!("{} {}", other.name(), style::line(other.subject())),
    };
    let mut about = format!(
        "{scope}, {}, by {}",
        ago(fact.created_ms),
        style::line(&fact.source)
    );
    if fact.confidence < 1.0 {
        let _ = write!(about, ", confidence {}", fact.confidence);
    }
    match (fact.forgotten_ms, fact.superseded_by, fact.ended_ms) {
        (Some(ms), ..) => {
            let _ = write!(about, ", forgotten {}", ago(ms));
        }
        (None, Some(by), Some(ms)) => {
            let _ = write!(about, ", superseded {} by {by}", ago(ms));
        }
        _ => {}
    }
    let mut text = format!("{}  {}", fact.id, style::dim(&about));
    for line in fact.text.lines() {
        text.push_str("\n  ");
        text.push_str(&style::line(line));
    }
    text
}
