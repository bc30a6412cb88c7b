//! `toolhold mcp list`.

use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, dim, line, warn};
use anyhow::Result;
use serde_json::{Value, json};
use toolhold_mcp::{McpServer, Servers, is_revoked};
use toolhold_policy::PinnedBy;

/// Lists all servers from their settings and pins, without starting one.
pub async fn list(servers: &Servers, json: bool) -> Result<Exit> {
    let mut described = Vec::new();
    for server in servers.iter() {
        let described_one = describe(server).await;
        if !json {
            print(server, &described_one);
        }
        described.push(described_one);
    }
    if json {
        output::json(&json!({"servers": described}))?;
    } else if described.is_empty() {
        output::tell(
            "no MCP servers; `toolhold config` says how one is configured, under [mcp.NAME]",
        );
    }
    Ok(Exit::Ok)
}

async fn describe(server: &McpServer) -> Value {
    let settings = &server.settings;
    let record = server.pins().record(settings).await;
    let pinned = record.as_ref();
    let pinned = pinned.map(|pin| json!({"digest": pin.digest, "by": pin.by, "at": pin.at}));
    json!({
        "name": settings.name,
        "launch": settings.launch,
        "tools": settings.tools,
        "offer": settings.offer,
        "timeout_ms": u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
        "max_result_bytes": settings.max_result_bytes,
        "standing": server.pins().launch(settings).await,
        "pinned": pinned,
        "revoked": record.is_some_and(|pin| is_revoked(&pin)),
        "fault": settings.fault,
    })
}

fn print(server: &McpServer, described: &Value) {
    let settings = &server.settings;
    let launch = line(&settings.launch.line());
    output::tell(&format!(
        "{}  {}",
        bold(&line(&settings.name)),
        dim(&launch)
    ));
    let by: Option<PinnedBy> = described
        .pointer("/pinned/by")
        .and_then(|by| serde_json::from_value(by.clone()).ok());
    let name = &settings.name;
    let is_revoked = described["revoked"] == true;
    let disabled = |why: &str, remedy: &str| {
        output::tell(&format!(
            "  {} {why}; toolhold mcp {remedy} {name}",
            warn("disabled:")
        ));
    };
    match (&settings.fault, described["standing"]["state"].as_str(), by) {
        (Some(fault), ..) => {
            output::tell(&format!("  {} {}", warn("cannot be used:"), line(fault)));
        }
        (None, Some("pending"), None) => disabled("it has not been approved yet", "approve"),
        (None, Some("pending"), Some(_)) if is_revoked => {
            disabled("its pin was revoked", "approve");
        }
        (None, Some("pending"), Some(_)) => disabled("it is not what was approved", "diff"),
        (None, _, Some(PinnedBy::Person)) => output::tell("  approved"),
        (None, _, Some(PinnedBy::FirstSight)) => output::tell("  pinned as it was first seen"),
        (None, _, None) => output::tell(&format!(
            "  not seen yet; toolhold mcp inspect {name} starts it"
        )),
    }
    match settings.tools.as_slice() {
        [] => output::tell(&format!(
            "  {}",
            dim("no tools: `tools` names none, and there are no others")
        )),
        tools => {
            let how = if settings.offer {
                "offered to every run"
            } else {
                "for tool messages"
            };
            output::tell(&format!("  {}  {}", line(&tools.join(", ")), dim(how)));
        }
    }
}
