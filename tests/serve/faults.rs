//! What happens to a server's runs when processes, the database and clients fail.

use super::{ask, host, scripted, serve, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;
use support::endpoint::{Endpoint, Expect, Order, Reply, Scenario};
use support::records::Records;
use support::server::Sent;
use support::transcript::{answers, calls};

/// Calls of one run.
const CALLS: usize = 6;

fn expression(call: usize) -> String {
    format!("90000+{call}*11")
}

fn result(call: usize) -> String {
    (90_000 + call * 11).to_string()
}

/// Answers by what a request knows, however often it comes.
fn steady() -> Endpoint {
    let call = |number: usize| {
        calls([(
            "calculator.evaluate",
            json!({"expression": expression(number)}),
        )])
    };
    let mut replies = vec![answers("done").expecting(Expect::text(result(CALLS)))];
    for number in (2..=CALLS).rev() {
        replies.push(call(number).expecting(Expect::text(result(number - 1))));
    }
    replies.push(call(1));
    Endpoint::start(Scenario::new(replies).in_order(Order::FirstMatch))
}

/// How often the server is killed; a loop of 100 takes some minutes.
fn kills() -> usize {
    let wanted = std::env::var("TOOLHOLD_TEST_KILLS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// Killed after whichever event: no turn that was acknowledged is lost, and no call that was completed is
/// made again.
#[test]
fn kills_lose_no_turn_and_repeat_no_completed_call() {
    let (host, endpoint) = (host(""), steady());
    let mut begun: Vec<String> = Vec::new();
    let mut boundary = 1;
    for kill in 0..kills() {
        let mut server = serve(&host, &endpoint);
        let records = Records::of(&host);
        let is_over = |run: &String| {
            records
                .lines(run)
                .last()
                .is_some_and(|line| line.contains("\"event\":\"done\""))
        };
        if begun.last().is_none_or(is_over) {
            let mut task = ask(&format!("task {kill}"));
            task["stream"] = true.into();
            let first = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
            begun.push(first[0].json()["run"].as_str().unwrap().to_owned());
            boundary = 1;
        }
        let run = begun.last().unwrap().clone();
        boundary += 3;
        until("the boundary", || {
            (records.lines(&run).len() >= boundary || is_over(&run)).then_some(())
        });
        server.kill();
        boundary = records.lines(&run).len();
    }
    let server = serve(&host, &endpoint);
    for run in &begun {
        let events = server.get(&format!("/v1/runs/{run}/events")).events();
        let done = events.last().unwrap().json();
        assert_eq!(done["output"], "done", "{done} {}", server.said());
        let mut completed: BTreeMap<String, usize> = BTreeMap::new();
        for event in events.iter().map(Sent::json) {
            match event["event"].as_str() {
                Some("tool_result") => *completed.entry(event["id"].to_string()).or_default() += 1,
                Some("tool_start") => {
                    let id = event["id"].to_string();
                    assert!(!completed.contains_key(&id), "{id} again: {event}");
                }
                _ => {}
            }
        }
        assert_eq!(completed.len(), CALLS, "{completed:?}");
        assert!(completed.values().all(|times| *times == 1), "{completed:?}");
        assert_eq!(host.run(&["replay", run]).code, Some(0));
    }
}

/// Whoever watches a run of another process sees it to its end.
#[test]
fn runs_of_other_processes_are_watched_and_cancelled() {
    let host = host("");
    let endpoint = scripted([Reply::endless(), answers("never")]);
    let url = endpoint.base_url();
    let server = serve(&host, &endpoint);
    let arguments = [
        "run",
        "by hand",
        "--base-url",
        &url,
        "--model",
        "m",
        "--json",
    ];
    let mut run = host.command(&arguments);
    let mut run = run.stdout(Stdio::null()).spawn().unwrap();
    let records = Records::of(&host);
    let id = until("the run", || records.runs().into_iter().next());
    until("its stream", || {
        (records.lines(&id).len() > 4).then_some(())
    });
    let shown = server.get(&format!("/v1/runs/{id}")).good();
    assert_eq!(shown["state"], "running");
    assert_eq!(
        server
            .post(&format!("/v1/runs/{id}/resume"), &json!({}))
            .status,
        409
    );
    assert_eq!(
        server
            .post(&format!("/v1/runs/{id}/cancel"), &json!({}))
            .status,
        202
    );
    let events = server.get(&format!("/v1/runs/{id}/events")).events();
    assert_eq!(events.last().unwrap().json()["reason"], "cancelled");
    assert_eq!(run.wait().unwrap().code(), Some(130));
    // And the other way round.
    let mut task = ask("by the server");
    task["stream"] = true.into();
    let again = scripted([Reply::endless()]);
    drop(server);
    let server = serve(&host, &again);
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 2);
    let id = begun[0].json()["run"].as_str().unwrap().to_owned();
    let cancelled = host.run(&["runs", "cancel", &id]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let watched = host.run(&["runs", "watch", &id]);
    assert_eq!(watched.code, Some(130), "{watched:?}");
    let listed = host.run(&["runs", "list", "--json", "--last", "1"]).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed["id"], &listed["reason"]),
        (&json!(id), &json!("cancelled"))
    );
}

/// A client that reads nothing holds up neither its run nor anybody else's.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let host = host("");
    let long = "x".repeat(40_000);
    let endpoint = scripted([answers(long.as_str()), answers("quick")]);
    let server = serve(&host, &endpoint);
    let body =
        json!({"messages": [{"role": "user", "content": "long"}], "stream": true}).to_string();
    let address = server.address().trim_start_matches("http://");
    let mut deaf = TcpStream::connect(address).unwrap();
    write!(
        deaf,
        "POST /v1/agent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    until("the first run", || {
        (endpoint.requests().len() == 1).then_some(())
    });
    let records = Records::of(&host);
    until("its end", || {
        let run = records.runs().into_iter().next()?;
        let lines = records.lines(&run);
        lines.last()?.contains("\"event\":\"done\"").then_some(())
    });
    assert_eq!(
        server.post("/v1/agent", &ask("quick")).good()["output"],
        "quick"
    );
    // It gets everything once it does read.
    deaf.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut text = String::new();
    let mut buffer = vec![0; 65_536];
    while !text.contains("event: done") {
        let read = deaf.read(&mut buffer).unwrap();
        assert!(read > 0, "it was cut off");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

/// A connection that says half a request keeps nobody from being served.
#[test]
fn half_requests_keep_nobody_out() {
    let host = host("");
    let endpoint = scripted([answers("yes")]);
    let server = serve(&host, &endpoint);
    let address = server.address().trim_start_matches("http://");
    let half: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(
                stream,
                "POST /v1/agent HTTP/1.1\r\nHost: localhost\r\nContent-Le"
            )
            .unwrap();
            stream
        })
        .collect();
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "yes");
    drop(half);
}
