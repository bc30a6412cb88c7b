//! `toolhold modules approve` and `diff`: shows a person what changed, and pins what the person approves.

use super::{found, inspect, load, module};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, good, plain};
use anyhow::{Context as _, Result, bail};
use std::io::{IsTerminal as _, Write as _};
use toolhold_policy::{GrantChange, PinState};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::Module;
use toolhold_storage::Draft;

/// Shows each module's changes, asks, and approves.
pub async fn approve(config: &Configuration, names: &[String], yes: bool) -> Result<Exit> {
    let only = match names {
        [one] => Some(one.as_str()),
        _ => None,
    };
    let registry = load(config, only).await?;
    let wanted = if names.is_empty() {
        let waits = |module: &std::sync::Arc<Module>| !module.pin_state().may_run();
        registry.modules().into_iter().filter(waits).collect()
    } else {
        let mut wanted = Vec::new();
        for name in names {
            wanted.push(found(config, &registry, name).await?);
        }
        wanted
    };
    if wanted.is_empty() {
        output::tell("no module waits to be approved");
    }
    for module in &wanted {
        // The digest of what is shown now: the module may change before the answer.
        let etag = module.etag();
        match module.pin_state() {
            PinState::Pending { changes } => {
                output::tell(&bold(&module.slot));
                if changes.is_empty() {
                    inspect::inspect(module, false)?;
                } else {
                    show(&changes);
                }
            }
            PinState::Approved => {
                output::tell(&format!("{} is approved already", module.slot));
                continue;
            }
            PinState::Trusted => bail!(
                "modules.pinning is \"never\": every module is trusted, there is nothing to approve"
            ),
        }
        if !yes && !confirmed(&format!("approve {} as it is now?", module.slot))? {
            output::tell(&format!("{} stays disabled", module.slot));
            continue;
        }
        let not_approved = || format!("{} was not approved", module.slot);
        let pin_state = registry.compare_shown(module, &etag).await;
        if pin_state.with_context(not_approved)?.may_run() {
            output::tell(&format!("{} was approved meanwhile", module.slot));
            continue;
        }
        let digest = module.digest.to_string();
        let draft = Draft::module_approved("", &module.slot, &digest);
        // Logged first: the audit log has every pin by a person.
        host::store(config).await?.audit(draft).await?;
        registry
            .approve(module, &etag)
            .await
            .with_context(not_approved)?;
        output::tell(&format!("{} {}", good("approved:"), module.slot));
    }
    Ok(Exit::Ok)
}

/// Shows the changes since the module was pinned; [`Exit::Failed`] if there are any.
pub async fn diff(config: &Configuration, name: &str, json: bool) -> Result<Exit> {
    let registry = load(config, Some(name)).await?;
    let module = module(config, &registry, name)?;
    let pin_state = module.pin_state();
    if json {
        output::json(&pin_state)?;
    } else if let PinState::Pending { changes } = &pin_state {
        if changes.is_empty() {
            output::tell(&format!("{} was never approved", module.slot));
        }
        show(changes);
    } else {
        output::tell(&format!("{} is what was approved", module.slot));
    }
    Ok(Exit::of(pin_state.may_run()))
}

/// Prints what changed, as a diff.
pub fn show(changes: &[GrantChange]) {
    for change in changes {
        let what = &change.what;
        match (&change.before, &change.after) {
            (Some(before), Some(after)) => {
                output::tell(&format!("  {what} changed"));
                let (before, after) = (plain(before.raw()), plain(after.raw()));
                output::tell_difference(&before, &after);
            }
            (None, None) => output::tell(&format!("  {what}")),
            (None, after) => {
                output::tell(&format!("  {what} is new"));
                for line in plain(after.as_ref().map_or("", |after| after.raw())).lines() {
                    output::tell(&format!("    {}", good(&format!("+ {line}"))));
                }
            }
            (Some(_), None) => output::tell(&format!("  {what} is gone")),
        }
    }
}

/// Asks at a terminal. Without one the answer is no.
pub fn confirmed(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{question} Say so with --yes: this is no terminal");
    }
    print!("{question} [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
