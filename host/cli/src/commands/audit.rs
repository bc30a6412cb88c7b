//! `toolhold audit`: searches the audit log, and verifies that it was not changed.

use crate::commands::runs::give_back_space;
use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolhold_policy::text;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{Since, date_text};
use toolhold_storage::{AuditEntry, AuditFilter, AuditOrder, PrunedBy, Store};
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify that the log is complete and unchanged.
    Verify {
        /// Hash of the last entry at an earlier verification; it must still be in the log.
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Delete old entries from the begin of the log; a row tells of them, and the log stays genuine.
    Prune {
        /// Only those that were written before then: a time ago, such as 365d, or a date.
        #[arg(long, value_name = "WHEN")]
        older_than: Since,
        /// Delete them; without this option, only their number is printed.
        #[arg(long)]
        yes: bool,
    },
    /// Print entries as JSON lines with their hashes, oldest first.
    Export {
        #[command(flatten)]
        which: EntryFilter,
    },
    /// Print entries for people, oldest first.
    Search {
        /// Text that the entry contains: an argument, a call's id, a digest.
        text: Option<String>,
        #[command(flatten)]
        which: EntryFilter,
        /// Print JSON lines without hashes.
        #[arg(long)]
        json: bool,
    },
}

/// Which entries.
#[derive(Debug, Args)]
pub struct EntryFilter {
    /// Only entries since then: 90m, 2h or 7d ago, or a date such as 2026-11-20 (UTC).
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// Only entries until then, in the same form.
    #[arg(long, value_name = "WHEN")]
    until: Option<Since>,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only entries of the key of this name, or of a user of this machine, such as uid:1000.
    #[arg(long)]
    owner: Option<String>,
    /// Only entries of this run.
    #[arg(long)]
    run: Option<Uuid>,
}

impl EntryFilter {
    fn filter(self, text: Option<String>) -> AuditFilter {
        AuditFilter {
            since_ms: self.since.map(Since::at_ms),
            until_ms: self.until.map(Since::at_ms),
            tool: self.tool,
            owner: self.owner,
            run: self.run,
            text,
        }
    }
}

pub async fn audit(config: &Configuration, command: AuditCommand) -> Result<Exit> {
    let store = host::store(config).await?;
    if let Err(error) = store.audit_interrupted().await {
        let what = "calls that were interrupted since the last look may be missing";
        output::remark(&format!("{what}: {error}"));
    }
    match command {
        AuditCommand::Verify { expect, json } => verify(&store, expect.as_deref(), json).await,
        AuditCommand::Prune { older_than, yes } => prune(&store, older_than, yes).await,
        AuditCommand::Export { which } => {
            each(&store, &which.filter(None), |entry| {
                // Unchanged, because the hash covers exactly this text.
                println!("{{\"entry\":{},\"hash\":\"{}\"}}", entry.text, entry.hash);
            })
            .await
        }
        AuditCommand::Search { text, which, json } => {
            let mut is_found = false;
            let exit = each(&store, &which.filter(text), |entry| {
                is_found = true;
                if json {
                    println!("{}", text::json(&entry.text));
                } else {
                    output::tell(&line(&entry));
                }
            })
            .await?;
            if !is_found {
                output::remark("there is no such entry");
            }
            Ok(exit)
        }
    }
}

/// Entries of one query.
const PAGE_ENTRIES: u32 = 500;

async fn each(
    store: &Store,
    filter: &AuditFilter,
    mut show: impl FnMut(AuditEntry),
) -> Result<Exit> {
    let mut last = 0;
    loop {
        let page = store
            .audited(filter, AuditOrder::After(last), PAGE_ENTRIES)
            .await?;
        let is_last = page.len() < PAGE_ENTRIES as usize;
        for entry in page {
            last = entry.number;
            show(entry);
        }
        if is_last {
            return Ok(Exit::Ok);
        }
    }
}

async fn prune(store: &Store, older_than: Since, yes: bool) -> Result<Exit> {
    let before = older_than.at_ms();
    if !yes {
        let count = store.audit_entries_before(before).await?;
        output::tell(&format!(
            "{} were written before then; toolhold audit export keeps them elsewhere, --yes deletes them",
            style::plural(count, "entry")
        ));
        return Ok(Exit::Ok);
    }
    let gone = store.expire_audit(before, PrunedBy::Person).await?;
    let gone = style::plural(gone, "entry");
    output::tell(&format!("{} {gone}", style::good("deleted:")));
    give_back_space(store).await;
    Ok(Exit::Ok)
}

async fn verify(store: &Store, expect: Option<&str>, is_json: bool) -> Result<Exit> {
    let verified = store.verify_audit(expect).await?;
    let faults: Vec<String> = verified.faults.iter().map(ToString::to_string).collect();
    if is_json {
        let found = json!({
            "entries": verified.entries,
            "redacted": verified.redacted,
            "expired_until": verified.expired_until,
            "head": verified.head,
            "faults": faults,
        });
        output::json_line(&found)?;
    } else {
        for fault in &faults {
            output::tell(&format!(
                "{} {}",
                style::bad("not genuine:"),
                style::line(fault)
            ));
        }
        if faults.is_empty() {
            let redacted = match verified.redacted {
                0 => String::new(),
                count => format!(" ({count} without their texts, which were redacted)"),
            };
            let expired = match verified.expired_until {
                0 => String::new(),
                until => format!(", after entry {until}, the last one that was deleted"),
            };
            println!(
                "{} {} entries{redacted}{expired}, the last with the hash {}",
                style::good("genuine:"),
                verified.entries,
                if verified.head.is_empty() {
                    "-"
                } else {
                    &verified.head
                }
            );
        }
    }
    Ok(Exit::of(faults.is_empty()))
}

/// Time, actor, action, and the remaining members.
fn line(entry: &AuditEntry) -> String {
    let Ok(Value::Object(mut rest)) = serde_json::from_str(&entry.text) else {
        return style::line(&entry.text);
    };
    let mut text = |name: &str| match rest.remove(name) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let at_ms = text("at_ms").parse().unwrap_or_default();
    let (number, owner, action, tool) =
        (text("number"), text("owner"), text("action"), text("tool"));
    format!(
        "{number}  {}  {}  {}  {}",
        date_text(at_ms),
        style::line(&owner),
        style::bold(&style::line(format!("{action} {tool}").trim_end())),
        style::dim(&style::line(&Value::Object(rest).to_string()))
    )
}
