//! Checks MCP servers: whether each answers, and offers what was approved.

use super::Finding::{self, Broken, Fine, Lacking};
use crate::terminal::style::plural;
use futures_util::future::join_all;
use toolhold_mcp::{McpServer, ReadySession, Servers};
use toolhold_policy::{PinState, PinnedBy};
use toolhold_runtime::config::Configuration;

/// Most lines shown of a failed server's stderr; the last ones name the reason.
const MAX_STDERR_LINES: usize = 3;

/// Checks every configured server. A server that is not approved is not started.
pub async fn servers(config: &Configuration) -> Vec<(String, Finding)> {
    let servers = Servers::new(config.servers(), &config.pins(), None);
    let found = join_all(servers.iter().map(async |server| {
        let finding = finding(server).await;
        (server.settings.name.clone(), finding)
    }));
    let found = found.await;
    servers.close().await;
    found
}

async fn finding(server: &McpServer) -> Finding {
    let settings = &server.settings;
    if let Some(fault) = &settings.fault {
        let remedy = "the file is read without this rule where --config names it";
        return Broken(format!("it is not used: {fault}"), remedy.into());
    }
    let launch = server.pins().launch(settings).await;
    if !launch.may_run() {
        return disabled(&settings.name, "it was not started: ", &launch);
    }
    match server.reach().await {
        Err(failure) => {
            let told = server.told(&failure).message;
            let own = format!("the MCP server {}: ", settings.name);
            let printed = server.printed();
            let last = printed.len().saturating_sub(MAX_STDERR_LINES);
            let printed = printed.get(last..).unwrap_or_default().join("; ");
            let remedy = if printed.is_empty() {
                format!("is this right? {}", settings.launch.line())
            } else {
                format!("it printed {printed}")
            };
            Broken(told.strip_prefix(&own).unwrap_or(&told).into(), remedy)
        }
        Ok(ready) if !ready.pin_state.may_run() => disabled(&settings.name, "", &ready.pin_state),
        Ok(ready) => usable(server, &ready).await,
    }
}

async fn usable(server: &McpServer, ready: &ReadySession) -> Finding {
    let settings = &server.settings;
    let name = &settings.name;
    if settings.tools.is_empty() {
        return Lacking(
            "it answers, and none of its tools may be called".into(),
            format!(
                "toolhold mcp inspect {name} lists them; name some in [mcp.{name}]: tools = […]"
            ),
        );
    }
    let record = server.pins().record(settings).await;
    let approved = match record.map(|pin| pin.by) {
        _ if !server.pins().asks(settings) => "trusted without a pin",
        Some(PinnedBy::Person) => "approved",
        Some(PinnedBy::FirstSight) => "pinned as it was first seen",
        None => "not pinned",
    };
    let offered = &ready.offer.tools;
    let tools = plural(offered.len() as u64, "tool");
    let text = format!("it answers, {tools}, {approved}");
    let missing = settings.tools.iter().filter_map(|tool| {
        if offered.iter().any(|offered| offered.name == *tool) {
            return None;
        }
        let refused = ready.offer.refused.iter().find(|(name, _)| name == tool);
        let reason = refused.map_or("the server does not offer it", |(_, reason)| reason);
        Some(format!("{tool}: {reason}"))
    });
    match missing.collect::<Vec<_>>().as_slice() {
        [] => Fine(text),
        missing => Lacking(
            format!("{text}; {}", missing.join(", ")),
            format!("toolhold mcp inspect {name} lists what there is"),
        ),
    }
}

/// A server that a person has to approve. A server without a pin, or with a revoked one, is not an
/// error.
fn disabled(name: &str, before: &str, pin_state: &PinState) -> Finding {
    let text = format!("{before}{}", pin_state.reason());
    let approve = format!("toolhold mcp approve {name}");
    match pin_state {
        PinState::Pending { changes }
            if changes
                .iter()
                .any(|change| change.before.is_some() || change.after.is_some()) =>
        {
            Broken(
                text,
                format!("toolhold mcp diff {name}, and then {approve}"),
            )
        }
        _ => Lacking(text, approve),
    }
}
