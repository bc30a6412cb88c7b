//! `cargo xtask prose`: counts signs of prose that readers have to read twice, in doc comments, names of tests and
//! documents. Each crate has an accepted number of each sign, which only sinks.

mod accepted;
mod added;
mod change;
mod check;
mod files;
mod find;
mod markdown;
mod opening;
mod rust;
mod sign;
mod unit;
mod words;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::{narrate, project};
use accepted::SignCounts;
use sign::ProseFinding;

#[derive(Args, Debug)]
#[command(
    after_help = "A sign is a form that readers mostly have to read twice. Counts are by crate and sign; \
    host/xtask/prose.toml has the accepted ones, which must be exact and never rise."
)]
pub struct ProseArguments {
    /// List all findings of this crate: a folder of host/, or tests, modules, docs
    #[arg(value_name = "CRATE")]
    krate: Option<String>,
    /// List only findings on lines that were added since this revision; fail if there are any
    #[arg(long, value_name = "BASE", conflicts_with = "krate")]
    change: Option<String>,
    /// Write lower numbers into host/xtask/prose.toml; higher ones are refused
    #[arg(long, conflicts_with_all = ["krate", "change"])]
    accept: bool,
}

pub fn run(arguments: &ProseArguments) -> Result<ExitCode> {
    let root = project::root();
    let files = files::all(&root)?;
    if let Some(base) = &arguments.change {
        let findings = change::findings(&root, &files, base)?;
        print(&findings.iter().collect::<Vec<_>>());
        if findings.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let count = findings.len();
        bail!("{count} findings on lines that were added since {base}");
    }
    let findings = find::all(&root, &files)?;
    let crates = files.iter().map(|file| files::crate_of(&file.path));
    let counts = SignCounts::of(crates, &findings);
    if let Some(krate) = &arguments.krate {
        list(krate, &counts, &findings)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.accept {
        check::accept(&root, &counts)?;
    } else {
        check::check(&root, &counts, &findings)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(krate: &str, counts: &SignCounts, findings: &[ProseFinding]) -> Result<()> {
    if !counts.has(krate) {
        let crates: Vec<_> = counts.crates().collect();
        bail!("no crate {krate:?}; there are {}", crates.join(", "));
    }
    let of_crate = |finding: &&ProseFinding| files::crate_of(&finding.path) == krate;
    let findings: Vec<_> = findings.iter().filter(of_crate).collect();
    print(&findings);
    Ok(())
}

/// Prints findings, and the advice of each sign among them once.
fn print(findings: &[&ProseFinding]) {
    for finding in findings {
        narrate::answer(&finding.to_string());
    }
    let signs: BTreeSet<_> = findings.iter().map(|finding| finding.sign).collect();
    for sign in signs {
        narrate::line(&format!("{sign}: {}", sign.advice()));
    }
}
