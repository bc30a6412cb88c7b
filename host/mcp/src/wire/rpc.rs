//! What a server's messages mean to a client.

use crate::error::{Failure, one_line};
use crate::rpc::{self, METHOD_NOT_FOUND, Message, RpcError, RpcRequest};
use bytes::Bytes;
use serde_json::{Value, json};
use toolhold_intake::json;
use toolhold_json::numbers;

/// Integers below it are exact as a number of 64 bits with a fraction: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A message of a server.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// To the request with this number.
    Answer {
        id: u64,
        outcome: Result<Value, Failure>,
    },
    /// A request to us, with our answer.
    Asked(Bytes),
    /// The list of tools changed.
    ToolsChanged,
    /// A message without an answer.
    Notice,
}

/// The notification that cancels the request `id`.
pub fn cancelled(id: u64) -> Bytes {
    let params = json!({"requestId": id, "reason": "the caller does not wait for it any more"});
    rpc::notification("notifications/cancelled", params)
}

/// Reads one message, with the tolerance for JSON that the answers of models are read with. An answer that cannot be read
/// fails its request, as long as its id can be.
///
/// # Errors
/// It is no message of JSON-RPC.
pub fn parse(bytes: &[u8]) -> Result<Incoming, String> {
    read(bytes).or_else(
        |reason| match rpc::answered_id(bytes).and_then(|id| id.number()) {
            Some(id) => Ok(Incoming::Answer {
                id,
                outcome: Err(Failure::Protocol(reason)),
            }),
            None => Err(reason),
        },
    )
}

fn read(bytes: &[u8]) -> Result<Incoming, String> {
    let mut message =
        json::from_slice(bytes).map_err(|error| format!("this is not JSON: {error}"))?;
    if message.get("method").is_none() {
        put_own_id(&mut message);
    }
    let message = rpc::read(message).map_err(|malformed| malformed.reason)?;
    Ok(match message {
        Message::Answer { id, outcome } => Incoming::Answer {
            id: id.number().ok_or("an answer needs the id of a request")?,
            outcome: match outcome {
                Ok(result) => exact(result, bytes),
                Err(error) => Err(failure(&error)),
            },
        },
        Message::Request(request) => Incoming::Asked(reply(&request)),
        Message::Notification { method, .. } if method == "notifications/tools/list_changed" => {
            Incoming::ToolsChanged
        }
        Message::Notification { .. } => Incoming::Notice,
    })
}

/// The code and the message of a JSON-RPC error; `None` for any other text. The id may be missing: a server that cannot
/// read a request does not know it.
pub fn reported(bytes: &[u8]) -> Option<(i64, String)> {
    let message = json::from_slice(bytes).ok()?;
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return None;
    }
    let error = message.get("error")?;
    let code = error.get("code")?.as_i64()?;
    let message = error.get("message")?.as_str()?;
    Some((code, one_line(message)))
}

/// The result of a call, unless a number of it is not what the server wrote. Other results have no numbers that a model sees.
fn exact(result: Value, bytes: &[u8]) -> Result<Value, Failure> {
    if result.get("structuredContent").is_some() {
        numbers::check(bytes).map_err(|error| Failure::Output(error.to_string()))?;
    }
    Ok(result)
}

/// Servers in languages with one kind of number write the id 7 of our request as 7.0.
fn put_own_id(answer: &mut Value) {
    let Some(id) = answer.get_mut("id").filter(|id| id.is_f64()) else {
        return;
    };
    let number = id.as_f64().unwrap_or_default();
    if number.fract() == 0.0 && (0.0..MAX_EXACT).contains(&number) {
        *id = (number as u64).into();
    }
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
fn reply(request: &RpcRequest) -> Bytes {
    let outcome = match request.method.as_str() {
        "ping" => Ok(json!({})),
        _ => {
            let reason = "this client offers nothing to servers";
            Err(RpcError::new(METHOD_NOT_FOUND, reason))
        }
    };
    rpc::reply(Some(&request.id), &outcome)
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
                r#"{"jsonrpc":"2.0","id":"7","result":[1]}"#,
                answer(Ok(json!([1]))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7.0,"result":[1]}"#,
                answer(Ok(json!([1]))),
            ),
            (
                "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\\ud83d\"}",
                answer(Ok(json!("\u{fffd}"))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}"#,
                answer(Err(Failure::of_rpc(-32_603, "no"))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
                Ok(Incoming::Asked(
                    r#"{"jsonrpc":"2.0","id":"p","result":{}}"#.into(),
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
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{]}}"#,
            r#"{"jsonrpc":"2.0","result":{"id":8,"text":"}"},"id":"7","error":{}}"#,
            r#"{"id":7.0,"result":[1]}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":"a "quoted" word"}"#,
        ] {
            let Ok(Incoming::Answer { id: 7, outcome }) = parse(text.as_bytes()) else {
                panic!("{text}");
            };
            assert!(matches!(outcome, Err(Failure::Protocol(_))), "{text}");
        }
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{]}"#,
            r#"{"jsonrpc":"2.0","result":{"id":7}"#,
            r#"{"jsonrpc":"2.0","id":[7],"result":[1]}"#,
            "[{\"id\":7}]",
            "words",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let asked = parse(br#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#);
        let Ok(Incoming::Asked(reply)) = asked else {
            panic!("{asked:?}");
        };
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        assert_eq!(reply["error"]["code"], METHOD_NOT_FOUND);
    }

    #[test]
    fn a_result_with_a_number_that_would_change_is_refused() {
        let text = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":{"n":123456789012345678901234567890}}}"#;
        let Ok(Incoming::Answer { id: 7, outcome }) = parse(text) else {
            panic!("it answers");
        };
        let Err(Failure::Output(reason)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.contains("as a string"), "{reason}");
    }

    /// One in `_meta`, which is not used, becomes `null`.
    #[test]
    fn a_number_beyond_64_bits_fails_a_result_at_once() {
        let structured =
            br#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":{"y":1e400}}}"#;
        let Ok(Incoming::Answer { id: 7, outcome }) = parse(structured) else {
            panic!("it answers");
        };
        assert!(matches!(outcome, Err(Failure::Output(_))), "{outcome:?}");
        let meta = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"_meta":{"y":1e400}}}"#;
        let Ok(Incoming::Answer { id: 7, outcome }) = parse(meta) else {
            panic!("it answers");
        };
        assert_eq!(outcome, Ok(json!({"content": [], "_meta": {"y": null}})));
    }

    #[test]
    fn an_error_is_told_from_other_bodies() {
        for (text, expect) in [
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":" no session"}}"#,
                Some((-32_000, "no session".to_owned())),
            ),
            (
                "\u{feff}{\"jsonrpc\":\"2.0\",\"error\":{\"code\":1,\"message\":\"\u{202e}\"}}",
                Some((1, String::new())),
            ),
            (r#"{"error":{"code":404,"message":"no such page"}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"error":"invalid_token"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
            ("[]", None),
            ("Bad Request", None),
            ("", None),
        ] {
            assert_eq!(reported(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn invalid_message_is_refused() {
        for text in [
            "",
            "Listening on port 8080",
            "[]",
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"seven","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            &"[".repeat(100_000),
        ] {
            // One with an id that can be read fails its request.
            let is_refused = match parse(text.as_bytes()) {
                Err(_) => true,
                Ok(Incoming::Answer { id, outcome }) => {
                    id == 1 && matches!(outcome, Err(Failure::Protocol(_)))
                }
                Ok(_) => false,
            };
            assert!(is_refused, "{text:.40}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
