//! `toolhold cache`: how large what can be made again is, and what of it is of no use any more.

use crate::config::shipped;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bytes, dim, line, plural};
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use toolhold_admission::own_work;
use toolhold_devkit::build::{OutdatedTools, remove_outdated};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{Since, now_ms};
use toolhold_sandbox::compile::unused::{self, CacheSize};

#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Print one JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<CacheCommand>,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Remove compiled modules that were not used for a time, and compilers and modules of other versions of this program.
    Prune {
        /// The compiled modules that were last used before then: a time ago, such as 7d, or a date. 0d: all.
        #[arg(long, value_name = "WHEN", default_value = "30d")]
        older_than: Since,
    },
}

/// Folders of the cache, and what is in each.
const PARTS: [(&str, &str); 4] = [
    ("compiled", "compiled modules"),
    ("toolchains", "compilers that builds installed"),
    ("oci", "components that were fetched"),
    ("shipped", "modules that come with this program"),
];

pub async fn cache(config: &Configuration, args: CacheArgs) -> Result<Exit> {
    let folder = config.cache_folder().to_owned();
    match args.command {
        None => {
            let sizes = own_work({
                let folder = folder.clone();
                move || PARTS.map(|(name, _)| size(&folder.join(name)))
            });
            show(&folder, sizes.await?, args.json)
        }
        Some(CacheCommand::Prune { older_than }) => {
            let compiled = host::cache(config).map(|cache| cache.folder().to_owned());
            let compiled =
                compiled.context("the cache cannot be used; toolhold doctor says more")?;
            let unused_for = Duration::from_millis(now_ms().saturating_sub(older_than.at_ms()));
            let pruned = own_work(move || -> io::Result<_> {
                let removed = unused::prune(&compiled, unused_for)?;
                let shipped = shipped::remove_unused(&folder, unused_for)?;
                let tools = remove_outdated(&folder.join("toolchains"))?;
                Ok((removed, shipped, tools))
            });
            let (removed, shipped, tools) = pruned.await?.context("the cache cannot be shrunk")?;
            pruned_shown(removed, &shipped, &tools, args.json)
        }
    }
}

fn show(folder: &Path, sizes: [CacheSize; 4], json: bool) -> Result<Exit> {
    if json {
        let parts: serde_json::Map<_, _> = PARTS
            .iter()
            .zip(sizes)
            .map(|((name, _), size)| {
                let size = json!({"files": size.entries, "bytes": size.bytes});
                ((*name).to_owned(), size)
            })
            .collect();
        output::json(&json!({"folder": folder, "parts": parts}))?;
        return Ok(Exit::Ok);
    }
    println!("{}", line(&folder.display().to_string()));
    for ((name, what), size) in PARTS.iter().zip(sizes) {
        let files = plural(size.entries, "file");
        println!(
            "  {:>10}  {name}  {}",
            bytes(size.bytes),
            dim(&format!("{what}, {files}"))
        );
    }
    output::remark(
        "toolhold cache prune removes what is of no use any more; all of it can be made again",
    );
    Ok(Exit::Ok)
}

fn pruned_shown(
    removed: CacheSize,
    shipped: &[String],
    tools: &OutdatedTools,
    json: bool,
) -> Result<Exit> {
    if json {
        let removed = json!({"files": removed.entries, "bytes": removed.bytes});
        output::json(&json!({
            "compiled": removed,
            "shipped": shipped,
            "toolchains": tools.removed,
        }))?;
        return Ok(Exit::Ok);
    }
    println!(
        "removed {} ({})",
        plural(removed.entries, "compiled module"),
        bytes(removed.bytes)
    );
    for version in shipped {
        println!("removed shipped/{}", line(version));
    }
    for tool in &tools.removed {
        println!("removed {}", line(tool));
    }
    for tool in &tools.busy {
        println!("left {}: another process is installing it", line(tool));
    }
    Ok(Exit::Ok)
}

/// The files below a folder, and their bytes. What is not there, or cannot be read, has none.
fn size(folder: &Path) -> CacheSize {
    let mut size = CacheSize::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Of a link itself.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                size.entries += 1;
                size.bytes = size.bytes.saturating_add(metadata.len());
            }
        }
    }
    size
}
