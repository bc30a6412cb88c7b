//! Servers' tools that a key of the HTTP API may not use.

use super::{OFFERS, answers, calls, configuration};
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::Server;

/// A run's messages about a call of an offered tool and of one that a message names, under these grants.
fn told_under(grants: &[&str]) -> (String, String) {
    let host = Host::new();
    let pinning = "[modules]\npinning = \"never\"\n";
    host.write(
        "mcp.toml",
        format!("{}\n{pinning}", configuration(&[], OFFERS)),
    );
    let endpoint = Endpoint::start(Scenario::new([
        calls("again", json!({"text": "hello there"})),
        answers(json!("done")),
        answers(json!("done")),
    ]));
    let made = host.run(&[&["keys", "create", "ada"], grants].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let url = endpoint.base_url();
    let flags = ["--config", "mcp.toml", "--base-url", &url, "--model", "m"];
    let mut server = Server::start(&host, &flags);
    server.use_key(made.stdout.trim());
    let again = json!({"type": "object", "properties": {"_activity": {"const": "mcp:s/echo"}, "text": {"type": "string"}}});
    let messages = json!([{"role": "user", "content": "the task"}]);
    let context = json!([{"type": "tool", "tool": {"again": again}}]);
    for task in [
        json!({"messages": messages, "context": context}),
        json!({"messages": messages}),
    ] {
        let done: Value = server.post("/v1/agent", &task).good();
        assert_eq!(done["reason"], "output", "{done}");
    }
    let requests = endpoint.requests();
    (requests[2].to_string(), requests[1]["messages"].to_string())
}

#[test]
fn a_key_without_servers_has_none_of_their_tools() {
    for (grants, has) in [
        (&[][..], true),
        (&["--grants", "http,s:mcp"], true),
        (&["--grants", "mcp"], true),
        (&["--grants", "none"], false),
        (&["--grants", "http,other:mcp"], false),
    ] {
        let (offered, came_of) = told_under(grants);
        assert_eq!(offered.contains("s.add"), has, "{grants:?}: {offered}");
        let denied = came_of.contains("the MCP server s: denied: mcp not granted to this key");
        assert_eq!(denied, !has, "{grants:?}: {came_of}");
    }
}
