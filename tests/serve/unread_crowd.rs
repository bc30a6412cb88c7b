//! Crowds of connections whose clients stop reading, where an answer is more than what is recorded: the server keeps a
//! bounded amount for all of them, and another key is served meanwhile.

use super::{answers, calls, host, scripted, serve};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::scale;
use support::server::Server;
use support::until;

/// Most unsent bytes of all keys, which each test's server has.
const CONFIG: &str = "[serve]\nunsent_bytes = 16_777_216\nkey_requests_per_minute = 100_000\nconcurrent_runs = 96\n\
    key_concurrent_runs = 64\n";
/// Characters of a text that no socket holds.
const LONG: usize = 3_200_000;
/// Bound of a server's growth: the unsent bytes, one answer beside the shares, and what its allocator keeps for later.
const GROWTH: u64 = 96 << 20;

fn key(host: &Host, name: &str) -> String {
    let made = host.run(&["keys", "create", name]).stdout;
    made.trim().to_owned()
}

/// A connection whose client sends this request and reads nothing.
fn silent(server: &Server, key: &str, request: &str, body: Option<&Value>) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4 << 10).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// Another key asks, and is answered in time.
fn is_served(server: &mut Server, key: &str) {
    server.use_key(key);
    let asked = Instant::now();
    server.get("/v1/runs").good();
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "another key waits"
    );
}

/// Waits until `runs` runs of the key are over.
fn until_over(server: &mut Server, key: &str, runs: usize) {
    server.use_key(key);
    until("the end of all runs", || {
        let listed = server.get("/v1/runs?limit=100").good();
        let listed = listed["runs"].as_array()?;
        let over = listed.iter().filter(|run| run["state"] == "done");
        (over.count() >= runs).then_some(())
    });
}

/// What the server has more than before, as soon as that is within the bound, or after some seconds: what runs have taken
/// while they went on is given back by then, and the connections are still there.
fn settled(server: &mut Server, other: &str, before: u64, bound: u64) -> u64 {
    let began = Instant::now();
    loop {
        is_served(server, other);
        let grown = server.resident_bytes().saturating_sub(before);
        if grown <= bound || began.elapsed() > Duration::from_secs(5) {
            return grown;
        }
        sleep(Duration::from_millis(100));
    }
}

/// Lists are made before it is known how long they are. They wait for room, too, and those that wait are as many as their
/// client has connections.
#[test]
fn lists_that_wait_for_room_are_not_there_already() {
    let host = host(&format!("{CONFIG}[decisions]\nalways = [\"text\"]\n"));
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let mut server = serve(&host, &scripted([]));
    let call = json!({"arguments": {"text": "x".repeat(LONG)}});
    let _waits = silent(&server, &ann, "POST /v1/tools/text.reverse", Some(&call));
    server.use_key(&ann);
    until("the call", || {
        let waiting = server.get("/v1/approvals").good();
        let call = waiting["calls"].as_array()?.first()?;
        (call["arguments"]["text"].as_str()?.len() == LONG).then_some(())
    });

    let before = server.resident_bytes();
    let connections: Vec<_> = (0..200)
        .map(|_| silent(&server, &ann, "GET /v1/approvals", None))
        .collect();
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(4) {
        is_served(&mut server, &bob);
        most = most.max(server.resident_bytes());
        sleep(Duration::from_millis(20));
    }
    // Each of 200 lists has 3 MB.
    let grown = most.saturating_sub(before);
    assert!(grown < 2 * GROWTH, "{} MiB more", grown >> 20);
    drop(connections);
    server.use_key(&ann);
    until("a list for the key itself", || {
        (server.get("/v1/approvals").status == 200).then_some(())
    });
}

/// What a stream tells at its end is made of the answer, and of the calls that the client is to make: their arguments are as
/// long as a model writes them.
#[test]
fn streams_that_end_with_long_calls_of_the_clients_tools_are_bounded() {
    const BOUND: u64 = 140 << 20;
    // Without a bound, twelve have 190 MB.
    let streams = scale(12, 16);
    let host = host(CONFIG);
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let mut reply = calls([("keep", json!({"text": "x".repeat(LONG)}))]);
    reply.piece = Some(LONG / 2);
    let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
    let mut server = serve(&host, &endpoint);
    let tool = json!({"type": "function", "name": "keep", "description": "Keeps a text",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}});
    let asked = json!({"model": "default", "input": "t", "tools": [tool], "stream": true});
    // One that is read whole: what the first run of a server takes stays.
    server.use_key(&ann);
    let told = server.post("/v1/responses", &asked);
    let events = told.events();
    let last = events.iter().rev().nth(1).unwrap();
    assert_eq!(last.event, "response.completed", "{:.600}", last.data);
    let output = &last.json()["response"]["output"];
    let call = output.as_array().unwrap().last().unwrap();
    assert!(call["arguments"].as_str().unwrap().len() > LONG, "whole");
    drop(told);

    let before = server.resident_bytes();
    let connections: Vec<_> = (0..streams)
        .map(|_| silent(&server, &ann, "POST /v1/responses", Some(&asked)))
        .collect();
    until_over(&mut server, &ann, 1 + streams);
    // The streams come to their ends one after another, each when there is room for the run's last event.
    sleep(Duration::from_secs(1));
    // In each of the streams the arguments are in the turn, in an item and in three events that wait.
    let grown = settled(&mut server, &bob, before, BOUND);
    assert!(grown <= BOUND, "{} MiB more", grown >> 20);
    drop(connections);
}

/// Small events are kept for followers that are behind, also those of ended runs until each follower has read them: up to 128
/// events a run.
#[test]
fn events_that_followers_have_not_heard_of_are_bounded_when_their_runs_are_over() {
    const RUNS: usize = 30;
    /// In each run 160 events, of which a socket takes the first ones.
    const PIECE: usize = 10_000;
    const THOUGHT: usize = 160 * PIECE;
    /// What is unsent, which is next to nothing here, and what an allocator keeps: 128 events of all runs have 38 MB.
    const BOUND: u64 = 30 << 20;
    let host = host(CONFIG);
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let thinks = Reply {
        content: Some(json!({"calls": [], "output": "small"}).to_string()),
        reasoning: Some("thought ".repeat(THOUGHT / 8)),
        piece: Some(PIECE),
        ..Reply::default()
    };
    let endpoint = Endpoint::start(Scenario::new([thinks]).in_order(ReplyOrder::Repeat));
    let mut server = serve(&host, &endpoint);
    let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
    // Some that are read whole, at the same time: what they leave is the allocator's.
    server.use_key(&ann);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let told = server.post("/v1/agent", &task).events();
                assert_eq!(told.last().unwrap().json()["output"], "small");
            });
        }
    });

    let before = server.resident_bytes();
    let connections: Vec<_> = (0..RUNS)
        .map(|_| silent(&server, &ann, "POST /v1/agent", Some(&task)))
        .collect();
    until_over(&mut server, &ann, 4 + RUNS);
    let grown = settled(&mut server, &bob, before, BOUND);
    assert!(grown <= BOUND, "{} MiB more", grown >> 20);
    drop(connections);
}

/// A client that takes a byte now and then is never silent, and so keeps its connection: it is bounded as one that reads
/// nothing, and another key follows, lists and asks meanwhile.
#[test]
fn readers_of_a_byte_at_a_time_take_no_more_than_their_share() {
    let host = host(CONFIG);
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let endpoint = scripted([answers("small")]);
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let call = json!({"arguments": {"text": "x".repeat(LONG)}});
    let called = server.post("/v1/tools/text.reverse", &call).good();
    let run = called["run"].as_str().unwrap().to_owned();
    server.use_key(&bob);
    let asked = json!({"messages": [{"role": "user", "content": "t"}]});
    let own = server.post("/v1/agent", &asked).good();
    let own = format!("/v1/runs/{}", own["id"].as_str().unwrap());

    let before = server.resident_bytes();
    let mut connections: Vec<_> = ["", "/events"]
        .iter()
        .cycle()
        .take(60)
        .map(|what| silent(&server, &ann, &format!("GET /v1/runs/{run}{what}"), None))
        .collect();
    for stream in &connections {
        stream.set_nonblocking(true).unwrap();
    }
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(4) {
        for stream in &mut connections {
            // It may have nothing yet.
            let read = stream.read(&mut [0]);
            assert!(!matches!(read, Ok(0)), "it was closed");
        }
        is_served(&mut server, &bob);
        let asked = Instant::now();
        assert_eq!(server.get(&own).good()["answer"]["output"], "small");
        let followed = server.get(&format!("{own}/events")).events();
        assert_eq!(followed.last().unwrap().json()["output"], "small");
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "another key waits"
        );
        most = most.max(server.resident_bytes());
        sleep(Duration::from_millis(50));
    }
    let grown = most.saturating_sub(before);
    assert!(grown < GROWTH, "{} MiB more", grown >> 20);
}
