//! The modules of a command: loaded while a person sees that it takes time, and those that are missing named.

use crate::commands::revocations;
use crate::config::{Loaded, most_similar};
use crate::terminal::output::{NoteMark, note, note_command};
use crate::terminal::progress::Loading;
use anyhow::{Result, bail};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use toolhold_policy::is_name;
use toolhold_policy::text::shell_word;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::watch::ConfigDigests;
use toolhold_sandbox::{LoadError, Registry};

/// Maximum entries of the modules folder that are compared with a name that is not there.
const MAX_ENTRIES: usize = 10_000;

/// A registry with all modules, or with those that `only` names.
pub async fn modules(config: &Configuration, only: Option<&[String]>) -> Result<Registry> {
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, only, &|event| loading.on_event(event)).await?;
    check_names(config, &registry, only)?;
    Ok(registry)
}

/// Returns [`modules`] for a command that runs them. Revocations end their calls.
pub async fn running_modules(
    loaded: &Loaded,
    config: &Configuration,
    only: Option<&[String]>,
) -> Result<Registry> {
    let seen = ConfigDigests::now(&loaded.files());
    let registry = modules(config, only).await?;
    revocations::heed(loaded, &registry, seen);
    Ok(registry)
}

/// The modules of tools, or modules, that are named so: `calc` of `calc.add` and of `calc@1.2.add`.
pub fn modules_of(tools: &[String]) -> Vec<String> {
    let module = |tool: &String| tool.split(['.', '@']).next().unwrap_or_default().to_owned();
    tools.iter().map(module).collect()
}

/// Holds the module names of the command line and of the configuration against the modules that are there. `only`: those
/// that the command needs.
///
/// What flags give (`--dir`, `--env`) must reach its module, or the command ends before it does anything: a run without
/// the grant would spend tokens on calls that fail. A table `[module.NAME]` may wait for a module that comes later, so
/// one that seems mistyped is a note.
///
/// # Errors
/// A grant of the command line cannot be given, or its module's name is nearly that of another one.
pub fn check_names(
    config: &Configuration,
    registry: &Registry,
    only: Option<&[String]>,
) -> Result<()> {
    let there = Names::of(config, registry);
    for name in config.given_by_flags() {
        let failures = registry.failures();
        let failed = failures.iter().find(|failed| {
            failed.name.raw() == name && matches!(failed.error, LoadError::Grant { .. })
        });
        if let Some(failed) = failed {
            bail!("the module {name:?}: {}", failed.error);
        }
        if there.has(name) {
            continue;
        }
        match there.meant_by(name, only) {
            Some(meant) => bail!(
                "--dir or --env names the module {name:?}, which is not there; did you mean {meant:?}?"
            ),
            // It may be loaded later, by a path or a reference.
            None => note(
                NoteMark::Warn("note:"),
                &format!(
                    "--dir or --env names the module {name:?}, which is not in the modules folder"
                ),
            ),
        }
    }
    for name in config.configured_modules().filter(|name| !there.has(name)) {
        if let Some(meant) = there.meant_by(name, only) {
            let text = format!("[module.{name}] is about no module; did you mean {meant:?}?");
            note(NoteMark::Warn("note:"), &text);
        }
    }
    Ok(())
}

/// The module whose name is most like `name`: one that is loaded, or that lies in the modules folder.
pub fn similar(config: &Configuration, registry: &Registry, name: &str) -> Option<String> {
    let there = Names::of(config, registry);
    there.meant_by(name, None).map(str::to_owned)
}

/// The names of the modules that are loaded, could not be, or lie in the modules folder, and of those that come with this
/// program.
struct Names<'a> {
    config: &'a Configuration,
    present: BTreeSet<String>,
    /// Listed for the first name that no other module has: their folder is megabytes that are compared first.
    shipped: OnceCell<BTreeSet<String>>,
}

impl<'a> Names<'a> {
    fn of(config: &'a Configuration, registry: &Registry) -> Self {
        let modules = registry.modules();
        let loaded = modules.iter().map(|module| module.name.clone());
        let failures = registry.failures();
        let failed = failures.iter().map(|failed| failed.name.raw().to_owned());
        let sources = config.sources().map(|(name, _)| name.to_owned());
        let entries = std::fs::read_dir(config.modules_folder()).into_iter();
        let lying = entries.flatten().flatten().take(MAX_ENTRIES);
        let lying = lying.filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let slot = file.strip_suffix(".wasm").unwrap_or(&file);
            slot.split('@').next().map(str::to_owned)
        });
        let present = loaded.chain(failed).chain(sources).chain(lying);
        Self {
            config,
            present: present.filter(|name| is_name(name)).collect(),
            shipped: OnceCell::new(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.present.contains(name) || self.shipped().contains(name)
    }

    fn shipped(&self) -> &BTreeSet<String> {
        self.shipped.get_or_init(|| {
            let folder = self.config.shipped_modules();
            folder
                .map(host::shipped_names)
                .into_iter()
                .flatten()
                .collect()
        })
    }

    /// The most similar name. Of a command that needs `only` some modules, and not one of this name, one of those.
    fn meant_by(&self, name: &str, only: Option<&[String]>) -> Option<&str> {
        let needed = only.filter(|only| only.iter().all(|own| own != name));
        let is_meant =
            |known: &&str| needed.is_none_or(|needed| needed.iter().any(|own| own == known));
        let known = self.present.union(self.shipped()).map(String::as_str);
        most_similar(known.filter(is_meant), name)
    }
}

/// Modules that fail to load or may not run are reported, and do not hide the others.
pub fn warn_of_failures(registry: &Registry) {
    warn_of_left_out(registry);
    for module in registry.modules() {
        let pin_state = module.pin_state();
        if !pin_state.may_run() {
            let (slot, reason) = (&module.slot, pin_state.reason());
            let before = format!("{slot}: {reason}; ");
            let command = format!("toolhold modules approve {slot}");
            note_command(NoteMark::Warn("disabled:"), &before, &command, "");
        }
    }
}

/// Modules that fail to load are reported. Those that only have to be built are one line, once in a process.
pub fn warn_of_left_out(registry: &Registry) {
    let mut unbuilt = Vec::new();
    for failed in registry.failures() {
        match failed.error {
            LoadError::Missing {
                language: Some(_), ..
            } => unbuilt.push(shell_word(&failed.origin.to_string())),
            LoadError::Missing { .. } => {
                note(
                    NoteMark::Dim("not built:"),
                    &format!("{}: {}", failed.origin, failed.error),
                );
            }
            _ => note(
                NoteMark::Warn("left out:"),
                &format!("{}: {}", failed.origin, failed.error),
            ),
        }
    }
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    unbuilt.retain(|origin| told.insert(origin.clone()));
    if !unbuilt.is_empty() {
        let origins = unbuilt.join(" ");
        note_command(
            NoteMark::Dim("not built:"),
            "",
            &format!("toolhold build {origins}"),
            "",
        );
    }
}

/// Modules that were reported as not built: a process that serves reads its folder again and again.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
