//! `toolhold mcp inspect`.

use super::print_stderr;
use crate::exit::Exit;
use crate::terminal::style::{bad, bold, dim, headline, plain, warn};
use anyhow::{Result, anyhow};
use serde_json::json;
use toolhold_mcp::{McpServer, OfferedTool, ReadySession};
use toolhold_policy::Standing;

/// Starts the server if it may be started, and shows its tools.
pub async fn inspect(server: &McpServer, json: bool) -> Result<Exit> {
    let settings = &server.settings;
    let launch = server.pins().launch(settings).await;
    if !launch.may_run() {
        if json {
            let described = json!({
                "name": settings.name,
                "launch": settings.launch,
                "standing": launch,
            });
            println!("{}", serde_json::to_string_pretty(&described)?);
            return Ok(Exit::Failed);
        }
        println!(
            "{}  {}",
            bold(&settings.name),
            plain(&settings.launch.line())
        );
        println!(
            "  {} {}; it was not started, see `toolhold mcp approve {}`",
            warn("disabled:"),
            plain(&launch.reason()),
            settings.name
        );
        return Ok(Exit::Failed);
    }
    let ready = server.look().await.map_err(|failure| {
        print_stderr(server);
        anyhow!("the MCP server {}: {failure}", settings.name)
    })?;
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
            "standing": ready.standing,
            "tools": offer.tools,
            "refused": pairs(&offer.refused, "reason"),
            "not_named": pairs(&offer.others, "description"),
        });
        println!("{}", serde_json::to_string_pretty(&described)?);
    } else {
        print(server, &ready);
    }
    Ok(Exit::Ok)
}

/// Prints everything that the server says about its tools.
pub fn print(server: &McpServer, ready: &ReadySession) {
    let settings = &server.settings;
    println!(
        "{}  {}",
        bold(&settings.name),
        plain(&settings.launch.line())
    );
    println!("it calls itself {}", plain(ready.server()));
    println!("\n{}", bold("tools that may be called"));
    for tool in &ready.offer.tools {
        print_tool(tool);
    }
    for (name, reason) in &ready.offer.refused {
        println!(
            "  {} {}: {}",
            bad("not usable:"),
            plain(name),
            plain(reason)
        );
    }
    if ready.offer.tools.is_empty() {
        println!("  none; name some in [mcp.{}]: tools = […]", settings.name);
    }
    if !ready.offer.others.is_empty() {
        println!("\n{}", bold("tools that the configuration does not name"));
        for (name, description) in &ready.offer.others {
            println!("  {}  {}", plain(name), dim(&headline(description, 100)));
        }
    }
    println!("\n{}", bold("approval"));
    match &ready.standing {
        Standing::Trusted => println!("  nothing is pinned"),
        Standing::Approved => println!("  it is what was approved or first seen"),
        Standing::Pending { .. } => {
            println!(
                "  {} {}",
                warn("disabled:"),
                plain(&ready.standing.reason())
            );
        }
    }
}

fn print_tool(tool: &OfferedTool) {
    println!("  {}", bold(&plain(&tool.name)));
    println!("    {}", plain(&tool.description).replace('\n', "\n    "));
    println!("    arguments {}", plain(&tool.input_schema.to_string()));
    if let Some(output) = &tool.output_schema {
        println!("    returns   {}", plain(&output.to_string()));
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
    println!(
        "    {}",
        dim(&format!("says of itself: {}", claims.join(", ")))
    );
}
