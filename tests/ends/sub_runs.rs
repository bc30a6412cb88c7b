//! Calls that a run answers: a saved Request, and a clean room. The call of such a run ends as well as the one that it makes.

use super::of_no_run::cancellation;
use super::runs::{begin_task, events, serve_with};
use super::{
    CONFIG, GRANTING, SHORT, SPIN, TOOL, at_once, end_of, newest_run, recorded_to_its_end, row_of,
    until_there_is_a_row_of,
};
use crate::mcp_server::call;
use crate::mcp_server::wire::Stdio;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Host, signal};
use support::server::Server;
use support::transcript::{answers, calls, told};
use support::{PATIENCE, until};

/// Tools of a run: one that a saved Request answers, whose own tool computes, and one that a clean room answers, whose model
/// is silent.
const DELEGATES: [&str; 2] = [REQUEST, "room"];
const REQUEST: &str = "inner";

/// The name of the Request as a tool of the MCP server.
const OFFERED: &str = "request-inner";

fn host(config: &str) -> Host {
    let spin = json!({"type": "object", "properties": {"_module": {"const": "bad"}}});
    let inner = json!({
        "description": "Computes.",
        "context": [
            {"type": "tool", "tool": {TOOL: spin}},
            {"role": "user", "content": "Compute."},
        ],
    });
    let host = SPIN.host(config);
    host.write("requests/inner.json", inner.to_string());
    host
}

/// A task with the tools of [`DELEGATES`].
fn task() -> Value {
    let delegates = json!({
        "inner": {"type": "object", "properties": {"_module": {"const": "inner"}}},
        "room": {
            "type": "object",
            "description": "Thinks.",
            "properties": {"_module": {"const": "anonymous"}, "_output": {"type": "string"}},
        },
    });
    json!({
        "messages": [{"role": "user", "content": "t"}],
        "context": [{"type": "tool", "tool": delegates}],
    })
}

/// Calls the tool of the Request, or is silent in the clean room.
fn within(delegate: &str) -> Reply {
    if delegate == REQUEST {
        spins()
    } else {
        Reply::never()
    }
}

fn spins() -> Reply {
    calls([(TOOL, json!({}))])
}

/// A server whose run makes a call of the tool, and what the models say after that.
fn serve(host: &Host, delegate: &str) -> (Endpoint, Server) {
    let call = calls([(delegate, json!({}))]);
    serve_with(
        host,
        [call, within(delegate), answers("within"), answers("done")],
    )
}

/// Until the run that answers the call computes, or its model was asked.
fn until_it_runs(host: &Host, endpoint: &Endpoint, run: &str, delegate: &str) {
    if delegate == REQUEST {
        SPIN.until_it_runs(host, run, TOOL);
    } else {
        assert!(endpoint.wait_until(PATIENCE, |it| it.requests().len() == 2));
    }
}

/// The names of the calls that are cut.
fn cut(delegate: &str) -> Vec<&str> {
    let inner = (delegate == REQUEST).then_some(TOOL);
    [delegate].into_iter().chain(inner).collect()
}

/// The calls ended with their run, in the record and in the audit log.
fn assert_unfinished(host: &Host, events: &[Value], delegate: &str) {
    for tool in cut(delegate) {
        let end = end_of(events, tool);
        assert_eq!(end["error"]["kind"], "unfinished", "{delegate}: {end}");
        let row = row_of(host, tool);
        assert_eq!(
            (&row["status"], &row["by_host"]),
            (&json!("interrupted"), &json!(false)),
            "{delegate}: {row}"
        );
    }
}

#[test]
fn sub_runs_of_a_stopped_run_end_with_their_calls() {
    for (config, reason) in [
        ("", "cancelled"),
        ("[run]\ntimeout_ms = 4_000\n", "timeout"),
    ] {
        at_once(DELEGATES, |delegate| {
            let host = host(config);
            let (endpoint, server) = serve(&host, delegate);
            let run = begin_task(&server, task());
            if reason == "cancelled" {
                until_it_runs(&host, &endpoint, &run, delegate);
                let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
                assert_eq!(cancelled.status, 202, "{cancelled:?}");
            }
            let events = events(&server, &run);
            assert_eq!(events.last().unwrap()["reason"], reason);
            assert_unfinished(&host, &events, delegate);
            let answer = server.get(&format!("/v1/runs/{run}")).good()["answer"].clone();
            let told = &answer["steps"][0]["calls"][0];
            assert_eq!(
                (&told["tool"], &told["status"]),
                (&json!(delegate), &json!("cancelled"))
            );
            assert!(
                told["error"].to_string().contains("not known whether"),
                "{told}"
            );
            assert_eq!(
                host.run(&["runs", "replay", &run]).code,
                Some(0),
                "{delegate} {reason}"
            );
        });
    }
}

/// Another server resumes the run that another run began, and only its call is lost.
#[test]
fn sub_runs_of_a_killed_server_go_on_without_their_calls() {
    at_once(DELEGATES, |delegate| {
        let host = host("");
        let (endpoint, mut server) = serve(&host, delegate);
        let run = begin_task(&server, task());
        until_it_runs(&host, &endpoint, &run, delegate);
        server.kill();
        let server = Server::start(&host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
        let events = ended(&server, &run);
        assert_eq!(events.last().unwrap()["output"], "done", "{delegate}");
        assert_eq!(end_of(&events, delegate)["output"], "within");
        assert_eq!(row_of(&host, delegate)["status"], "ok");
        if delegate == REQUEST {
            assert_eq!(SPIN.end(&events)["error"]["kind"], "interrupted");
            let row = SPIN.row(&host);
            assert_eq!(row["status"], "interrupted", "{row}");
            assert!(
                row.get("duration_us").is_none(),
                "nobody measured it: {row}"
            );
            // The model of the Request reads it.
            let told = told(&endpoint, 2);
            assert!(told.contains("not known whether"), "{told}");
        }
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
    });
}

/// A person ends the run that the killed server left.
#[test]
fn sub_runs_that_a_person_ends_after_their_server_was_killed_end_with_their_calls() {
    at_once(DELEGATES, |delegate| {
        let host = host("");
        let (endpoint, mut server) = serve(&host, delegate);
        let run = begin_task(&server, task());
        until_it_runs(&host, &endpoint, &run, delegate);
        server.kill();
        let url = endpoint.base_url();
        let flags = ["--base-url", &url, "--model", "m", "--hold-runs"];
        let server = Server::start(&host, &flags);
        let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
        assert_eq!(cancelled.status, 202, "{cancelled:?}");
        let events = ended(&server, &run);
        assert_eq!(events.last().unwrap()["reason"], "cancelled", "{delegate}");
        assert_unfinished(&host, &events, delegate);
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
    });
}

/// The events of a run, once it has ended.
fn ended(server: &Server, run: &str) -> Vec<Value> {
    let path = format!("/v1/runs/{run}");
    until("the end of the run", || {
        (server.get(&path).good()["state"] == "done").then_some(())
    });
    events(server, run)
}

#[test]
fn sub_runs_of_a_revoked_key_end_with_their_calls() {
    at_once(DELEGATES, |delegate| {
        let host = host("");
        let key = host.run(&["keys", "create", "ann"]).stdout;
        let (endpoint, mut server) = serve(&host, delegate);
        server.use_key(key.trim());
        let run = begin_task(&server, task());
        until_it_runs(&host, &endpoint, &run, delegate);
        let revoked = host.run(&["keys", "revoke", "ann"]);
        assert_eq!(revoked.code, Some(0), "{revoked:?}");
        let events = recorded_to_its_end(&host, &run);
        let done = events.last().expect("it ended");
        assert_eq!(done["reason"], "cancelled", "{done}");
        assert!(done.to_string().contains("was revoked"), "{done}");
        assert_unfinished(&host, &events, delegate);
    });
}

/// The host stops the inner call; the run that made it reads the reason, and ends with an answer.
#[test]
fn a_sub_run_reads_why_its_call_was_stopped() {
    let nothing: fn(&Host) = |_| ();
    let stops = [
        (GRANTING, SPIN.take_back, "revoked", "taken back"),
        (SHORT, nothing, "deadline", SPIN.late),
    ];
    at_once(stops, |(config, stop, error, words)| {
        let host = host(config);
        let (endpoint, server) = serve(&host, REQUEST);
        let run = begin_task(&server, task());
        SPIN.until_it_runs(&host, &run, TOOL);
        stop(&host);
        let events = events(&server, &run);
        assert_eq!(events.last().unwrap()["output"], "done", "{error}");
        assert_eq!(SPIN.end(&events)["error"]["kind"], error);
        assert_eq!(SPIN.row(&host)["error"], error);
        assert_eq!(end_of(&events, REQUEST)["output"], "within", "{error}");
        assert_eq!(row_of(&host, REQUEST)["status"], "ok", "{error}");
        let told = told(&endpoint, 2);
        assert!(told.contains(words), "{told}");
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
    });
}

/// A Request that an MCP client calls is a run, and the call has a row of its own.
struct CalledRequest {
    client: Stdio,
    run: String,
    host: Host,
    /// Configuration of the server, less what its module is granted.
    offer: String,
    _endpoint: Endpoint,
}

impl CalledRequest {
    /// Begins the call, whose id is 7, and returns when its run computes.
    fn begin(config: &str) -> Self {
        let endpoint = Endpoint::start(Scenario::new([spins(), answers("within")]));
        let offer = format!(
            "[mcp_server]\nrequests = true\n[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n",
            endpoint.base_url()
        );
        let host = host(&format!("{offer}{config}"));
        let mut client = Stdio::session(&host, &[], json!({}));
        client.send(call(7, OFFERED, json!({})));
        let run = newest_run(&host);
        SPIN.until_it_runs(&host, &run, TOOL);
        Self {
            client,
            run,
            host,
            offer,
            _endpoint: endpoint,
        }
    }

    fn assert_rows(&self, status: &str, status_within: &str) {
        let row = row_of(&self.host, OFFERED);
        assert_eq!(
            (&row["status"], &row["by_host"]),
            (&json!(status), &json!(false)),
            "{row}"
        );
        let row = SPIN.row(&self.host);
        assert_eq!(row["status"], status_within, "{row}");
    }

    /// The end of its call in the record, and how the run ended.
    fn end(&self) -> (Value, Value) {
        let events = recorded_to_its_end(&self.host, &self.run);
        let done = events.last().expect("it ended");
        (
            SPIN.end(&events)["error"]["kind"].clone(),
            done["reason"].clone(),
        )
    }
}

#[test]
fn requests_of_an_mcp_client_that_leaves_end_with_their_calls() {
    at_once(["cancel", "close"], |stop| {
        let mut called = CalledRequest::begin("");
        if stop == "cancel" {
            called.client.send(cancellation(7));
        } else {
            assert_eq!(called.client.close(), Some(0));
        }
        assert_eq!(
            called.end(),
            (json!("unfinished"), json!("cancelled")),
            "{stop}"
        );
        until_there_is_a_row_of(&called.host, OFFERED);
        called.assert_rows("interrupted", "interrupted");
    });
}

/// The next process that reads the audit log writes both rows. Going on with the run writes no further one for its call.
#[test]
fn requests_of_a_killed_mcp_server_end_with_their_calls() {
    let mut called = CalledRequest::begin("");
    signal(called.client.child.id(), "KILL");
    called.client.child.wait().expect("it ends");
    called.assert_rows("interrupted", "interrupted");
    let resumed = called.host.run(&["resume", &called.run]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(called.end(), (json!("interrupted"), json!("output")));
    called.assert_rows("interrupted", "interrupted");
}

#[test]
fn requests_of_an_mcp_client_that_run_out_of_time_end_with_their_calls() {
    let mut called = CalledRequest::begin("[run]\ntimeout_ms = 6_000\n");
    let answer = called.client.reply(7);
    let failure = &answer["result"]["_meta"]["io.toolhold/failure"];
    assert_eq!(failure["kind"], "timeout", "{answer}");
    assert_eq!(called.end(), (json!("unfinished"), json!("timeout")));
    called.assert_rows("error", "interrupted");
}

#[test]
fn a_request_of_an_mcp_client_goes_on_when_a_grant_of_its_tool_is_taken_back() {
    let mut called = CalledRequest::begin(GRANTING);
    let without_grants = format!("{CONFIG}{}", called.offer);
    called.host.write("toolhold.toml", without_grants);
    let answer = called.client.reply(7);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(called.end(), (json!("revoked"), json!("output")));
    called.assert_rows("ok", "error");
}
