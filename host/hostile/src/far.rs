//! An MCP server over HTTP, whose answers an attack sets.

use crate::scripted::{RawAnswer, plain, request};
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

/// The answer to a notification.
const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The answer to a message.
pub enum FarAnswer {
    Json(Value),
    Raw(RawAnswer),
}

/// Starts a server on a port of its own, and returns the port. `answer`: of a message, none of a notification. The server
/// ends with this process, which every attack has for itself.
pub fn start(
    answer: impl Fn(&Value) -> Option<FarAnswer> + Send + Sync + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let Ok(Some((_, body))) = request(&mut stream) else {
                    return;
                };
                let message: Value = serde_json::from_str(&body).unwrap_or_default();
                let answered = match answer(&message) {
                    Some(FarAnswer::Raw(raw)) => {
                        raw.send(stream);
                        return;
                    }
                    Some(FarAnswer::Json(value)) => plain(&value.to_string()),
                    None => ACCEPTED.to_owned(),
                };
                // A client that is gone needs no answer.
                let _ = stream.write_all(answered.as_bytes());
            });
        }
    });
    Ok(port)
}

/// The answer to the message of this id. `outcome`: an object with `result` or `error`.
pub fn answered(id: Value, mut outcome: Value) -> Value {
    outcome["jsonrpc"] = json!("2.0");
    outcome["id"] = id;
    outcome
}

/// The answer of a server with these tools: `called` has the outcome of a call by the tool's name.
pub fn tools_answer(
    listed: &[Value],
    message: &Value,
    called: impl FnOnce(&str) -> Option<FarAnswer>,
) -> Option<FarAnswer> {
    let id = message.get("id")?.clone();
    let outcome = match message.get("method")?.as_str()? {
        "initialize" => json!({"result": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        }}),
        "tools/list" => json!({"result": {"tools": listed}}),
        "tools/call" => {
            let name = message.pointer("/params/name")?.as_str()?;
            match called(name)? {
                FarAnswer::Json(outcome) => outcome,
                raw @ FarAnswer::Raw(_) => return Some(raw),
            }
        }
        _ => json!({"error": {"code": -32_601, "message": "there is no such method"}}),
    };
    Some(FarAnswer::Json(answered(id, outcome)))
}
