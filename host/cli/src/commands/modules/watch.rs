//! `toolhold modules watch`: builds and loads what an author changes.

use super::list;
use crate::commands::{build, serving};
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, bytes, chain, good, line, warn};
use anyhow::{Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use toolhold_devkit::build::SourceStamp;
use toolhold_runtime::host;
use toolhold_sandbox::{LoadEvent, Registry};

pub const ABOUT: &str = "Build and load modules whenever they change, and report the result; meant for authors of \
modules.

When a file of a module's source changes, the module is built as `toolhold build` does it, which runs its toolchain \
outside of the sandbox, and loaded again. Where that fails, the reason is printed and the component from before stays in \
use. A changed module waits for your approval as ever; --trust-all runs it.";

/// Runs until Ctrl-C.
pub async fn watch(loaded: &Loaded, names: &[String]) -> Result<Exit> {
    tokio::select! {
        ended = watched(loaded, names) => ended,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

async fn watched(loaded: &Loaded, names: &[String]) -> Result<Exit> {
    let config = &loaded.configuration;
    let only = (!names.is_empty()).then_some(names);
    let mut sources = Sources::begin(config.modules_folder().to_owned(), names).await?;
    let mut changes = serving::watch(loaded);
    let build = async |sources: &mut Sources| {
        for folder in sources.changed().await? {
            rebuilt(loaded, &folder).await;
        }
        anyhow::Ok(())
    };
    build(&mut sources).await?;
    let registry = host::registry(config)?;
    let say = |event: LoadEvent| tell(&event);
    host::load(&registry, config, only, &say).await?;
    list::list(&registry, false)?;
    output::remark("watching; Ctrl-C ends it");
    let mut told = troubles(&registry);
    loop {
        changes.changed().await;
        build(&mut sources).await?;
        host::load(&registry, config, only, &say).await?;
        let now = troubles(&registry);
        for trouble in now.iter().filter(|trouble| !told.contains(trouble)) {
            eprintln!("{trouble}");
        }
        told = now;
    }
}

/// Builds one module, and tells the outcome. Where it fails, the component from before stays in its place.
async fn rebuilt(loaded: &Loaded, folder: &Path) {
    let begun = Instant::now();
    match build::one(&loaded.configuration, folder).await {
        Ok(built) => println!(
            "{} {} ({}) in {:.1} s",
            good("built:"),
            line(&built.module),
            bytes(built.bytes),
            begun.elapsed().as_secs_f64()
        ),
        Err(error) => eprintln!(
            "{} {}: {}",
            bad("not built:"),
            line(&folder.display().to_string()),
            chain(&error)
        ),
    }
}

/// The modules that have a source, each with the state in which it was last seen.
struct Sources {
    modules: PathBuf,
    /// Empty: all of the folder.
    names: Vec<String>,
    /// `None`: what is wrong with it was told.
    seen: HashMap<PathBuf, Option<SourceStamp>>,
}

impl Sources {
    /// What is there is taken for built. Of the modules that were named, those whose component is missing or older
    /// than their source have changed.
    async fn begin(modules: PathBuf, names: &[String]) -> Result<Self> {
        let mut sources = Self {
            modules,
            names: names.to_vec(),
            seen: HashMap::new(),
        };
        for name in names {
            let folder = sources.modules.join(name);
            if !folder.is_dir() {
                bail!(
                    "there is no module {name:?}: {} is not there",
                    folder.display()
                );
            }
        }
        for (folder, stamp) in sources.now().await? {
            let is_due = !names.is_empty()
                && stamp
                    .as_ref()
                    .is_some_and(SourceStamp::is_newer_than_component);
            if !is_due {
                sources.seen.insert(folder, stamp);
            }
        }
        Ok(sources)
    }

    /// The folders whose source changed since this was asked.
    async fn changed(&mut self) -> Result<Vec<PathBuf>> {
        let now = self.now().await?;
        let mut changed = Vec::new();
        for (folder, stamp) in &now {
            if stamp.is_some() && self.seen.get(folder) != Some(stamp) {
                changed.push(folder.clone());
            }
        }
        changed.sort();
        self.seen = now;
        Ok(changed)
    }

    async fn now(&self) -> Result<HashMap<PathBuf, Option<SourceStamp>>> {
        let (modules, names) = (self.modules.clone(), self.names.clone());
        let had: Vec<_> = self.seen.keys().cloned().collect();
        let listed = tokio::task::spawn_blocking(move || {
            let mut listed = HashMap::new();
            for entry in fs::read_dir(&modules).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !names.is_empty() && !names.contains(&name) {
                    continue;
                }
                let folder = modules.join(&name);
                match SourceStamp::of(&folder) {
                    Ok(None) => {}
                    Ok(stamp) => {
                        listed.insert(folder, stamp);
                    }
                    Err(error) => {
                        if !had.contains(&folder) {
                            eprintln!("{} {}", bad("not watched:"), line(&error.to_string()));
                        }
                        listed.insert(folder, None);
                    }
                }
            }
            listed
        });
        Ok(listed.await?)
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
