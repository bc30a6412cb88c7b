//! Clients that close their connection and send the request again, as OpenAI's SDKs do after a time-out.

use super::unread::asked;
use super::{answers, ask, calls, host, scripted, serve, two_plus_two};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::server::{Server, ServerSentEvent};
use support::until;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const AGENT: &str = "/v1/agent";

/// The header with which OpenAI's SDKs count how often they sent a request before.
const COUNT: &str = "x-stainless-retry-count";

fn chat(text: &str) -> Value {
    json!({"model": "default", "messages": [{"role": "user", "content": text}]})
}

fn response(text: &str) -> Value {
    json!({"model": "default", "input": text})
}

/// A connection whose client has sent this request and waits for the answer.
fn sent(server: &Server, path: &str, body: &Value, headers: &[(&str, &str)]) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let headers: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let headers = headers.concat();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// A call that waits for a person.
fn waiting(server: &Server) -> Value {
    until("the call", || {
        let calls = server.get("/v1/approvals").good();
        calls["calls"].as_array()?.first().cloned()
    })
}

fn approve(server: &Server, call: &Value) {
    let [run, id] = ["run", "call"].map(|name| call[name].as_str().unwrap());
    let decision = json!({"digest": call["digest"], "verdict": "approve"});
    let decided = server.post(&format!("/v1/approvals/{run}/{id}"), &decision);
    assert_eq!(decided.status, 202, "{decided:?}");
}

fn runs(server: &Server) -> Vec<Value> {
    let listed = server.get("/v1/runs").good();
    listed["runs"].as_array().unwrap().clone()
}

fn turns(server: &Server) -> String {
    let session = server.post("/v1/sessions", &json!({})).good();
    format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap())
}

/// An endpoint that gives these replies again and again.
fn repeated(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
    Endpoint::start(Scenario::new(replies).in_order(ReplyOrder::Repeat))
}

#[test]
fn a_client_that_times_out_twice_makes_one_append() {
    let host = Host::new();
    host.ship("files").write("data/.keep", "").write(
        "toolhold.toml",
        "[decisions]\nalways = [\"files.write\"]\n[module.files]\n\
         directories = [{ host = \"data\", guest = \"/data\", access = \"read-write\" }]\n",
    );
    let approved = host.run(&["modules", "approve", "files", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let append = json!({"path": "a.txt", "content": "once\n", "mode": "append"});
    let endpoint = repeated([calls([("files.write", append)]), answers("Done.")]);
    let server = serve(&host, &endpoint);
    let asked = [
        (CHAT.to_owned(), chat("Append it.")),
        (RESPONSES.to_owned(), response("Append it.")),
        (AGENT.to_owned(), ask("Append it.")),
        (turns(&server), ask("Append it.")),
    ];
    for (before, (path, body)) in asked.iter().enumerate() {
        let first = sent(&server, path, body, &[(COUNT, "0")]);
        let call = waiting(&server);
        drop(first);
        let mut second = sent(&server, path, body, &[(COUNT, "1")]);
        let patience = Duration::from_millis(300);
        second.set_read_timeout(Some(patience)).unwrap();
        assert!(second.read(&mut [0; 64]).is_err(), "{path}: it timed out");
        drop(second);
        approve(&server, &call);
        server
            .ask(Method::POST, path, Some(body), &[(COUNT, "2")])
            .good();
        assert_eq!(runs(&server).len(), before + 1, "{path}");
    }
    let appended = std::fs::read_to_string(host.path().join("data/a.txt")).unwrap();
    assert_eq!(appended, "once\n".repeat(asked.len()));
    assert_eq!(endpoint.requests().len(), 2 * asked.len());
}

/// The id of the answer that a stream of this path belongs to.
fn id_of(path: &str, event: &ServerSentEvent) -> Value {
    let event = event.json();
    match path {
        CHAT => event["id"].clone(),
        RESPONSES => event["response"]["id"].clone(),
        _ => event["run"].clone(),
    }
}

/// The answer of a stream of this path, and what is around it.
fn text_of(path: &str, events: &[ServerSentEvent]) -> String {
    let (end, pieces) = events.split_last().unwrap();
    if path == RESPONSES {
        return pieces.last().unwrap().data.clone();
    }
    if path != CHAT {
        return end.data.clone();
    }
    assert_eq!(end.data, "[DONE]");
    let pieces = pieces.iter().map(|piece| {
        let piece = piece.json();
        let content = piece["choices"][0]["delta"]["content"].as_str();
        content.unwrap_or_default().to_owned()
    });
    pieces.collect()
}

#[test]
fn a_stream_that_is_asked_for_again_begins_at_its_start() {
    let host = host("[decisions]\nalways = [\"calculator\"]\n");
    let endpoint = repeated(two_plus_two());
    let server = serve(&host, &endpoint);
    let asked = [
        (CHAT.to_owned(), chat("What is 2+2?")),
        (RESPONSES.to_owned(), response("What is 2+2?")),
        (AGENT.to_owned(), ask("What is 2+2?")),
        (turns(&server), ask("What is 2+2?")),
    ];
    for (before, (path, mut body)) in asked.into_iter().enumerate() {
        body["stream"] = true.into();
        let begun = ["0", "1"].map(|count| {
            let headers = [(COUNT, count)];
            let events = server.first_events_with(Method::POST, &path, Some(&body), &headers, 1);
            id_of(&path, &events[0])
        });
        assert!(begun[0].is_string(), "{path}: {begun:?}");
        assert_eq!(begun[0], begun[1], "{path}");
        approve(&server, &waiting(&server));
        let last = server.ask(Method::POST, &path, Some(&body), &[(COUNT, "2")]);
        let events = last.events();
        assert_eq!(id_of(&path, &events[0]), begun[0], "{path}: {last:?}");
        let text = text_of(&path, &events);
        assert!(text.contains("It is 4."), "{path}: {last:?}");
        assert_eq!(runs(&server).len(), before + 1, "{path}");
    }
    assert_eq!(endpoint.requests().len(), 8);
}

#[test]
fn a_request_after_the_answer_makes_a_run_of_its_own() {
    let (host, endpoint) = (host(""), scripted([answers("one"), answers("two")]));
    let server = serve(&host, &endpoint);
    for (count, output) in [("0", "one"), ("1", "two")] {
        let answer = server.ask(Method::POST, AGENT, Some(&ask("t")), &[(COUNT, count)]);
        assert_eq!(answer.good()["output"], output);
    }
}

#[test]
fn another_request_never_takes_up_a_run() {
    let host = host("");
    let endpoint = scripted([
        Reply::never(),
        answers("of bob"),
        answers("not sent again"),
        answers("another text"),
        answers("another path"),
    ]);
    let [ann, bob] = ["ann", "bob"].map(|name| {
        let made = host.run(&["keys", "create", name]);
        made.stdout.trim().to_owned()
    });
    let mut server = serve(&host, &endpoint);
    let authorization = format!("Bearer {ann}");
    let headers = [("authorization", &*authorization), (COUNT, "0")];
    let first = sent(&server, AGENT, &ask("t"), &headers);
    until("the run", || (endpoint.requests().len() == 1).then_some(()));
    drop(first);
    let path = {
        server.use_key(&ann);
        turns(&server)
    };
    for (key, path, text, count, output) in [
        (&bob, AGENT, "t", "1", "of bob"),
        (&ann, AGENT, "t", "0", "not sent again"),
        (&ann, AGENT, "u", "1", "another text"),
        (&ann, &*path, "t", "1", "another path"),
    ] {
        server.use_key(key);
        let answer = server.ask(Method::POST, path, Some(&ask(text)), &[(COUNT, count)]);
        assert_eq!(answer.good()["output"], output);
    }
}

/// A client that leaves, and the reason with which its run ends.
struct LeavingClient {
    path: &'static str,
    is_streamed: bool,
    header: (&'static str, &'static str),
    reason: &'static str,
}

fn leaving(path: &'static str, is_streamed: bool, reason: &'static str) -> LeavingClient {
    LeavingClient {
        path,
        is_streamed,
        header: (COUNT, "0"),
        reason,
    }
}

fn ends_of_runs_whose_clients_leave(on_disconnect: &str, clients: &[LeavingClient]) {
    let config =
        format!("[serve]\non_disconnect = \"{on_disconnect}\"\ndisconnect_wait_ms = 100\n");
    let host = host(&config);
    let endpoint = Endpoint::start(
        Scenario::new([
            Reply::never().expecting(Expect::text("task of a cancelled run")),
            // Long after a client that left is given up.
            answers("late").delayed_ms(1_500, 0),
        ])
        .in_order(ReplyOrder::FirstMatch),
    );
    let server = serve(&host, &endpoint);
    let names = clients.iter().enumerate();
    let names = names.map(|(nth, client)| match client.reason {
        "cancelled" => format!("task of a cancelled run {nth}"),
        _ => format!("task {nth}"),
    });
    let names: Vec<String> = names.collect();
    let connections = clients.iter().zip(&names).map(|(client, name)| {
        let mut body = match client.path {
            RESPONSES => response(name),
            CHAT => chat(name),
            _ => ask(name),
        };
        body["stream"] = client.is_streamed.into();
        sent(&server, client.path, &body, &[client.header])
    });
    let connections: Vec<TcpStream> = connections.collect();
    until("the runs", || {
        (runs(&server).len() == clients.len()).then_some(())
    });
    for (client, mut connection) in clients.iter().zip(connections) {
        if client.is_streamed {
            // The stream has begun, and with it the ids of its events.
            connection.read_exact(&mut [0]).unwrap();
        }
    }
    let ended = until("their ends", || {
        let runs = runs(&server);
        runs.iter()
            .all(|run| run["state"] == "done")
            .then_some(runs)
    });
    for (client, name) in clients.iter().zip(&names) {
        let run = ended.iter().find(|run| run["task"] == **name).unwrap();
        let (path, is_streamed) = (client.path, client.is_streamed);
        assert_eq!(
            run["reason"], client.reason,
            "{on_disconnect}: {path}, streamed: {is_streamed}"
        );
        if client.reason == "cancelled" {
            let shown = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()));
            assert!(shown.text.contains("serve.on_disconnect"), "{shown:?}");
        }
    }
}

/// The table of docs/server.md.
#[test]
fn a_run_ends_with_its_client_as_the_operator_says() {
    let keyed = |reason| LeavingClient {
        header: ("idempotency-key", "one"),
        ..leaving(CHAT, false, reason)
    };
    let rows = [
        (
            "wait",
            vec![
                leaving(CHAT, false, "cancelled"),
                leaving(CHAT, true, "cancelled"),
                leaving(RESPONSES, true, "cancelled"),
                leaving(AGENT, false, "cancelled"),
                leaving(AGENT, true, "output"),
                keyed("output"),
            ],
        ),
        (
            "continue",
            vec![
                leaving(CHAT, true, "output"),
                leaving(AGENT, false, "output"),
                keyed("output"),
            ],
        ),
        (
            "cancel",
            vec![
                leaving(CHAT, true, "cancelled"),
                leaving(AGENT, false, "cancelled"),
                leaving(AGENT, true, "cancelled"),
                keyed("output"),
            ],
        ),
    ];
    thread::scope(|scope| {
        for (on_disconnect, clients) in &rows {
            scope.spawn(move || ends_of_runs_whose_clients_leave(on_disconnect, clients));
        }
    });
}

#[test]
fn a_run_that_another_connection_follows_outlives_its_client() {
    let host = host("[serve]\ndisconnect_wait_ms = 100\n");
    let endpoint = scripted([answers("late").delayed_ms(1_500, 0)]);
    let server = serve(&host, &endpoint);
    let first = sent(&server, CHAT, &chat("t"), &[(COUNT, "0")]);
    let run: String = until("the run", || {
        let runs = runs(&server);
        Some(runs.first()?["id"].as_str()?.to_owned())
    });
    let events = format!("/v1/runs/{run}/events");
    let mut follower = asked(&server, "", &events, "Connection: close\r\n");
    let mut began = [0; 512];
    let read = follower.read(&mut began).unwrap();
    let mut text = String::from_utf8_lossy(&began[..read]).into_owned();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    drop(first);
    follower.read_to_string(&mut text).unwrap();
    assert!(text.contains(r#""reason":"output""#), "{text}");
}

/// People take longer than clients: a call that waits for one is still there when the client was given up.
#[test]
fn a_run_that_waits_for_a_person_outlives_its_client() {
    let host = host("[serve]\ndisconnect_wait_ms = 100\n[decisions]\nalways = [\"calculator\"]\n");
    let [call, answer] = two_plus_two();
    let endpoint = scripted([call, Reply::never(), answer]);
    let server = serve(&host, &endpoint);
    let first = sent(&server, CHAT, &chat("asks a person"), &[]);
    let waits = waiting(&server);
    drop(first);
    let second = sent(&server, CHAT, &chat("asks nobody"), &[]);
    until("its request", || {
        (endpoint.requests().len() == 2).then_some(())
    });
    drop(second);
    let ended = |task: &str| {
        let runs = runs(&server);
        let run = runs.iter().find(|run| run["task"] == task)?;
        (run["state"] == "done").then(|| run["reason"].clone())
    };
    // Its client left after that of the other.
    let reason = until("the end of the second", || ended("asks nobody"));
    assert_eq!(reason, "cancelled");
    assert_eq!(waiting(&server)["call"], waits["call"]);
    approve(&server, &waits);
    let reason = until("the end of the first", || ended("asks a person"));
    assert_eq!(reason, "output");
}

/// A background response always continues, because its client asks for it later.
#[test]
fn a_response_in_the_background_outlives_its_client() {
    let host = host("[serve]\non_disconnect = \"cancel\"\n");
    let endpoint = scripted([answers("late").delayed_ms(1_500, 0)]);
    let server = serve(&host, &endpoint);
    let mut body = response("t");
    body["background"] = true.into();
    body["stream"] = true.into();
    let mut connection = sent(&server, RESPONSES, &body, &[]);
    connection.read_exact(&mut [0]).unwrap();
    drop(connection);
    let run = until("its end", || {
        let run = runs(&server).first()?.clone();
        (run["state"] == "done").then_some(run)
    });
    assert_eq!(run["reason"], "output", "{run}");
}

#[test]
fn equal_requests_under_one_key_at_the_same_time_get_one_answer() {
    let host = host("[serve]\nconcurrent_runs = 1\nkey_concurrent_runs = 1\n");
    let endpoint = scripted([
        answers("before").delayed_ms(1_000, 0),
        answers("once"),
        answers("twice"),
    ]);
    let server = serve(&host, &endpoint);
    let key = [("idempotency-key", "one")];
    let answered: Vec<Value> = thread::scope(|scope| {
        let before = scope.spawn(|| server.post(AGENT, &ask("before")).good());
        until("the run before", || {
            (endpoint.requests().len() == 1).then_some(())
        });
        // The first of them waits for its place, and the others wait for it.
        let equal = [(); 4].map(|()| {
            scope.spawn(|| {
                server
                    .ask(Method::POST, AGENT, Some(&ask("t")), &key)
                    .good()
            })
        });
        let answered = equal.map(|it| it.join().unwrap()).to_vec();
        assert_eq!(before.join().unwrap()["output"], "before");
        answered
    });
    assert_eq!(answered[0]["output"], "once");
    assert!(answered.iter().all(|it| *it == answered[0]), "{answered:?}");
    assert_eq!(endpoint.requests().len(), 2);
}
