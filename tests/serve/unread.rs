//! Answers that clients ask for and do not read: the server keeps a bounded amount of them, by key, and loses none.

use super::{answers, ask, calls, host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::endpoint::Reply;
use support::host::Host;
use support::records::Records;
use support::server::{Server, is_recorded};

/// Characters of a text of which a call and its result have one each: no socket holds an answer with both.
const LONG: usize = 1_200_000;

fn key(host: &Host, name: &str) -> String {
    let made = host.run(&["keys", "create", name]).stdout;
    made.trim().to_owned()
}

/// A reply that comes in large pieces.
fn reversed(text: &str) -> Reply {
    let mut reply = calls([("text.reverse", json!({"text": text}))]);
    reply.piece = Some(100_000);
    reply
}

/// The path of a run with one long call.
fn long_run(server: &Server, letter: &str, characters: usize) -> String {
    let arguments = json!({"arguments": {"text": letter.repeat(characters)}});
    let called = server.post("/v1/tools/text.reverse", &arguments).good();
    assert_eq!(
        called["result"]["text"].as_str().map(str::len),
        Some(characters),
        "{called}"
    );
    format!("/v1/runs/{}", called["run"].as_str().unwrap())
}

/// A connection whose client asks for this path and reads nothing yet; it has little room.
fn silent(server: &Server, key: &str, path: &str, more: &str) -> TcpStream {
    let stream = asked(server, key, path, more);
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4 << 10).unwrap();
    stream
}

/// A connection whose client asks for this path.
pub fn asked(server: &Server, key: &str, path: &str, more: &str) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{more}\r\n"
    )
    .unwrap();
    stream
}

#[test]
fn what_nobody_reads_is_bounded_and_no_other_key_waits() {
    let host = host("[serve]\nunsent_bytes = 16_777_216\nkey_requests_per_minute = 100_000\n");
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let endpoint = scripted([answers("small")]);
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let run = long_run(&server, "x", 3 * LONG);
    let whole = server.get(&run).good();
    server.use_key(&bob);
    let small = server.post("/v1/agent", &ask("short")).good();
    let small = format!("/v1/runs/{}", small["id"].as_str().unwrap());

    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (path, more) in [
        (run.clone(), ""),
        (format!("{run}/events"), ""),
        (format!("{run}/socket"), upgrade),
    ] {
        let before = server.resident_bytes();
        let connections: Vec<_> = (0..24)
            .map(|_| silent(&server, &ann, &path, more))
            .collect();
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(1) {
            let asked = Instant::now();
            assert_eq!(server.get(&small).good()["answer"]["output"], "small");
            assert!(
                asked.elapsed() < Duration::from_secs(2),
                "{path}: another key waits"
            );
            most = most.max(server.resident_bytes());
        }
        // Each of 24 answers has 7 MB, and is made of more.
        let grown = most.saturating_sub(before);
        assert!(grown < 120 << 20, "{path}: {} MiB more", grown >> 20);
        // The others are made when those are sent, or their clients gone.
        drop(connections);
        server.use_key(&ann);
        assert_eq!(server.get(&run).good(), whole, "{path}");
        server.use_key(&bob);
    }
}

/// The texts of a server's WebSocket, until it closes.
fn messages(bytes: &[u8]) -> Vec<String> {
    let (mut messages, mut open) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    while let [first, second, after @ ..] = rest {
        let (length, body) = match second {
            126 => (
                usize::from(u16::from_be_bytes([after[0], after[1]])),
                &after[2..],
            ),
            127 => (
                usize::try_from(u64::from_be_bytes(after[..8].try_into().unwrap())).unwrap(),
                &after[8..],
            ),
            short => (usize::from(*short), after),
        };
        let (payload, next) = body.split_at(length);
        rest = next;
        assert!(length <= 64 << 10, "a frame of {length} bytes");
        match first & 0x0f {
            0 | 1 => open.extend_from_slice(payload),
            8 => return messages,
            _ => continue,
        }
        if first & 0x80 != 0 {
            messages.push(String::from_utf8(std::mem::take(&mut open)).unwrap());
        }
    }
    panic!("it does not close");
}

#[test]
fn long_events_come_whole_and_in_order_on_every_way() {
    let host = host("");
    let text = "long ".repeat(70_000);
    let small = "short ".repeat(9);
    let endpoint = scripted([
        reversed(&small),
        reversed(&text),
        reversed(&small),
        answers("done"),
    ]);
    let server = serve(&host, &endpoint);
    let mut task = ask("t");
    task["stream"] = true.into();
    // As they happen.
    let live = server
        .ask(Method::POST, "/v1/agent", Some(&task), &[])
        .events();
    let run = live[0].json()["run"].as_str().unwrap().to_owned();
    let record = Records::of(&host).lines(&run);
    assert!(record.iter().any(|line| line.len() > 300_000));
    let recorded = live.iter().filter(|sent| sent.is_recorded());
    assert!(recorded.map(|sent| &sent.data).eq(&record));
    // From the record.
    let path = format!("/v1/runs/{run}/events");
    let later = server.get(&path).events();
    let recorded = later.iter().filter(|sent| sent.is_recorded());
    assert!(recorded.map(|sent| &sent.data).eq(&record));
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut socket = asked(&server, "", &format!("/v1/runs/{run}/socket"), upgrade);
    let mut told = Vec::new();
    socket.read_to_end(&mut told).unwrap();
    let head = told
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let read = |text: &String| -> Value { serde_json::from_str(text).unwrap() };
    let mut told: Vec<Value> = messages(&told[head + 4..]).iter().map(read).collect();
    assert!(told.iter().any(|message| message["after"].is_string()));
    told.retain(is_recorded);
    for message in &mut told {
        message.as_object_mut().unwrap().remove("after");
    }
    let record: Vec<Value> = record.iter().map(read).collect();
    assert_eq!(told, record);
}

#[test]
fn an_answer_waits_for_room_and_comes_when_others_were_read() {
    let host = host("[serve]\nunsent_bytes = 16_777_216\n");
    let server = serve(&host, &scripted([]));
    let run = long_run(&server, "x", 3 * LONG);
    let whole = server.get(&run).good();
    // More than a share: one of a key is made at a time.
    let mut first = silent(&server, "", &run, "");
    assert_eq!(first.read(&mut [0; 9]).unwrap(), 9, "it was made");
    let began = Instant::now();
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| server.get(&run).good());
        std::thread::sleep(Duration::from_secs(1));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap()
    });
    assert_eq!(second, whole);
    assert!(began.elapsed() < Duration::from_secs(10), "it waited on");
}

#[test]
fn a_repeated_request_gets_the_long_answer_of_the_first() {
    let host = host("[serve]\nunsent_bytes = 16_777_216\n");
    let server = serve(&host, &scripted([]));
    let call = json!({"arguments": {"text": "y".repeat(3 * LONG)}});
    let key = [("idempotency-key", "one")];
    let ask = || {
        server
            .ask(Method::POST, "/v1/tools/text.reverse", Some(&call), &key)
            .good()
    };
    assert_eq!(ask(), ask());
}
