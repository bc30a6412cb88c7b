//! A model endpoint with replies that a test sets.

use crate::serving::MODELS;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a request.
const MOST: usize = 8 << 20;
/// Member of a reply that makes native calls of it.
const NATIVE: &str = "native_calls";

/// An answer in bytes of its own, which may be no HTTP.
#[derive(Debug, Clone, Default)]
pub struct RawAnswer {
    pub begin: Vec<u8>,
    /// Sent without end behind the beginning, or until `open`; none if empty.
    pub again: Vec<u8>,
    /// Pause before each of these pieces.
    pub pause: Duration,
    /// Becomes true when the answer may end.
    pub open: Arc<AtomicBool>,
    pub end: Vec<u8>,
}

impl RawAnswer {
    /// Sends it in a thread of its own, until it ends or the client leaves.
    pub fn send(self, mut stream: TcpStream) {
        std::thread::spawn(move || {
            let mut sent = stream.write_all(&self.begin);
            while sent.is_ok() && !self.again.is_empty() && !self.open.load(Ordering::Acquire) {
                std::thread::sleep(self.pause);
                sent = stream.write_all(&self.again);
            }
            // A client that is gone needs no answer.
            let _ = sent.and_then(|()| stream.write_all(&self.end));
        });
    }
}

/// A model that says the replies in their order, and after the last one that it is done. It ends with this process,
/// which every attack has for itself.
pub struct ScriptedModel {
    pub port: u16,
    replies: Arc<Mutex<VecDeque<String>>>,
    raw: Arc<Mutex<VecDeque<RawAnswer>>>,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl ScriptedModel {
    /// `done`: what it says when nothing is left.
    pub fn start(done: &'static str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let model = Self {
            port: listener.local_addr()?.port(),
            replies: Arc::default(),
            raw: Arc::default(),
            prompts: Arc::default(),
        };
        let (replies, prompts) = (model.replies.clone(), model.prompts.clone());
        let raw = model.raw.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Ok(Some((head, body))) = request(&mut stream) else {
                    continue;
                };
                let is_completion = head
                    .lines()
                    .next()
                    .is_some_and(|line| line.contains("/chat/completions"));
                if is_completion && let Some(answer) = locked(&raw).pop_front() {
                    locked(&prompts).push(body);
                    answer.send(stream);
                    continue;
                }
                let answer = if head.starts_with("GET ") {
                    plain(MODELS)
                } else {
                    let next = locked(&replies).pop_front();
                    locked(&prompts).push(body.clone());
                    reply(&body, next.as_deref().unwrap_or(done))
                };
                // A client that is gone needs no answer.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Ok(model)
    }

    /// Replaces the replies that were not said yet, and forgets the requests.
    pub fn say(&self, replies: impl IntoIterator<Item = String>) {
        *locked(&self.replies) = replies.into_iter().collect();
        locked(&self.prompts).clear();
    }

    /// Answers the next request for a completion in these bytes, before all replies.
    pub fn answer_raw(&self, answer: RawAnswer) {
        locked(&self.raw).push_back(answer);
    }

    /// Number of the answers in bytes that were not given yet.
    pub fn raw_left(&self) -> usize {
        locked(&self.raw).len()
    }

    /// The requests since then, as JSON.
    pub fn prompts(&self) -> Vec<String> {
        locked(&self.prompts).clone()
    }
}

/// A reply that calls these tools natively, each with its arguments.
pub fn native(calls: &[(&str, Value)]) -> String {
    // Names of functions have no dots.
    let named: Vec<(String, &Value)> = calls
        .iter()
        .map(|(tool, arguments)| (tool.replace('.', "-"), arguments))
        .collect();
    native_as(&named)
}

/// A reply that calls functions by these very names.
pub fn native_as(calls: &[(String, &Value)]) -> String {
    let calls = calls.iter().enumerate().map(|(index, (tool, arguments))| {
        json!({
            "index": index, "id": format!("native_{index}"), "type": "function",
            "function": {"name": tool, "arguments": arguments.to_string()},
        })
    });
    json!({NATIVE: calls.collect::<Vec<_>>()}).to_string()
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Head and body, or nothing if the client leaves before.
pub fn request(stream: &mut TcpStream) -> io::Result<Option<(String, String)>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let body = &bytes[end + 4..];
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let announced = lines
                .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .find_map(|(_, value)| value.trim().parse().ok())
                .unwrap_or(0);
            if body.len() >= announced {
                let body = String::from_utf8_lossy(body).into_owned();
                return Ok(Some((head, body)));
            }
        }
        let read = stream.read(&mut piece)?;
        if read == 0 || bytes.len() > MOST {
            return Ok(None);
        }
        bytes.extend(&piece[..read]);
    }
}

/// An answer of JSON.
pub fn plain(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A reply as an API's message.
fn message(reply: &str) -> Value {
    let read = serde_json::from_str::<Value>(reply).ok();
    let calls = read.and_then(|mut read| read.get_mut(NATIVE).map(Value::take));
    match calls {
        Some(calls) => json!({"role": "assistant", "content": null, "tool_calls": calls}),
        None => json!({"role": "assistant", "content": reply}),
    }
}

/// The answer to a request for a completion, as a stream where it asks for one.
fn reply(request: &str, text: &str) -> String {
    let is_streamed = serde_json::from_str::<Value>(request)
        .is_ok_and(|request| request["stream"] == Value::Bool(true));
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    if !is_streamed {
        let choice = json!({
            "index": 0, "message": message(text), "finish_reason": "stop",
        });
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage,
        });
        return plain(&answer.to_string());
    }
    let chunk = |choices: Value, usage: &Value| {
        json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices,
            "usage": usage,
        })
    };
    let said = json!([{"index": 0, "delta": message(text), "finish_reason": null}]);
    let end = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    let none = Value::Null;
    let events: Vec<String> = [
        chunk(said, &none),
        chunk(end, &none),
        chunk(json!([]), &usage),
    ]
    .iter()
    .map(|event| format!("data: {event}\n\n"))
    .collect();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{}data: [DONE]\n\n",
        events.concat()
    )
}
