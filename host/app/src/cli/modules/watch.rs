//! `toolhold modules watch`: an author's second terminal.

use super::list;
use crate::cli::Exit;
use crate::cli::style::{bad, dim, good, plain, warn};
use crate::config::Config;
use crate::host;
use crate::watch::Watch;
use anyhow::Result;
use toolhold_sandbox::{LoadEvent, Registry};

/// Runs until Ctrl-C.
pub async fn watch(config: &Config) -> Result<Exit> {
    let registry = host::registry(config)?;
    let say = |event: LoadEvent| tell(&event);
    host::load(&registry, config, None, &say).await?;
    list::list(&registry, false)?;
    let mut changes = Watch::start(config)?;
    eprintln!("{}", dim("watching; Ctrl-C ends it"));
    loop {
        tokio::select! {
            () = changes.changed() => {
                host::load(&registry, config, None, &say).await?;
                tell_failures(&registry);
            }
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        }
    }
}

fn tell(event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { module, bytes } => {
            eprintln!(
                "{}",
                dim(&format!("compiling {} ({bytes} bytes)", plain(module)))
            );
        }
        LoadEvent::Loaded { module } => println!("{} {}", good("loaded:"), plain(module)),
        LoadEvent::Reloaded { module } => println!("{} {}", good("reloaded:"), plain(module)),
        LoadEvent::Removed { module } => println!("{} {}", warn("removed:"), plain(module)),
        LoadEvent::Failed { .. } => {}
    }
}

fn tell_failures(registry: &Registry) {
    for failed in registry.failures() {
        let text = format!("{}: {}", failed.origin, failed.error);
        eprintln!("{} {}", bad("left out:"), plain(&text));
    }
    for module in registry.modules() {
        let standing = module.standing();
        if !standing.may_run() {
            println!(
                "{} {}: {}",
                warn("disabled:"),
                module.slot,
                plain(&standing.reason())
            );
        }
    }
}
