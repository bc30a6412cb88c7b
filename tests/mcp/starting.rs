//! A server of agents that starts before its MCP server is up, as in a new pod.

use super::{OFFERS, answers, calls};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::until;

/// The fixture over HTTP, which answers with 503 until a file is there. Killed when dropped.
struct BusyServer {
    child: Child,
    url: String,
}

impl BusyServer {
    fn start(folder: &Path, up: &Path) -> Self {
        let port = folder.join("port");
        let child = Command::new("python3")
            .arg(repository().join("tests/fixtures/mcp_server.py"))
            .arg("--http")
            .arg(&port)
            .arg("--busy-until")
            .arg(up)
            .spawn()
            .unwrap();
        let mut busy = Self {
            child,
            url: String::new(),
        };
        let port = until("its port", || std::fs::read_to_string(&port).ok());
        busy.url = format!("http://127.0.0.1:{port}/mcp");
        busy
    }
}

impl Drop for BusyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_that_begins_before_its_mcp_server_is_up_waits_for_its_tools() {
    let host = Host::new();
    let up = host.path().join("up");
    let busy = BusyServer::start(host.path(), &up);
    let table = format!(
        "[modules]\npinning = \"never\"\n[mcp.s]\nurl = {:?}\ntimeout_ms = 120000\n{OFFERS}\n",
        busy.url
    );
    host.write("mcp.toml", table);
    let endpoint = Endpoint::start(Scenario::new([
        calls("s.echo", json!({"text": "here"})),
        answers(json!("done")),
    ]));
    let url = endpoint.base_url();
    let arguments = ["--config", "mcp.toml", "--base-url", &url, "--model", "m"];
    let server = Server::start(&host, &arguments);
    let not_yet = until("the reason", || {
        let not_yet = server.get("/readyz");
        let is_told = not_yet.text.contains("1 have not listed them yet");
        is_told.then_some(not_yet)
    });
    assert_eq!(not_yet.status, 503, "{not_yet:?}");
    assert!(not_yet.headers.contains_key("retry-after"), "{not_yet:?}");
    assert!(!not_yet.text.contains(&busy.url), "{not_yet:?}");
    assert_eq!(not_yet.json()["checks"]["modules"]["state"], "failed");

    let task = json!({"messages": [{"role": "user", "content": "the task"}]});
    let done = thread::scope(|scope| {
        let run = scope.spawn(|| server.post("/v1/agent", &task).good());
        until("the run that waits", || {
            let said = server.said();
            said.contains("MCP servers of the run have not listed their tools yet (s)")
                .then_some(())
        });
        assert_eq!(endpoint.requests().len(), 0, "it began without its tools");
        std::fs::write(&up, "").unwrap();
        run.join().unwrap()
    });
    assert_eq!(done["output"], "done", "{}", server.said());
    let call = &done["steps"][0]["calls"][0];
    assert_eq!(
        (&call["tool"], &call["status"]),
        (&json!("s.echo"), &json!("done"))
    );
    until("readiness", || {
        (server.get("/readyz").status == 200).then_some(())
    });
}
