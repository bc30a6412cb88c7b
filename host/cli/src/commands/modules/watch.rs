//! `toolhold modules watch`: builds and loads what an author changes.

use super::list;
use super::sources::Sources;
use crate::commands::{build, serving};
use crate::config::{Loaded, ReloadCause};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, bytes, chain, good, line, warn};
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};
use toolhold_admission::own_work;
use toolhold_runtime::host;
use toolhold_runtime::watch::ConfigWatch;
use toolhold_sandbox::base::BaseRunner;
use toolhold_sandbox::{LoadEvent, Registry};

pub const ABOUT: &str = "Build and load modules whenever they change, and report the result; meant for authors of \
modules.

When a file of a named module's source changes, the module is built as `toolhold build --dev` does it, which runs its \
toolchain outside of the sandbox, and loaded again. A build whose source changes meanwhile is stopped and begins anew. \
Where that fails, the reason is printed and the component from \
before stays in use. Without names, nothing is built: components that change are loaded. A changed module waits until \
you approve it, as ever; --trust-all runs it.";

/// Runs until it is dropped, or fails.
pub async fn watch(loaded: &Loaded, names: &[String], timeout: Duration) -> Result<Exit> {
    let config = &loaded.configuration;
    let registry = host::registry(config)?;
    let dev = build::base_runner(config)?;
    let mut sources = Sources::begin(config, &registry, names).await?;
    let (mut edits, changes) = (serving::watch(loaded), serving::watch(loaded));
    build_changed(loaded, &mut sources, &mut edits, timeout, &dev).await?;
    let only = sources.names();
    host::load(&registry, config, only.as_deref(), &|event| tell(&event)).await?;
    list::list(&registry, false)?;
    output::remark("watching; Ctrl-C ends it");
    // A build takes as long as its toolchain, and other modules are loaded meanwhile. A finished build is a change.
    tokio::select! {
        ended = building(loaded, sources, edits, timeout, &dev) => ended,
        ended = loading(loaded, &registry, only.as_deref(), changes) => ended,
    }
}

async fn building(
    loaded: &Loaded,
    mut sources: Sources,
    mut edits: ConfigWatch,
    timeout: Duration,
    dev: &BaseRunner,
) -> Result<Exit> {
    loop {
        edits.changed().await;
        build_changed(loaded, &mut sources, &mut edits, timeout, dev).await?;
    }
}

/// Builds until no source has changed. A build whose source changes meanwhile is stopped: what it would make is wanted no
/// more.
async fn build_changed(
    loaded: &Loaded,
    sources: &mut Sources,
    edits: &mut ConfigWatch,
    timeout: Duration,
    dev: &BaseRunner,
) -> Result<()> {
    loop {
        let changed = sources.changed().await?;
        if changed.is_empty() {
            return Ok(());
        }
        for folder in changed {
            loop {
                tokio::select! {
                    () = rebuilt(loaded, &folder, timeout, dev) => break,
                    edited = edited(sources, &folder, edits) => edited?,
                }
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                output::remark(&line(&format!(
                    "{name}: its source changed; building it anew"
                )));
            }
            sources.built(&folder).await?;
        }
    }
}

/// Completes when the source of a module that is built changed once more.
async fn edited(sources: &mut Sources, folder: &Path, edits: &mut ConfigWatch) -> Result<()> {
    while !sources.edited(folder).await? {
        edits.changed().await;
    }
    Ok(())
}

async fn loading(
    loaded: &Loaded,
    registry: &Registry,
    only: Option<&[String]>,
    mut changes: ConfigWatch,
) -> Result<Exit> {
    let mut told = troubles(registry);
    loop {
        changes.changed().await;
        host::load(registry, &loaded.configuration, only, &|event| tell(&event)).await?;
        let now = troubles(registry);
        for trouble in now.iter().filter(|trouble| !told.contains(trouble)) {
            output::say(trouble);
        }
        told = now;
    }
}

/// Builds one module, and tells the outcome. Where it fails, the component from before stays in its place.
async fn rebuilt(loaded: &Loaded, folder: &Path, timeout: Duration, dev: &BaseRunner) {
    let begun = Instant::now();
    let sources = build::SourceReview::Unread;
    let built = async {
        // Grants may have changed since the start: whether a module may write the sources is asked of those of now.
        let now = loaded.clone();
        let policy = own_work(move || now.policy_again(ReloadCause::Change)).await??;
        let config = &loaded.configuration;
        build::one(config, Some(policy), folder, timeout, Some(dev), sources).await
    };
    match built.await {
        Ok(built) => output::tell(&format!(
            "{} {} ({}{}) in {:.1} s",
            good("built:"),
            line(&built.module),
            bytes(built.bytes),
            build::dev_mark(&built),
            begun.elapsed().as_secs_f64()
        )),
        Err(error) => output::say(&format!(
            "{} {}: {}",
            bad("not built:"),
            line(&folder.display().to_string()),
            chain(&error)
        )),
    }
}

fn tell(event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { module, bytes } => {
            output::remark(&format!("compiling {module} ({bytes} bytes)"));
        }
        LoadEvent::Loaded { module } => {
            output::tell(&format!("{} {}", good("loaded:"), line(module)));
        }
        LoadEvent::Reloaded { module } => {
            output::tell(&format!("{} {}", good("reloaded:"), line(module)));
        }
        LoadEvent::Removed { module } => {
            output::tell(&format!("{} {}", warn("removed:"), line(module)));
        }
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
        let pin_state = module.pin_state();
        let reason = line(&pin_state.reason());
        (!pin_state.may_run()).then(|| format!("{} {}: {reason}", warn("disabled:"), module.slot))
    });
    let notes = modules.iter().flat_map(|module| {
        let notes = module.notes.iter();
        notes.map(|note| format!("{} {}: {note}", warn("note:"), module.slot))
    });
    failed.chain(disabled).chain(notes).collect()
}
