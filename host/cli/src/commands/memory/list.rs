//! `toolhold memory list`.

use crate::exit::Exit;
use crate::terminal::output;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_storage::FactScope;

/// What is listed, and how.
#[derive(Debug, Args)]
pub struct FactListArgs {
    /// List the facts of this scope alone [default: all].
    #[arg(long, value_enum)]
    scope: Option<FactScopeName>,
    /// The session's id, or the agent's name, that the scope is of.
    #[arg(long, value_name = "NAME", requires = "scope")]
    of: Option<String>,
    /// List the facts of this API key [default: those of this terminal].
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    key: String,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// A scope on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FactScopeName {
    Session,
    User,
    Agent,
}

/// Facts of one query.
const PAGE_FACTS: u32 = 500;

pub async fn list(config: &Configuration, args: &FactListArgs) -> Result<Exit> {
    let exact = match (args.scope, &args.of) {
        (Some(FactScopeName::User), None) => Some(FactScope::User),
        (Some(FactScopeName::User), Some(_)) => bail!("--of is for sessions and agents"),
        (Some(FactScopeName::Session), Some(of)) => Some(FactScope::Session(of.clone())),
        (Some(FactScopeName::Agent), Some(of)) => Some(FactScope::Agent(of.clone())),
        (_, None) | (None, Some(_)) => None,
    };
    let kind = args.scope.map(|scope| match scope {
        FactScopeName::Session => "session",
        FactScopeName::User => "user",
        FactScopeName::Agent => "agent",
    });
    let store = host::store(config).await?;
    let (mut before, mut count) = (None, 0_u64);
    loop {
        let page = store
            .facts(&args.key, exact.as_ref(), before, PAGE_FACTS)
            .await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        for fact in &page {
            if kind.is_some_and(|kind| kind != fact.scope.name()) {
                continue;
            }
            count += 1;
            if args.json {
                output::json_line(&super::value(fact))?;
            } else {
                output::tell(&super::text(fact));
            }
        }
    }
    if count == 0 {
        output::remark("no facts; the tool knowledge.remember keeps them");
    }
    Ok(Exit::Ok)
}
