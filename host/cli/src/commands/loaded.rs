//! The modules of a command: loaded while a person sees that it takes time, and those that are missing named.

use crate::terminal::output::note;
use crate::terminal::progress::Loading;
use crate::terminal::style::{dim, warn};
use anyhow::Result;
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

/// Modules that fail to load are reported.
pub fn warn_of_left_out(registry: &Registry) {
    for failed in registry.failures() {
        let mark = match failed.error {
            LoadError::Missing { .. } => dim("not built:"),
            _ => warn("left out:"),
        };
        note(&mark, &format!("{}: {}", failed.origin, failed.error));
    }
}
