//! `toolhold mcp inspect`.

use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, bold, dim, headline, line, warn};
use anyhow::{Result, anyhow};
use serde_json::json;
use std::sync::Arc;
use toolhold_mcp::{McpServer, OfferedTool, ReadySession, ServerSettings};
use toolhold_policy::PinState;
use toolhold_policy::text;

/// Starts the server if it may be started, and shows its tools.
pub async fn inspect(server: &McpServer, json: bool) -> Result<Exit> {
    let settings = &server.settings;
    let launch = server.pins().launch(settings).await;
    if !launch.may_run() {
        if json {
            let (name, place) = (&settings.name, &settings.launch);
            output::json(&json!({"name": name, "launch": place, "standing": launch}))?;
            return Ok(Exit::Failed);
        }
        heading(settings);
        output::tell(&format!(
            "  {} {}; it was not started, see `toolhold mcp approve {}`",
            warn("disabled:"),
            line(&launch.reason()),
            settings.name
        ));
        return Ok(Exit::Failed);
    }
    let ready = look(server).await?;
    if json {
        let offer = &ready.offer;
        let pairs = |pairs: &[(String, String)], value: &str| -> Vec<_> {
            pairs
                .iter()
                .map(|(name, text)| json!({"name": name, value: text}))
                .collect()
        };
        let described = json!({
            "name": settings.name,
            "server": ready.server(),
            "launch": settings.launch,
            "standing": ready.pin_state,
            "tools": offer.tools,
            "refused": pairs(&offer.refused, "reason"),
            "not_named": pairs(&offer.others, "description"),
        });
        output::json(&described)?;
    } else {
        print(server, &ready);
    }
    Ok(Exit::Ok)
}

/// Starts the server and asks for its tools. What a server prints that does not work is shown.
pub async fn look(server: &McpServer) -> Result<Arc<ReadySession>> {
    server.look().await.map_err(|failure| {
        for written in server.printed() {
            output::say(&line(&written));
        }
        anyhow!("the MCP server {}: {failure}", server.settings.name)
    })
}

/// Prints everything that the server says about its tools.
pub fn print(server: &McpServer, ready: &ReadySession) {
    let settings = &server.settings;
    heading(settings);
    output::tell(&format!("it calls itself {}", line(ready.server())));
    output::tell(&format!("\n{}", bold("tools that may be called")));
    for tool in &ready.offer.tools {
        print_tool(tool);
    }
    for (name, reason) in &ready.offer.refused {
        let text = line(&format!("{name}: {reason}"));
        output::tell(&format!("  {} {text}", bad("not usable:")));
    }
    if ready.offer.tools.is_empty() {
        output::tell(&format!(
            "  none; name some in [mcp.{}]: tools = […]",
            settings.name
        ));
    }
    if !ready.offer.others.is_empty() {
        output::tell(&format!(
            "\n{}",
            bold("tools that the configuration does not name")
        ));
        for (name, description) in &ready.offer.others {
            output::tell(&format!(
                "  {}  {}",
                line(name),
                dim(&headline(description, 100))
            ));
        }
    }
    output::tell(&format!("\n{}", bold("pin")));
    match &ready.pin_state {
        PinState::Trusted => output::tell("  nothing is pinned"),
        PinState::Approved => output::tell("  it is what was approved or first seen"),
        PinState::Pending { .. } => {
            let reason = line(&ready.pin_state.reason());
            output::tell(&format!("  {} {reason}", warn("disabled:")));
        }
    }
}

/// The server's name, and what is started or asked.
fn heading(settings: &ServerSettings) {
    output::tell(&format!(
        "{}  {}",
        bold(&line(&settings.name)),
        line(&settings.launch.line())
    ));
}

fn print_tool(tool: &OfferedTool) {
    output::tell(&format!("  {}", bold(&line(&tool.name))));
    if let Some(listed) = &tool.listed_name {
        output::tell(&format!("    the server calls it {}", line(listed)));
    }
    let description = text::block(&tool.description, "    ");
    output::tell(&format!("    │ {description}"));
    let arguments = line(&tool.input_schema.to_string());
    output::tell(&format!("    arguments {arguments}"));
    if let Some(output) = &tool.output_schema {
        output::tell(&format!("    returns   {}", line(&output.to_string())));
    }
    for unchecked in tool.unchecked() {
        output::tell(&format!("    {} {}", warn("!"), line(&unchecked)));
    }
    let own = tool.annotations;
    let claims = [
        (own.read_only, "only reads"),
        (own.destructive, "may destroy"),
        (own.idempotent, "may be repeated"),
        (own.open_world, "reaches the outside world"),
    ];
    let claims: Vec<_> = claims
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, claim)| *claim)
        .collect();
    let claims = format!("says of itself: {}", claims.join(", "));
    output::tell(&format!("    {}", dim(&claims)));
}
