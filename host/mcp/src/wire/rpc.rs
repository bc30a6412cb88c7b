//! JSON-RPC 2.0, as far as MCP uses it: messages in and out, no batches.

use crate::error::{Failure, one_line};
use serde_json::{Map, Value, json};

/// Bytes of a server's request id; a request with a longer one is ignored.
const MAX_ID: usize = 256;
const METHOD_NOT_FOUND: i64 = -32_601;

/// A message of a server.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// To the request with this number.
    Answer {
        id: u64,
        outcome: Result<Value, Failure>,
    },
    /// A request to us, with our answer.
    Asked(Value),
    /// The list of tools changed.
    ToolsChanged,
    /// A message without an answer.
    Notice,
}

/// A request, or without `id` a notification.
pub fn message(id: Option<u64>, method: &str, params: Option<Value>) -> Vec<u8> {
    let mut message = Map::new();
    message.insert("jsonrpc".into(), "2.0".into());
    if let Some(id) = id {
        message.insert("id".into(), id.into());
    }
    message.insert("method".into(), method.into());
    if let Some(params) = params {
        message.insert("params".into(), params);
    }
    Value::Object(message).to_string().into_bytes()
}

/// The notification that cancels the request `id`.
pub fn cancelled(id: u64) -> Vec<u8> {
    let params = json!({"requestId": id, "reason": "the caller does not wait for it any more"});
    message(None, "notifications/cancelled", Some(params))
}

/// Reads one message.
///
/// # Errors
/// It is no message of JSON-RPC.
pub fn parse(bytes: &[u8]) -> Result<Incoming, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Value::Object(mut message) = value else {
        return Err("a message is an object".into());
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err("\"jsonrpc\" must be \"2.0\"".into());
    }
    let id = message.remove("id");
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        return Ok(match id {
            Some(id) => reply(id, method).map_or(Incoming::Notice, Incoming::Asked),
            None if method == "notifications/tools/list_changed" => Incoming::ToolsChanged,
            None => Incoming::Notice,
        });
    }
    let id = id
        .and_then(|id| id.as_u64())
        .ok_or("an answer needs the id of a request")?;
    let outcome = match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) => Err(failure(&error)),
        _ => return Err("an answer holds either a result or an error".into()),
    };
    Ok(Incoming::Answer { id, outcome })
}

fn failure(error: &Value) -> Failure {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str);
    match (code, message) {
        (Some(code), Some(message)) => Failure::of_rpc(code, message),
        _ => Failure::Protocol(format!(
            "an error without code and message: {}",
            one_line(&error.to_string())
        )),
    }
}

/// Answers a server's request: we support `ping` only.
fn reply(id: Value, method: &str) -> Option<Value> {
    let fits = match &id {
        Value::String(text) => text.len() <= MAX_ID,
        other => other.is_number(),
    };
    fits.then(|| match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => {
            let error = json!({"code": METHOD_NOT_FOUND, "message": "this client offers nothing to servers"});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_of_every_kind_are_told_apart() {
        let answer = |outcome| Ok(Incoming::Answer { id: 7, outcome });
        for (text, expect) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":[1]}"#,
                answer(Ok(json!([1]))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}"#,
                answer(Err(Failure::of_rpc(-32_603, "no"))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
                Ok(Incoming::Asked(
                    json!({"jsonrpc": "2.0", "id": "p", "result": {}}),
                )),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                Ok(Incoming::ToolsChanged),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
                Ok(Incoming::Notice),
            ),
        ] {
            assert_eq!(parse(text.as_bytes()), expect, "{text}");
        }
        let asked = parse(br#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#);
        let Ok(Incoming::Asked(reply)) = asked else {
            panic!("{asked:?}");
        };
        assert_eq!(reply["error"]["code"], METHOD_NOT_FOUND);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in [
            "",
            "Listening on port 8080",
            "[]",
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            &"[".repeat(100_000),
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.40}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
