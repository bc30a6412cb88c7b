//! `toolhold modules watch`: reports changes of the modules folder to an author.

use super::list;
use crate::commands::serving;
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, good, line, warn};
use anyhow::Result;
use toolhold_runtime::host;
use toolhold_sandbox::{LoadEvent, Registry};

/// Runs until Ctrl-C.
pub async fn watch(loaded: &Loaded) -> Result<Exit> {
    let config = &loaded.configuration;
    let registry = host::registry(config)?;
    let say = |event: LoadEvent| tell(&event);
    host::load(&registry, config, None, &say).await?;
    list::list(&registry, false)?;
    let mut changes = serving::watch(loaded);
    output::remark("watching; Ctrl-C ends it");
    let mut told = troubles(&registry);
    loop {
        tokio::select! {
            _ = changes.changed() => {
                host::load(&registry, config, None, &say).await?;
                let now = troubles(&registry);
                for trouble in now.iter().filter(|trouble| !told.contains(trouble)) {
                    eprintln!("{trouble}");
                }
                told = now;
            }
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        }
    }
}

fn tell(event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { module, bytes } => {
            output::remark(&format!("compiling {module} ({bytes} bytes)"));
        }
        LoadEvent::Loaded { module } => println!("{} {}", good("loaded:"), line(module)),
        LoadEvent::Reloaded { module } => println!("{} {}", good("reloaded:"), line(module)),
        LoadEvent::Removed { module } => println!("{} {}", warn("removed:"), line(module)),
        LoadEvent::Failed { .. } => {}
    }
}

/// Modules that could not be loaded or may not run, and what is odd about the others.
fn troubles(registry: &Registry) -> Vec<String> {
    let failures = registry.failures();
    let failed = failures.iter().map(|failed| {
        let text = format!("{}: {}", failed.origin, failed.error);
        format!("{} {}", bad("left out:"), line(&text))
    });
    let modules = registry.modules();
    let disabled = modules.iter().filter_map(|module| {
        let standing = module.standing();
        let reason = line(&standing.reason());
        (!standing.may_run()).then(|| format!("{} {}: {reason}", warn("disabled:"), module.slot))
    });
    let notes = modules.iter().flat_map(|module| {
        let notes = module.notes.iter();
        notes.map(|note| format!("{} {}: {note}", warn("note:"), module.slot))
    });
    failed.chain(disabled).chain(notes).collect()
}
