//! What `toolhold doctor` says of MCP servers.

use super::*;

fn doctor(bench: &McpFixture, endpoint: &Endpoint) -> Finished {
    let mut command = bench.host.command(&["--config", "mcp.toml", "doctor"]);
    command.env("TOOLHOLD_BASE_URL", endpoint.base_url());
    finish(command.output().unwrap())
}

#[test]
fn doctor_says_of_each_server_whether_it_can_be_used() {
    let endpoint = Endpoint::start(Scenario::new([]));
    let trusting =
        |flags: &[&str], table: &str| McpFixture::new(flags, &format!("{OFFERS}\n{table}"));
    let asking = |flags: &[&str]| trusting(flags, "[modules]\npinning = \"always\"");
    for (bench, is_approved, code, expect) in [
        (
            trusting(&[], ""),
            false,
            0,
            "✓ MCP server s: it answers, 5 tools, pinned as it was first seen",
        ),
        (
            asking(&[]),
            true,
            0,
            "✓ MCP server s: it answers, 5 tools, approved",
        ),
        (
            asking(&[]),
            false,
            0,
            "– MCP server s: it was not started: it has not been approved yet\n    toolhold mcp approve s",
        ),
        (
            asking(&["--rug-pull"]),
            true,
            1,
            "✗ MCP server s: since it was approved: tool echo: description\n    toolhold mcp diff s, and then \
             toolhold mcp approve s",
        ),
        (
            trusting(&["--stillborn"], ""),
            false,
            1,
            "✗ MCP server s: it ended",
        ),
        (
            trusting(&["--stillborn"], ""),
            false,
            1,
            "cannot find its configuration",
        ),
        (
            trusting(&["--silent"], "timeout_ms = 1000"),
            false,
            1,
            "it did not answer within 1000 ms",
        ),
    ] {
        if is_approved {
            let done = bench.cli(&["mcp", "approve", "s", "--yes"]);
            assert_eq!(done.code, Some(0), "{done:?}");
        }
        let done = doctor(&bench, &endpoint);
        assert!(done.stdout.contains(expect), "{expect}: {done:?}");
        assert_eq!(done.code, Some(code), "{expect}: {done:?}");
        assert!(!bench.log().contains("call "), "{}", bench.log());
    }

    let revoked = McpFixture::new(&[], OFFERS);
    assert_eq!(revoked.cli(&["mcp", "revoke", "s"]).code, Some(0));
    let done = doctor(&revoked, &endpoint);
    assert!(
        done.stdout
            .contains("– MCP server s: it was not started: its pin was revoked"),
        "{done:?}"
    );
    assert_eq!((done.code, revoked.starts()), (Some(0), 0));
}

#[test]
fn doctor_names_the_tools_that_a_server_does_not_have() {
    let endpoint = Endpoint::start(Scenario::new([]));
    for (table, expect) in [
        (
            "tools = [\"echo\", \"nothing\"]",
            "– MCP server s: it answers, 1 tool, pinned as it was first seen; nothing: the server does not offer it",
        ),
        (
            "",
            "– MCP server s: it answers, and none of its tools may be called",
        ),
    ] {
        let bench = McpFixture::new(&[], table);
        let done = doctor(&bench, &endpoint);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(expect), "{expect}: {done:?}");
    }
}
