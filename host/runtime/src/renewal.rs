//! The configuration is read again while a process serves.
//!
//! Either all of it holds, or what held before goes on: what may fail is made first. Where it can only be
//! made under the new policy, such as a shield whose module is given something only now, the policy is put
//! in place for that, and taken back if it was in vain.

use crate::config::Configuration;
use crate::host;
use anyhow::{Result, bail};
use toolhold_sandbox::Registry;

/// Has the configuration `now` hold in the place of `held`. `make` makes what follows from it,
/// and `put` puts that in the place of what was there.
///
/// # Errors
/// What is wrong with it, or with what follows from it. Then everything is as it was.
pub async fn renewed<T>(
    held: &Configuration,
    now: Configuration,
    registry: &Registry,
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
                    // A shield may have had its source fetched.
                    host::forget_other_sources(registry, held, &|_| ()).await;
                    return Err(error);
                }
            }
        }
    };
    put(made);
    modules(&now, registry).await;
    Ok(())
}

/// Loads the modules again that changed, or that may be loaded only now.
pub async fn modules(config: &Configuration, registry: &Registry) {
    let loaded = host::load(registry, config, None, &|event| {
        tracing::info!(?event, "modules");
    });
    if let Err(error) = loaded.await {
        // What was loaded goes on.
        tracing::error!("{error:#}");
    }
}
