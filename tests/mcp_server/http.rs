//! Both eras over streamable HTTP.

use super::sessions::ENDLESS;
use super::wire::{HttpMcpServer, events, modern_headers, ping};
use super::{MODERN, answers, call, drop_in, host, initialize, modern, request};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::server::health_until_refused;
use support::until;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn answer(id: i64) -> Value {
    modern(id, "tools/call", json!({"name": "probe.answer"}), json!({}))
}

/// A session's stream, which the server has by now: a request alone may be overtaken by the next one.
fn listening(web: &HttpMcpServer, session: &[(&str, &str)]) -> BufReader<TcpStream> {
    let mut stream = BufReader::new(web.open("GET", session, b""));
    let mut status = String::new();
    stream.read_line(&mut status).unwrap();
    assert!(status.contains(" 200 "), "{status}");
    stream
}

fn steps(id: i64, meta: Value) -> Value {
    modern(
        id,
        "tools/call",
        json!({"name": "probe.steps", "_meta": meta}),
        json!({}),
    )
}

/// A server of runs does the same: `tests/serve/mod.rs`.
#[test]
fn a_server_that_says_that_it_serves_handles_signals() {
    let host = host();
    let web = HttpMcpServer::start(&host, &[], &[]);
    assert!(web.handles(&[1, 2, 15]));
}

/// A server of runs does the same: `tests/serve/no_place.rs`.
#[test]
fn clients_are_refused_with_503_while_no_descriptor_is_left() {
    let host = host();
    let web = HttpMcpServer::start(&host, &[], &[]);
    web.limit_descriptors(4);
    let (served, refused) = health_until_refused(&web.address);
    let (head, body) = refused.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(head.contains("retry-after: "), "{refused}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&body["jsonrpc"], &body["id"]),
        (&json!("2.0"), &json!(null))
    );
    assert!(body["error"]["message"].is_string(), "{refused}");
    drop(served);
    until("room", || {
        let (served, _) = health_until_refused(&web.address);
        (!served.is_empty()).then_some(())
    });
}

#[test]
fn a_request_without_a_session_is_one_post() {
    let host = host();
    let web = HttpMcpServer::start(&host, &[], &[]);
    let done = web.modern(&answer(1));
    assert_eq!(
        (done.status, done.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(done.json()["result"]["structuredContent"], 42);
    assert!(done.header("mcp-session-id").is_none());
    // What is to be said before makes it a stream, which ends with the reply.
    let told = web.modern(&steps(2, json!({"progressToken": "t"})));
    let messages = told.events();
    assert_eq!(messages.last().unwrap()["result"]["structuredContent"], 3);
    assert_eq!(messages[0]["params"]["progressToken"], "t");
    // A client that accepts no stream gets only the result.
    let plain = web.modern_with(
        &steps(3, json!({"progressToken": "t"})),
        &[("accept", "application/json")],
    );
    assert_eq!(plain.json()["result"]["structuredContent"], 3);
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}});
    let accepted = web.post(&[("mcp-protocol-version", MODERN)], &notification);
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
}

#[test]
fn an_invalid_post_gets_a_status_and_a_code() {
    let host = host();
    let web = HttpMcpServer::start(&host, &["--tools", "probe"], &[]);
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/call");
    let good = answer(1);
    let no_method = modern(1, "no/such", json!({}), json!({}));
    let future = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let future = request(1, "tools/list", future);
    let unknown = modern(1, "tools/call", json!({"name": "no.such"}), json!({}));
    let bare = request(1, "tools/list", json!({}));
    let listen = json!({"notifications": {}});
    let listen = modern(1, "subscriptions/listen", listen, json!({}));
    for (headers, message, status, code) in [
        (
            vec![version, method, ("mcp-name", "probe.answer")],
            &good,
            200,
            Value::Null,
        ),
        (
            vec![version, method, ("mcp-name", "=?base64?cHJvYmUuYW5zd2Vy?=")],
            &good,
            200,
            Value::Null,
        ),
        (vec![], &good, 400, json!(-32_020)),
        (vec![version, method], &good, 400, json!(-32_020)),
        (
            vec![version, ("mcp-name", "probe.answer")],
            &good,
            400,
            json!(-32_020),
        ),
        (
            vec![version, method, ("mcp-name", "probe.spin")],
            &good,
            400,
            json!(-32_020),
        ),
        (
            vec![
                ("mcp-protocol-version", "2025-11-25"),
                method,
                ("mcp-name", "probe.answer"),
            ],
            &good,
            400,
            json!(-32_020),
        ),
        (
            vec![version, ("mcp-method", "no/such")],
            &no_method,
            404,
            json!(-32_601),
        ),
        (
            vec![version, method, ("mcp-name", "no.such")],
            &unknown,
            400,
            json!(-32_602),
        ),
        (
            vec![
                ("mcp-protocol-version", "2099-01-01"),
                ("mcp-method", "tools/list"),
            ],
            &future,
            400,
            json!(-32_022),
        ),
        (
            vec![version, ("mcp-method", "tools/list")],
            &bare,
            400,
            json!(-32_602),
        ),
        (
            vec![
                version,
                ("mcp-method", "subscriptions/listen"),
                ("accept", "application/json"),
            ],
            &listen,
            406,
            json!(-32_600),
        ),
        (vec![], &bare, 400, json!(-32_600)),
        (
            vec![("mcp-session-id", "guessed")],
            &bare,
            404,
            json!(-32_600),
        ),
        (
            vec![("content-type", "text/plain")],
            &bare,
            415,
            json!(-32_600),
        ),
        (vec![("accept", "text/html")], &bare, 406, json!(-32_600)),
    ] {
        let answer = web.post(&headers, message);
        let seen = (answer.status, answer.json()["error"]["code"].clone());
        assert_eq!(seen, (status, code), "{headers:?} {message}");
    }
    for (body, code) in [("{", -32_700), ("[]", -32_600), ("", -32_700)] {
        let answer = web.send("POST", &[], body.as_bytes());
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(code))
        );
    }
    for method in ["PUT", "OPTIONS", "PATCH"] {
        assert_eq!(web.send(method, &[], b"").status, 405, "{method}");
    }
}

#[test]
fn a_body_has_a_limit() {
    let host = host();
    host.write("small.toml", "[mcp_server]\nmessage_bytes = 2_000\n");
    let web = HttpMcpServer::start(&host, &["--config", "small.toml"], &[]);
    assert_eq!(web.send("POST", &[], &vec![b' '; 1_999]).status, 400);
    assert_eq!(web.send("POST", &[], &vec![b' '; 2_001]).status, 413);
    // One that lies about its length is not waited for with memory.
    let liar = web.send("POST", &[("content-length", "999999999999")], b"{}");
    assert_eq!(liar.status, 413);
}

#[test]
fn what_would_take_too_much_memory_is_refused_before_it_is_read() {
    let host = host();
    let limits = "[limits]\nargument_bytes = 20_000\n[modules]\nkept_bytes = 8_000_000\n";
    host.write("small.toml", limits);
    let web = HttpMcpServer::start(&host, &["--config", "small.toml"], &[]);
    let call = |arguments: Value| {
        let params = json!({"name": "probe.answer", "arguments": arguments});
        modern(1, "tools/call", params, json!({}))
    };
    let refused = web.modern(&call(json!({"x": "x".repeat(30_000)})));
    assert_eq!(refused.status, 400);
    let error = &refused.json()["error"];
    assert_eq!(error["code"], -32_602, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("limits.argument_bytes"), "{message}");

    // A text of little more than 100 kB, whose value takes a hundred times as much.
    let heavy = request("heavy", "ping", json!({"x": vec![json!([1]); 25_000]}));
    let refused = web.post(&[], &heavy);
    assert_eq!(refused.status, 503);
    let refused = refused.json();
    assert_eq!(refused["id"], "heavy", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("modules.kept_bytes"), "{message}");
    assert_eq!(web.modern(&answer(2)).status, 200);
}

#[test]
fn health_is_answered_while_all_connections_are_busy() {
    let host = host();
    host.write("few.toml", "[mcp_server]\nconnections = 3\n");
    let web = HttpMcpServer::start(&host, &["--config", "few.toml"], &[]);
    let mut busy = Vec::new();
    for _ in 0..3 {
        let id = web.session(json!({}));
        busy.push(listening(&web, &[("mcp-session-id", id.as_str())]));
    }
    for _ in 0..3 {
        let mut client = TcpStream::connect(&web.address).unwrap();
        let request = "GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"),
            "{answer}"
        );
    }
}

#[test]
fn a_foreign_origin_is_refused_before_the_body_is_read() {
    let host = host();
    let web = HttpMcpServer::start(&host, &["--tools", "probe"], &[]);
    for (headers, status) in [
        (vec![("origin", "http://localhost:3000")], 200),
        (vec![("origin", "https://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("host", "evil.example")], 403),
        (vec![("host", "localhost")], 200),
    ] {
        let answer = web.modern_with(&answer(1), &headers);
        assert_eq!(answer.status, status, "{headers:?}");
    }
    let answer = web.send("GET", &[("origin", "https://evil.example")], b"");
    assert_eq!(answer.status, 403);
}

#[test]
fn other_machines_need_the_token() {
    let host = host();
    let bare = host.run(&["mcp", "--http", "0.0.0.0:0"]);
    assert_eq!(bare.code, Some(1), "{bare:?}");
    assert!(
        bare.stderr.contains("TOOLHOLD_MCP_TOKEN"),
        "{}",
        bare.stderr
    );
    let mut short = host.command(&["mcp", "--http", "127.0.0.1:0"]);
    short.env("TOOLHOLD_MCP_TOKEN", "short");
    let short = support::host::finish(short.output().unwrap());
    assert!(
        short.code == Some(1) && short.stderr.contains("16 characters"),
        "{short:?}"
    );

    let web = HttpMcpServer::start(
        &host,
        &["--tools", "probe"],
        &[("TOOLHOLD_MCP_TOKEN", TOKEN)],
    );
    let bearer = format!("Bearer {TOKEN}");
    for (authorization, status) in [(bearer.as_str(), 200), ("Bearer wrong", 401), ("", 401)] {
        let answer = web.modern_with(&answer(1), &[("authorization", authorization)]);
        assert_eq!(answer.status, status, "{authorization}");
        if status == 401 {
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
}

#[test]
fn a_session_lives_from_initialize_to_delete() {
    let host = host();
    let web = HttpMcpServer::start(&host, &[], &[]);
    let id = web.session(json!({}));
    let session = [
        ("mcp-session-id", id.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(web.post(&session, &initialized).status, 202);
    let done = web.post(&session, &call(1, "probe.answer", json!({})));
    assert_eq!(
        done.json()["result"]["structuredContent"],
        json!({"result": 42})
    );
    let failed = web.post(&session, &call(2, "no.such", json!({})));
    assert_eq!(
        (failed.status, &failed.json()["error"]["code"]),
        (200, &json!(-32_602))
    );
    let level = request(3, "logging/setLevel", json!({"level": "warning"}));
    assert_eq!(web.post(&session, &level).json()["result"], json!({}));
    let told = web
        .post(&session, &call(4, "probe.steps", json!({})))
        .events();
    assert_eq!(told[0]["params"]["data"], "half way");
    assert_eq!(told[1]["result"]["structuredContent"], json!({"result": 3}));

    let wrong = [session[0], ("mcp-protocol-version", "1999-01-01")];
    assert_eq!(web.post(&wrong, &ping(5)).status, 400);
    assert_eq!(web.send("DELETE", &session, b"").status, 204);
    assert_eq!(web.post(&session, &ping(6)).status, 404);
    assert_eq!(web.send("DELETE", &session, b"").status, 404);
    assert_eq!(web.send("DELETE", &[], b"").status, 400);
}

#[test]
fn a_session_is_asked_on_the_stream_of_its_call() {
    let host = host();
    host.write("guarded.toml", "[decisions]\nalways = [\"probe\"]\n");
    let web = HttpMcpServer::start(&host, &["--config", "guarded.toml"], &[]);
    let id = web.session(json!({"elicitation": {"form": {}}}));
    let session = [("mcp-session-id", id.as_str())];
    let body = call(1, "probe.answer", json!({})).to_string();
    let mut stream = events(web.open("POST", &session, body.as_bytes()));
    let question = stream.next().expect("a question");
    assert_eq!(question["method"], "elicitation/create");
    let yes = json!({"action": "accept", "content": {"decision": "approve"}});
    let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": yes});
    assert_eq!(web.post(&session, &said).status, 202);
    let done = stream.next().expect("a result");
    assert_eq!(
        done["result"]["structuredContent"],
        json!({"result": 42}),
        "{done}"
    );
    assert!(stream.next().is_none());
    // Who takes no stream cannot be asked.
    let headers = [session[0], ("accept", "application/json")];
    let refused = web
        .post(&headers, &call(2, "probe.answer", json!({})))
        .json();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
}

#[test]
fn a_connection_that_closes_stops_its_guest_and_so_does_a_notification() {
    let host = host();
    let one = format!("[modules]\nconcurrent_calls = 1\n{ENDLESS}");
    host.write("one.toml", one);
    let web = HttpMcpServer::start(&host, &["--config", "one.toml"], &[]);
    let spin = modern(1, "tools/call", json!({"name": "probe.spin"}), json!({}));
    let headers = modern_headers(&spin);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let stream = web.open("POST", &headers, spin.to_string().as_bytes());
    web.until_it_computes();
    let started = Instant::now();
    drop(stream);
    let done = web.modern(&answer(2)).json();
    assert_eq!(done["result"]["structuredContent"], 42, "{done}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );

    // The same once something was said.
    let told = web.toiling(3);
    let started = Instant::now();
    drop(told);
    let done = web.modern(&answer(4)).json();
    assert_eq!(done["result"]["structuredContent"], 42, "{done}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );

    let id = web.session(json!({}));
    let session = [("mcp-session-id", id.as_str())];
    let params = json!({"name": "probe.toil", "_meta": {"progressToken": "p"}});
    let body = request("toil", "tools/call", params).to_string();
    let mut told = events(web.open("POST", &session, body.as_bytes()));
    assert_eq!(told.next().expect("progress")["params"]["progress"], 1);
    let started = Instant::now();
    let params = json!({"requestId": "toil"});
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(web.post(&session, &cancelled).status, 202);
    assert_eq!(told.next(), None, "it is answered with nothing");
    let done = web
        .post(&session, &call(3, "probe.answer", json!({})))
        .json();
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn both_eras_are_told_of_a_module_that_comes() {
    let host = host();
    let web = HttpMcpServer::start(&host, &[], &[]);
    let id = web.session(json!({}));
    let session = [("mcp-session-id", id.as_str())];
    let mut old = events(web.open("GET", &session, b""));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern("sub", "subscriptions/listen", wanted, json!({}));
    let headers = modern_headers(&listen);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut new = events(web.open("POST", &headers, listen.to_string().as_bytes()));
    let acknowledged = new.next().unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    drop_in(&host, "late", &answers(7));
    for stream in [&mut old as &mut dyn Iterator<Item = Value>, &mut new] {
        let changed = stream.next().expect("a notification");
        assert_eq!(changed["method"], "notifications/tools/list_changed");
    }
    // A client that reconnects gets the changes it missed, and no others.
    let missed = [session[0], ("last-event-id", "1")];
    let mut stream = events(web.open("GET", &missed, b""));
    let changed = stream.next().expect("a notification");
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    // Only one stream of a session gets notifications.
    assert!(old.next().is_none());
    assert_eq!(web.send("DELETE", &session, b"").status, 204);
    assert!(stream.next().is_none());
}

/// A server that has no time for its modules at its start serves without them, and offers each when it is ready.
#[test]
fn a_module_that_is_not_ready_in_time_is_offered_later() {
    let host = host();
    // Compiled by no test before: it is in no cache.
    let number = std::process::id();
    drop_in(&host, "late", &answers(number));
    let no_time = [("TOOLHOLD_MODULES__START_TIMEOUT_MS", "0")];
    let web = HttpMcpServer::start(&host, &[], &no_time);
    let call = modern(1, "tools/call", json!({"name": "late.answer"}), json!({}));
    let result = until("the module's tool", || {
        let answer = web.modern(&call).json();
        answer.get("result").cloned()
    });
    assert_eq!(result["structuredContent"], json!(number));
}

#[test]
fn a_reply_is_one_piece() {
    let host = host();
    let web = HttpMcpServer::start(&host, &["--tools", "probe"], &[]);
    let message = answer(1);
    let mut stream = TcpStream::connect(&web.address).unwrap();
    let mut head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", web.address);
    for (name, value) in modern_headers(&message) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let body = message.to_string();
    let _ = write!(
        head,
        "content-type: application/json\r\naccept: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // On one connection, as clients keep theirs.
    for _ in 0..5 {
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .unwrap();
        let mut piece = vec![0; 64 << 10];
        let read = stream.read(&mut piece).unwrap();
        let piece = String::from_utf8_lossy(&piece[..read]);
        assert!(
            piece.starts_with("HTTP/1.1 200") && piece.ends_with('}'),
            "{piece}"
        );
        assert!(piece.contains("content-length"), "{piece}");
    }
}

#[test]
fn sessions_are_bounded_and_idle_ones_make_room() {
    let host = host();
    host.write("two.toml", "[mcp_server]\nsessions = 2\n");
    let web = HttpMcpServer::start(&host, &["--config", "two.toml"], &[]);
    let first = web.session(json!({}));
    let second = web.session(json!({}));
    let held = [("mcp-session-id", first.as_str())];
    let _stream = listening(&web, &held);
    assert_eq!(web.post(&held, &ping(1)).status, 200);
    let third = web.session(json!({}));
    assert_eq!(
        web.post(&[("mcp-session-id", &second)], &ping(1)).status,
        404
    );
    assert_eq!(web.post(&held, &ping(2)).status, 200);
    let busy = [("mcp-session-id", third.as_str())];
    let _other = listening(&web, &busy);
    assert_eq!(web.post(&busy, &ping(1)).status, 200);
    let full = web.post(&[], &initialize("2025-11-25", json!({})));
    assert_eq!(full.status, 503, "{full:?}");
}
