//! The modules of a command: loaded while a person sees that it takes time, and those that are missing named.

use crate::terminal::output::note;
use crate::terminal::progress::Loading;
use crate::terminal::style::{dim, warn};
use anyhow::Result;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::{LoadError, Registry};

/// A registry with all modules, or with those that `only` names.
pub async fn modules(config: &Configuration, only: Option<&[String]>) -> Result<Registry> {
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, only, &|event| loading.on_event(event)).await?;
    Ok(registry)
}

/// The modules of tools, or modules, that are named so: `calc` of `calc.add` and of `calc@1.2.add`.
pub fn modules_of(tools: &[String]) -> Vec<String> {
    let module = |tool: &String| tool.split(['.', '@']).next().unwrap_or_default().to_owned();
    tools.iter().map(module).collect()
}

/// Modules that fail to load or may not run are reported, and do not hide the others.
pub fn warn_of_failures(registry: &Registry) {
    warn_of_left_out(registry);
    for module in registry.modules() {
        let standing = module.standing();
        if !standing.may_run() {
            let (slot, reason) = (&module.slot, standing.reason());
            let text = format!("{slot}: {reason}; toolhold modules approve {slot}");
            note(&warn("disabled:"), &text);
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
            } => unbuilt.push(quoted(&failed.origin.to_string())),
            LoadError::Missing { .. } => {
                note(
                    &dim("not built:"),
                    &format!("{}: {}", failed.origin, failed.error),
                );
            }
            _ => note(
                &warn("left out:"),
                &format!("{}: {}", failed.origin, failed.error),
            ),
        }
    }
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    unbuilt.retain(|origin| told.insert(origin.clone()));
    if !unbuilt.is_empty() {
        let origins = unbuilt.join(" ");
        note(&dim("not built:"), &format!("toolhold build {origins}"));
    }
}

/// A path as a shell takes it: a folder's name may be anything.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

/// Modules that were reported as not built: a process that serves reads its folder again and again.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
