//! The endpoint over plain TCP, so that nothing but it is tested.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::*;

const SOON: Duration = Duration::from_secs(5);

fn open(endpoint: &Endpoint, request: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(endpoint.address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let body = request.to_string();
    let length = body.len();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// The answer as it is on the wire; what came before the end or the break.
fn ask(endpoint: &Endpoint, request: &Value) -> String {
    let mut bytes = Vec::new();
    let _ = open(endpoint, request).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hello() -> Value {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello you"}]})
}

#[test]
fn a_stream_is_what_servers_send() {
    let mut reply = Reply::tool_calls([("add", json!({"a": 17, "b": 23}))]);
    reply.content = Some("let me see".into());
    let endpoint = Endpoint::start(Scenario::new([reply]));
    let answer = ask(&endpoint, &hello());
    let role = answer.find(r#""role":"assistant""#).unwrap();
    let content = answer.find(r#""content":"let ""#).unwrap();
    let call = answer.find(r#""name":"add""#).unwrap();
    let finish = answer.find(r#""finish_reason":"tool_calls""#).unwrap();
    let usage = answer.find(r#""choices":[],"usage""#).unwrap();
    let done = answer.find("data: [DONE]").unwrap();
    assert!(
        [role, content, call, finish, usage, done].is_sorted(),
        "{answer}"
    );
    assert!(
        answer.contains(r#""arguments":"{\"a\"""#),
        "not cut inside: {answer}"
    );
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(endpoint.requests(), [hello()]);
}

#[test]
fn a_request_without_stream_gets_one_answer() {
    let endpoint = Endpoint::start(Scenario::new([Reply::content("hi")]));
    let mut request = hello();
    request["stream"] = json!(false);
    let answer = ask(&endpoint, &request);
    assert!(answer.contains(r#""object":"chat.completion""#), "{answer}");
}

#[test]
fn unexpected_and_surplus_requests_are_refused_with_the_reason() {
    let reply = Reply::content("hi").expecting(Expect {
        model: Some("m".into()),
        contains: vec!["goodbye".into()],
        tools: vec!["add".into()],
        response_format: Some("json_schema".into()),
        ..Expect::default()
    });
    let endpoint = Endpoint::start(Scenario::new([reply]));
    let answer = ask(&endpoint, &hello());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    for part in ["goodbye", "add", "response_format"] {
        assert!(endpoint.mismatches()[0].contains(part), "{answer}");
    }
    assert!(!endpoint.mismatches()[0].contains("model"));
    let answer = ask(&endpoint, &hello());
    assert!(
        answer.starts_with("HTTP/1.1 500") && answer.contains("none is left"),
        "{answer}"
    );
}

#[test]
fn replies_can_repeat_or_be_picked_by_what_is_asked() {
    let endpoint =
        Endpoint::start(Scenario::new([Reply::content("hi")]).in_order(ReplyOrder::Repeat));
    for _ in 0..3 {
        assert!(ask(&endpoint, &hello()).contains("[DONE]"));
    }
    let replies = [
        Reply::content("no").expecting(Expect::text("goodbye")),
        Reply::content("yes").expecting(Expect::text("hello")),
    ];
    let endpoint = Endpoint::start(Scenario::new(replies).in_order(ReplyOrder::FirstMatch));
    assert!(ask(&endpoint, &hello()).contains("yes"));
}

#[test]
fn faults_are_played() {
    let text = "a text of some length";
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content(text).truncated_after(30),
        Reply::content(text).cut(),
        Reply::content(text).without_done(),
        Reply::error(429, json!({"error": "slow down"})).with_header("retry-after", "3"),
        Reply::html(),
        Reply::raw("data: whatever"),
        Reply::content(text).with_invalid_utf8(),
    ]));
    let broken = ask(&endpoint, &hello());
    assert!(
        broken.contains("data: ") && !broken.ends_with("0\r\n\r\n"),
        "{broken}"
    );
    let cut = ask(&endpoint, &hello());
    assert!(
        cut.ends_with("0\r\n\r\n") && !cut.contains("[DONE]"),
        "{cut}"
    );
    assert!(!cut.contains("\"finish_reason\":\"stop\""), "{cut}");
    let no_done = ask(&endpoint, &hello());
    assert!(
        no_done.contains("\"stop\"") && !no_done.contains("[DONE]"),
        "{no_done}"
    );
    let refusal = ask(&endpoint, &hello());
    assert!(
        refusal.starts_with("HTTP/1.1 429") && refusal.contains("retry-after: 3"),
        "{refusal}"
    );
    assert!(ask(&endpoint, &hello()).contains("<title>"));
    assert!(ask(&endpoint, &hello()).contains("data: whatever"));
    assert!(ask(&endpoint, &hello()).contains('\u{fffd}'));
    assert_eq!(endpoint.replies_left(), 0);
    assert_eq!(endpoint.disconnects(), 0);
}

#[test]
fn clients_that_leave_are_noticed() {
    let endpoint = Endpoint::start(Scenario::new([Reply::never(), Reply::endless()]));
    for left in 1..=2 {
        let mut stream = open(&endpoint, &hello());
        assert!(endpoint.wait_until(SOON, |endpoint| endpoint.open_streams() == 1));
        if left == 2 {
            stream.read_exact(&mut [0; 100]).unwrap();
        }
        drop(stream);
        assert!(endpoint.wait_until(SOON, |endpoint| endpoint.open_streams() == 0));
        assert_eq!(endpoint.disconnects(), left);
        assert!(endpoint.wait_until(SOON, |endpoint| endpoint.open_connections() == 0));
    }
}

#[test]
fn dropping_it_closes_everything() {
    let endpoint = Endpoint::start(Scenario::new([Reply::never()]));
    let mut stream = open(&endpoint, &hello());
    assert!(endpoint.wait_until(SOON, |endpoint| endpoint.open_streams() == 1));
    drop(endpoint);
    let mut rest = Vec::new();
    // Closed or reset: either way it does not wait until its time-out.
    match stream.read_to_end(&mut rest) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn every_scenario_file_can_be_played() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/scenarios");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        Scenario::load(name).check().unwrap();
    }
}

#[test]
#[should_panic(expected = "reply 0 says two things")]
fn a_contradictory_reply_is_refused() {
    let mut reply = Reply::content("hi");
    reply.html = true;
    Endpoint::start(Scenario::new([reply]));
}
