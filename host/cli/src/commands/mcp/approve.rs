//! `toolhold mcp approve`, `revoke` and `diff`: shows a person what changed, and pins what the person approves.

use super::inspect::{self, look};
use super::named;
use crate::commands::modules::{confirmed, show_changes};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, good, line, warn};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use toolhold_mcp::{McpServer, Servers};
use toolhold_policy::{EarlierPinDecision, GrantChange, PinState, PinWriteError, PinnedBy};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_storage::Draft;

/// Shows the command, starts the server if the person agrees, shows its tools, asks, and pins them.
pub async fn approve(config: &Configuration, server: &McpServer, yes: bool) -> Result<Exit> {
    let settings = &server.settings;
    let name = &settings.name;
    if settings.tools.is_empty() {
        bail!(
            "[mcp.{name}] names no tools, so there is nothing to approve; name some as tools = […]"
        );
    }
    let before = server.pins().record(settings).await;
    let launch = server.pins().launch(settings).await;
    if let PinState::Pending { changes } = &launch {
        output::tell(&format!(
            "{}  {}",
            bold(&line(name)),
            line(&settings.launch.line())
        ));
        show_changes(changes);
        output::tell(&format!(
            "  {} it runs outside the sandbox, with your rights",
            warn("note:")
        ));
        if !yes && !confirmed(&format!("start {name} to see what it offers?"))? {
            output::tell(&format!("{name} stays disabled"));
            return Ok(Exit::Ok);
        }
    }
    let ready = look(server).await?;
    // A decision that somebody took while the server started holds, and not the one of this command. The server may have
    // been pinned at first sight by its start.
    let record = server.pins().record(settings).await;
    let by = record.as_ref().map(|pin| pin.by);
    if record != before && by != Some(PinnedBy::FirstSight) {
        let decision = EarlierPinDecision::of(record.as_ref());
        return Err(PinWriteError::Decided(decision))
            .with_context(|| format!("{name} was not approved"));
    }
    match server.pins().compare(settings, &ready.offer).await {
        None => inspect::print(server, &ready),
        Some(changes) if changes.is_empty() => {
            if by == Some(PinnedBy::Person) {
                output::tell(&format!("{name} is approved already"));
                return Ok(Exit::Ok);
            }
            // It was pinned as it was first seen, and no person has looked at it.
            inspect::print(server, &ready);
        }
        Some(changes) => show_changes(&changes),
    }
    if !yes && !confirmed(&format!("approve {name} as it is now?"))? {
        output::tell(&format!("{name} stays as it was"));
        return Ok(Exit::Ok);
    }
    // First: nothing is approved that the log does not have.
    let store = host::store(config).await?;
    store.audit(Draft::server_approved(name)).await?;
    let approved = server.pins().approve(settings, &ready.offer, record).await;
    approved.with_context(|| format!("{name} was not approved"))?;
    output::tell(&format!("{} {name}", good("approved:")));
    Ok(Exit::Ok)
}

/// Withdraws what was approved or first seen, without starting anything. A server that is not
/// configured any more may have left a pin, which holds for a later server of its name.
pub async fn revoke(config: &Configuration, servers: &Servers, name: &str) -> Result<Exit> {
    let pins = config.pins();
    match servers.named(name) {
        Some(server) if !pins.asks(&server.settings) => bail!(
            "modules.pinning is \"never\": every server that you name is trusted; take [mcp.{name}] out of \
             the configuration instead"
        ),
        None if !pins.knows(name).await => drop(named(servers, name)?),
        _ => {}
    }
    // Authority that is taken away goes whether or not that can be logged.
    let revoked = pins.revoke(name).await;
    revoked.with_context(|| format!("the pin of {name} cannot be taken back"))?;
    let logged = async {
        let draft = Draft::server_revoked(name);
        host::store(config).await?.audit(draft).await?;
        Ok::<_, anyhow::Error>(())
    };
    let logged = logged.await;
    logged.context("it is revoked, but that is not in the audit log")?;
    output::tell(&format!(
        "{} {name}; calls of its tools end, and none begins until `toolhold mcp approve {name}`",
        warn("revoked:")
    ));
    Ok(Exit::Ok)
}

/// Shows the changes since the server was pinned; [`Exit::Failed`] if there are any.
pub async fn diff(server: &McpServer, json: bool) -> Result<Exit> {
    let settings = &server.settings;
    let changes = match server.pins().launch(settings).await {
        // What is not what was approved is not started; its tools cannot be compared.
        PinState::Pending { changes } if changes.is_empty() => None,
        PinState::Pending { changes } => Some(changes),
        PinState::Trusted | PinState::Approved => {
            let ready = look(server).await?;
            server.pins().compare(settings, &ready.offer).await
        }
    };
    if json {
        output::json(&json!({"changes": changes}))?;
    } else {
        print(&settings.name, changes.as_deref());
    }
    Ok(Exit::of(changes.is_some_and(|changes| changes.is_empty())))
}

fn print(name: &str, changes: Option<&[GrantChange]>) {
    match changes {
        None => output::tell(&format!("{name} was never approved")),
        Some([]) => output::tell(&format!("{name} is what was approved or first seen")),
        Some(changes) => show_changes(changes),
    }
}
