//! Reads the configuration again while a process serves.
//!
//! A new configuration applies as a whole or not at all: everything that may fail is built first. A part that
//! can only be built under the new policy, such as a shield whose module gets its grant there, is built after
//! the policy was put in place, and the policy is restored if that fails.

use crate::config::Configuration;
use crate::host;
use anyhow::{Result, bail};
use toolhold_sandbox::Registry;

/// Replaces the configuration `held` by `now`. `make` builds what depends on it, and `put` installs that. `only` are
/// the modules that are in use; all of them if it is absent.
///
/// # Errors
/// The configuration, or what depends on it, is wrong. Then nothing has changed.
pub async fn apply<T>(
    held: &Configuration,
    now: Configuration,
    registry: &Registry,
    only: Option<&[String]>,
    make: impl AsyncFn(&Configuration) -> Result<T>,
    put: impl FnOnce(T),
) -> Result<()> {
    if now.modules_folder() != held.modules_folder() {
        bail!("modules.folder is another one, which takes a restart");
    }
    let made = match make(&now).await {
        Ok(made) => {
            registry.govern(now.policy()).await;
            made
        }
        Err(_) => {
            registry.govern(now.policy()).await;
            match make(&now).await {
                Ok(made) => made,
                Err(error) => {
                    registry.govern(held.policy()).await;
                    // A shield may have fetched its module's source.
                    host::forget_other_sources(registry, held, &|_| ()).await;
                    return Err(error);
                }
            }
        }
    };
    put(made);
    reload_modules(&now, registry, only).await;
    Ok(())
}

/// Loads the modules again that changed, or that may be loaded only now. Of them, `only` and those whose tools they
/// may call, if it is there.
pub async fn reload_modules(config: &Configuration, registry: &Registry, only: Option<&[String]>) {
    let log = |event| tracing::info!(?event, "modules");
    if let Err(error) = host::load_needed(registry, config, only, &log).await {
        // Loaded modules stay in use.
        tracing::error!("{error:#}");
    }
}
