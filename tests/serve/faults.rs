//! What happens to a server's runs when processes, the database and clients fail.

use super::{ask, host, scripted, serve, streamed, two_plus_two, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::records::Records;
use support::scale;
use support::server::{Answered, Server, ServerSentEvent};
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
    Endpoint::start(Scenario::new(replies).in_order(ReplyOrder::FirstMatch))
}

/// How often the server is killed: after each of five numbers of events, several times. `TOOLHOLD_TEST_KILLS` is another
/// number.
fn kills() -> usize {
    let wanted = std::env::var("TOOLHOLD_TEST_KILLS").ok();
    let usual = scale(30, 100);
    wanted.and_then(|text| text.parse().ok()).unwrap_or(usual)
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
            begun.push(streamed(&server, &format!("task {kill}"), 1));
            boundary = 1;
        }
        let run = begun.last().unwrap().clone();
        boundary += 1 + kill % 5;
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
        for event in events.iter().map(ServerSentEvent::json) {
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
        assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
    }
}

/// A run of another process can be watched to its end.
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
        (endpoint.open_streams() == 1).then_some(())
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
    let again = scripted([Reply::endless()]);
    drop(server);
    let server = serve(&host, &again);
    let id = streamed(&server, "by the server", 2);
    let cancelled = host.run(&["runs", "cancel", &id]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let watched = host.run(&["runs", "watch", &id]);
    assert_eq!(watched.code, Some(130), "{watched:?}");
    let listed = host.run(&["runs", "--json", "--last", "1"]).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed["id"], &listed["reason"]),
        (&json!(id), &json!("cancelled"))
    );
}

/// A client that reads nothing holds up neither its run nor anybody else's.
#[test]
fn a_client_that_does_not_read_delays_no_other_client() {
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

/// A WebSocket has the same events and ends with the run.
#[test]
fn a_socket_tells_what_happens_and_closes() {
    let host = host("");
    let endpoint = scripted([answers("yes")]);
    let server = serve(&host, &endpoint);
    let answer = server.post("/v1/agent", &ask("t")).good();
    let run = answer["id"].as_str().unwrap();
    let mut socket = TcpStream::connect(server.address().trim_start_matches("http://")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        socket,
        "GET /v1/runs/{run}/socket HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let mut told = Vec::new();
    socket.read_to_end(&mut told).unwrap();
    let text = String::from_utf8_lossy(&told);
    assert!(text.starts_with("HTTP/1.1 101"), "{text}");
    for line in Records::of(&host).lines(run) {
        // In the middle of a reply, its place stands behind it.
        let line = line.strip_suffix('}').unwrap();
        assert!(text.contains(line), "{line}: {text}");
    }
    // A frame of 2 bytes for the code 1000, and of the reason.
    let close = told.iter().rposition(|byte| *byte == 0x88).unwrap();
    let frame = &told[close..];
    assert_eq!(usize::from(frame[1]), frame.len() - 2, "{text}");
    assert_eq!(frame[2..4], 1_000_u16.to_be_bytes(), "{text}");
}

/// A connection with half a request does not block other clients.
#[test]
fn half_requests_block_no_other_client() {
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

/// A refusal that says what is wrong, and when to come again.
fn refused(answered: &Answered, why: &str) {
    assert_eq!(answered.status, 503, "{answered:?}");
    assert!(answered.headers.contains_key("retry-after"), "{answered:?}");
    assert!(answered.text.contains(why), "{why}: {answered:?}");
}

fn ready(server: &Server) {
    until("readiness", || {
        (server.get("/readyz").status == 200).then_some(())
    });
}

/// The disk is full: what was acknowledged is there, nothing new is taken, and when there is room all of it
/// goes on without a restart.
#[test]
fn a_full_disk_loses_nothing() {
    const FULL: &str = "nothing can be written to the database";
    let host = host("[storage]\npatience_ms = 500\n");
    let long = "words ".repeat(60);
    let endpoint = scripted([
        answers("kept"),
        answers(long.as_str()).delayed_ms(0, 50),
        answers("later"),
        answers("later"),
    ]);
    let mut server = serve(&host, &endpoint);
    let kept = server.post("/v1/agent", &ask("first")).good()["id"].clone();
    let kept = kept.as_str().unwrap();
    let running = streamed(&server, "second", 6);
    let log = host.path().join(".state/toolhold.db-wal");
    server.limit_files(Some(log.metadata().unwrap().len()));
    assert_eq!(server.post("/v1/agent", &ask("third")).status, 503);
    refused(&server.get("/readyz"), FULL);
    refused(&server.post("/v1/agent", &ask("third")), FULL);
    assert_eq!(server.post("/v1/sessions", &json!({})).status, 503);
    let shown = server.get(&format!("/v1/runs/{kept}")).good();
    assert_eq!(shown["answer"]["output"], "kept");
    until("the run that was going on to stop", || {
        let shown = server.get(&format!("/v1/runs/{running}")).good();
        (shown["state"] == "parked").then_some(())
    });

    server.limit_files(None);
    ready(&server);
    let events = server.get(&format!("/v1/runs/{running}/events")).events();
    let done = events.last().unwrap().json();
    assert_eq!(done["output"], "later", "{done} {}", server.said());
    let fourth = server.post("/v1/agent", &ask("fourth")).good();
    assert_eq!(fourth["output"], "later");
    assert_eq!(endpoint.requests().len(), 4, "the third was never begun");

    server.kill();
    let server = serve(&host, &endpoint);
    let listed = server.get("/v1/runs").good();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 3);
    for run in [kept, &running] {
        assert_eq!(host.run(&["runs", "replay", run]).code, Some(0), "{run}");
    }
    assert_eq!(host.run(&["audit", "verify"]).code, Some(0));
}

/// Decides about a call that waits.
fn approve(server: &Server, call: &Value) {
    let path = format!(
        "/v1/approvals/{}/{}",
        call["run"].as_str().unwrap(),
        call["call"].as_str().unwrap()
    );
    let approved = json!({"digest": call["digest"], "verdict": "approve"});
    assert_eq!(server.post(&path, &approved).status, 202);
}

fn calls_that_wait(server: &Server, number: usize) -> Vec<Value> {
    until("calls that wait", || {
        let calls = server.get("/v1/approvals").good()["calls"].take();
        let calls = calls.as_array()?;
        (calls.len() == number).then(|| calls.clone())
    })
}

/// An endpoint that is gone for a while is waited for.
#[test]
fn an_endpoint_that_comes_back_is_asked_again() {
    let host = host(
        "[decisions]\nalways = [\"calculator\"]\n\
         [endpoints.default]\nattempts = 50\nbackoff_ms = 100\nbreaker_failures = 0\n",
    );
    let [call, answer] = two_plus_two();
    let endpoint = scripted([call]);
    let server = serve(&host, &endpoint);
    let run = streamed(&server, "What is 2+2?", 1);
    let waiting = calls_that_wait(&server, 1);
    let address = endpoint.address();
    drop(endpoint);
    approve(&server, &waiting[0]);
    let path = format!("/v1/runs/{run}/events");
    until("the result", || {
        let records = Records::of(&host).lines(&run);
        let has_result = |line: &String| line.contains("\"event\":\"tool_result\"");
        records.iter().any(has_result).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    let _back = Endpoint::start_at(&address, Scenario::new([answer]));
    let events = server.get(&path).events();
    assert_eq!(events.last().unwrap().json()["output"], "It is 4.");
}

/// An endpoint that stays away ends the run with an error that says so.
#[test]
fn an_endpoint_that_stays_away_is_the_reason_of_a_runs_end() {
    let host = host("[endpoints.default]\nattempts = 2\nbackoff_ms = 50\n");
    let endpoint = scripted([]);
    let server = serve(&host, &endpoint);
    drop(endpoint);
    let refused = server.post("/v1/agent", &ask("t"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    let listed = server.get("/v1/runs").good();
    let run = listed["runs"][0]["id"].as_str().unwrap().to_owned();
    let answer = server.get(&format!("/v1/runs/{run}")).good()["answer"].clone();
    assert_eq!(answer["reason"], "model");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("cannot reach the model endpoint"), "{error}");
    let told = refused.json()["error"]["message"].clone();
    assert_eq!(told, format!("run {run}: {error}"));
}

/// The first client gets its error within three seconds, and later ones get it at once.
#[test]
fn an_endpoint_that_accepts_no_connection_is_told_soon_and_then_at_once() {
    let host = host("");
    let gone = scripted([]);
    let url = gone.base_url();
    drop(gone);
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let asked = |most: Duration| {
        let begun = Instant::now();
        let answered = server.post("/v1/agent", &ask("t"));
        let took = begun.elapsed();
        assert!(took <= most, "{took:?}: {answered:?}");
        assert_eq!(answered.status, 503, "{answered:?}");
        assert!(answered.headers.contains_key("retry-after"), "{answered:?}");
        answered.text
    };
    asked(Duration::from_secs(3));
    for _ in 0..3 {
        let text = asked(Duration::from_secs(1));
        assert!(text.contains("opens no connection"), "{text}");
    }
    has_tools_called(&server);
}

/// Requests that need no model work without one.
fn has_tools_called(server: &Server) {
    let listed = server.get("/v1/tools").good();
    let names = listed["tools"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|tool| tool["name"].clone()).collect();
    assert!(names.contains(&json!("calculator.evaluate")), "{names:?}");
    let body = json!({"arguments": {"expression": "2+2"}});
    let made = server.post("/v1/tools/calculator.evaluate", &body).good();
    assert_eq!(made["result"], json!({"value": "4"}));
    let run = made["run"].as_str().unwrap();
    let record = server.get(&format!("/v1/runs/{run}")).good();
    assert_ne!(record["answer"]["reason"], "model", "{record}");
    for path in ["/v1/modules", "/v1/approvals", "/v1/runs", "/v1/requests"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

/// The server is there before its endpoint is, which knows the model's name.
#[test]
fn a_server_waits_for_the_endpoint_that_it_starts_without() {
    let host = host("");
    let gone = scripted([]);
    let (address, url) = (gone.address(), gone.base_url());
    drop(gone);
    let server = Server::start(&host, &["--base-url", &url]);
    let not_yet = server.get("/readyz");
    refused(&not_yet, "no agent can run");
    // Without a key, the message names no agent.
    assert!(!not_yet.text.contains("default"), "{not_yet:?}");
    refused(&server.post("/v1/agent", &ask("t")), "has not answered yet");
    has_tools_called(&server);
    assert_eq!(
        server
            .post("/v1/agent", &json!({"agent": "no", "messages": []}))
            .status,
        404
    );
    let models = server.get("/v1/models").good();
    assert_eq!(models["data"][0]["id"], "default");
    assert_eq!(models["data"][0]["model"], "");
    until("why", || {
        server.said().contains("cannot reach").then_some(())
    });
    let _back = Endpoint::start_at(&address, Scenario::new([answers("here")]));
    ready(&server);
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "here");
    let model = server.get("/v1/models/default").good();
    assert_eq!(model["model"], "scripted");
}

/// Runs that wait for a person need no place, and go on in turn.
#[test]
fn runs_that_wait_for_a_person_hold_up_no_others() {
    const RUNS: usize = 20;
    let host = host(
        "[decisions]\nalways = [\"calculator\"]\n\
         [serve]\nconcurrent_runs = 1\nkey_concurrent_runs = 1\nqueue_timeout_ms = 20000\nkey_requests_per_minute = 0\n",
    );
    let scenario = Scenario::new([
        answers("quick").expecting(Expect::text("be quick")),
        answers("done").expecting(Expect::text(result(1))),
        calls([("calculator.evaluate", json!({"expression": expression(1)}))]),
    ]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::FirstMatch));
    let server = serve(&host, &endpoint);
    let runs: Vec<String> = (0..RUNS)
        .map(|number| streamed(&server, &format!("task {number}"), 1))
        .collect();
    let waiting = calls_that_wait(&server, RUNS);
    assert_eq!(
        server.post("/v1/agent", &ask("be quick")).good()["output"],
        "quick"
    );
    // The answer may arrive a moment before the place is free.
    until("both over", || {
        let load = server.get("/readyz").good();
        (load["active"] == 0 && load["waiting"] == 0).then_some(())
    });
    for call in &waiting {
        approve(&server, call);
    }
    for run in runs {
        let events = server.get(&format!("/v1/runs/{run}/events")).events();
        assert_eq!(events.last().unwrap().json()["output"], "done");
    }
    assert_eq!(server.post("/v1/agent", &ask("be quick")).status, 200);
}

/// A run whose agent was taken out of the configuration waits for it.
#[test]
fn a_run_whose_agent_is_gone_goes_on_when_there_is_one_again() {
    let rules = "[decisions]\nalways = [\"calculator\"]\n";
    let counting = format!("{rules}[agents.counter]\ndescription = \"Counts\"\n");
    let host = host(&counting);
    let call = calls([("calculator.evaluate", json!({"expression": expression(1)}))]);
    let done = answers("done").expecting(Expect::text(result(1)));
    let endpoint = Endpoint::start(Scenario::new([done, call]).in_order(ReplyOrder::FirstMatch));
    let mut server = serve(&host, &endpoint);
    let mut task = ask("count");
    task["agent"] = "counter".into();
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let path = format!("/v1/runs/{}", begun[0].json()["run"].as_str().unwrap());
    let waiting = calls_that_wait(&server, 1);
    server.kill();

    host.write("toolhold.toml", rules);
    let server = serve(&host, &endpoint);
    until("why it waits", || {
        server.said().contains("cannot go on yet").then_some(())
    });
    approve(&server, &waiting[0]);
    assert_eq!(server.get(&path).good()["state"], "parked");
    host.write("toolhold.toml", &counting);
    let ended = until("its end", || {
        let run = server.get(&path).good();
        (run["state"] == "done").then_some(run)
    });
    assert_eq!(ended["reason"], "output", "{ended}");
}

/// The first decision about a call holds, also while no server drives its run; the second one fails.
#[test]
fn first_decision_about_a_call_of_a_killed_server_holds() {
    let host = host("[decisions]\nalways = [\"calculator\"]\n");
    let call = calls([("calculator.evaluate", json!({"expression": expression(1)}))]);
    let refused = answers("was refused").expecting(Expect::text("never do that"));
    let endpoint = Endpoint::start(Scenario::new([refused, call]).in_order(ReplyOrder::FirstMatch));
    let mut server = serve(&host, &endpoint);
    let run = streamed(&server, "count", 1);
    let waiting = calls_that_wait(&server, 1);
    server.kill();

    let id = waiting[0]["call"].as_str().unwrap();
    let first = host.run(&["approvals", "refuse", id, "never do that"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let second = host.run(&["approvals", "approve", id]);
    assert_eq!(second.code, Some(1), "{second:?}");
    let told = "refused by toolhold approvals: never do that";
    assert!(second.stderr.contains(told), "{second:?}");

    let server = serve(&host, &endpoint);
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(events.last().unwrap().json()["output"], "was refused");
    let audit = host.run(&["audit", "search"]).stdout;
    assert!(audit.contains("\"verdict\":\"refuse\""), "{audit}");
}

/// More clients connect than the process may have open files, and send half a request: health and administration are
/// answered at once, and so is everybody who sends a whole request.
#[test]
fn half_open_connections_keep_nobody_out() {
    // Each test is a process of its own, and the server inherits its limit.
    let limited = Command::new("prlimit")
        .args(["--nofile=512:512", "--pid", &std::process::id().to_string()])
        .status();
    assert!(limited.expect("prlimit").success());
    let host = host("");
    let endpoint = scripted([answers("served")]);
    let mut server = serve(&host, &endpoint);
    server.connect_anew();
    let address = server.address().trim_start_matches("http://").to_owned();
    let mut silent = VecDeque::new();
    for _ in 0..1_200 {
        let mut client = TcpStream::connect(&address).expect("a connection");
        // One that was closed for another says so here or later.
        let _ = client.write_all(b"POST /v1/agent HTTP/1.1\r\nhost: 127");
        silent.push_back(client);
        // This process has a limit, too.
        if silent.len() > 300 {
            silent.pop_front();
        }
    }
    until("what it says of it", || {
        let said = server.said();
        said.contains("connections without a request are closed")
            .then_some(())
    });
    let open = server.open_files();
    assert!(open < 256, "{open} of 512 files are open");
    let begun = Instant::now();
    for path in ["/healthz", "/readyz", "/v1/modules", "/v1/models"] {
        assert_eq!(server.get(path).status, 200, "{path}: {}", server.said());
    }
    let answer = server.post("/v1/agent", &ask("anybody there?")).good();
    assert_eq!(answer["output"], "served");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    drop(silent);
}

/// Neither the last error nor that of a limit which the run met because of it.
#[test]
fn the_first_error_is_returned_at_every_api() {
    let unknown = |name: &str| calls([(name, json!({"expression": "2+2"}))]);
    let refused = |n: usize| calls([("calculator.evaluate", json!({"expression": n}))]);
    let three = || {
        [
            unknown("calc.first"),
            Reply::content("I think"),
            unknown("calc.last"),
        ]
    };
    let four = || (0..4).map(refused);
    let endpoint = scripted(
        (0..3)
            .flat_map(|_| three())
            .chain((0..3).flat_map(|_| four())),
    );
    let host = host("[run]\nmax_steps = 4\nrepair = false\n");
    let server = serve(&host, &endpoint);
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": "2+2?"}]});
    let response = json!({"model": "default", "input": "2+2?"});
    let apis = [
        ("/v1/agent", ask("2+2?"), "/error"),
        ("/v1/chat/completions", chat, "/toolhold/error"),
        ("/v1/responses", response, "/toolhold/error"),
    ];
    for (path, body, _) in &apis {
        let answer = server.post(path, body);
        let text = &answer.text;
        let first = text.find("calc.first");
        let last = text.find("calc.last");
        assert!(first.is_some() && first < last, "{path}: {answer:?}");
    }
    for (path, body, at) in &apis {
        let answer = server.post(path, body).good();
        let error = answer.pointer(at).and_then(Value::as_str);
        let error = error.unwrap_or_else(|| panic!("{path} has no {at}: {answer}"));
        for part in [
            "run.max_steps",
            "calculator.evaluate failed too often, first with",
        ] {
            assert!(error.contains(part), "{path}: {part}: {answer}");
        }
    }
}
