//! One recorded exchange with an endpoint: what it is in a file, and what makes two requests equal.
//!
//! A recording is a text of one JSON object a line:
//!
//! ```json
//! {"method":"POST","path":"chat/completions","request":{…},"status":200,
//!  "headers":{"content-type":"text/event-stream"},"body":[[412,"data: {…}\n\n"],[3,"data: [DONE]\n\n"]]}
//! ```
//!
//! `body` is what was received: the delay since the piece before in milliseconds, and the bytes, as
//! text or, where they are no UTF-8, as `{"base64": "…"}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;
use toolhold_json::hex;

use crate::transport::Method;

/// Fields of a request that change from run to run without changing the answer.
const VOLATILE: [&str; 6] = [
    "user",
    "metadata",
    "request_id",
    "session_id",
    "cache_salt",
    "prompt_cache_key",
];

/// Headers of an answer that its reader acts on. The others hold dates, ids and host names.
pub(crate) const KEPT_HEADERS: [&str; 4] =
    ["content-type", "retry-after", "retry-after-ms", "location"];

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    pub method: Method,
    pub path: String,
    /// The canonical request; `null` where there was no body.
    pub request: Value,
    pub status: u16,
    /// Names in lower case.
    pub headers: Map<String, Value>,
    pub body: Vec<BodyChunk>,
    /// The body ended early: the connection broke, the reader left, or it grew too large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl Exchange {
    /// The key that a replay finds this exchange by.
    pub fn key(&self) -> RequestKey {
        RequestKey::new(self.method, &self.path, &self.request)
    }
}

/// Bytes of a body as they arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyChunk {
    /// Since the piece before, or since the request was sent, in milliseconds.
    pub delay_ms: u64,
    pub bytes: Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WireBytes {
    Text(String),
    Binary { base64: String },
}

impl Serialize for BodyChunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = match std::str::from_utf8(&self.bytes) {
            Ok(text) => WireBytes::Text(text.to_owned()),
            Err(_) => WireBytes::Binary {
                base64: BASE64.encode(&self.bytes),
            },
        };
        (self.delay_ms, bytes).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BodyChunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (delay_ms, bytes) = <(u64, WireBytes)>::deserialize(deserializer)?;
        let bytes = match bytes {
            WireBytes::Text(text) => text.into_bytes(),
            WireBytes::Binary { base64 } => BASE64.decode(base64).map_err(D::Error::custom)?,
        };
        Ok(Self {
            delay_ms,
            bytes: bytes.into(),
        })
    }
}

/// SHA-256 of a canonical request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey([u8; 32]);

impl RequestKey {
    pub(crate) fn new(method: Method, path: &str, canonical: &Value) -> Self {
        // Neither a method nor a path holds a line feed, so the parts cannot run into each other.
        let text = format!("{method}\n{path}\n{canonical}");
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// The request with its keys sorted, its volatile fields left out, and digests in place of images: a recording is
/// read by people, and each request of a run repeats them.
pub fn canonical(body: Option<&Value>) -> Value {
    let mut body = body.cloned().unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut body {
        for field in VOLATILE {
            fields.shift_remove(field);
        }
        let messages = fields.get_mut("messages").and_then(Value::as_array_mut);
        for message in messages.into_iter().flatten() {
            let parts = message.get_mut("content").and_then(Value::as_array_mut);
            parts.into_iter().flatten().for_each(by_digest);
        }
    }
    body.sort_all_objects();
    body
}

/// Puts the digest of a part's image in the place of its data.
fn by_digest(part: &mut Value) {
    let url = part.get_mut("image_url").and_then(|it| it.get_mut("url"));
    let Some(Value::String(url)) = url else {
        return;
    };
    if let Some((media_type, data)) = url.split_once(";base64,") {
        *url = format!("{media_type};sha256,{}", hex::sha256(data));
    }
}

/// A recording that cannot be read.
#[derive(Debug, Error)]
#[error("line {line} of the recording is no exchange; record it again, or take the line out")]
pub struct RecordingError {
    /// Counted from 1.
    pub line: usize,
    pub source: serde_json::Error,
}

/// Reads a recording. Empty lines are skipped.
pub fn parse(text: &str) -> Result<Vec<Exchange>, RecordingError> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|source| RecordingError {
                line: number + 1,
                source,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_survives_the_file_whatever_its_bytes() {
        let exchange = Exchange {
            method: Method::Post,
            path: "chat/completions".into(),
            request: json!({"a": 1}),
            status: 200,
            headers: Map::new(),
            body: vec![
                BodyChunk {
                    delay_ms: 3,
                    bytes: Bytes::from_static(b"data: \xc3"),
                },
                BodyChunk {
                    delay_ms: 0,
                    bytes: Bytes::from_static("ü\n".as_bytes()),
                },
            ],
            cut: true,
        };
        let line = serde_json::to_string(&exchange).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(parse(&format!("\n{line}\n")).unwrap(), [exchange]);
    }

    #[test]
    fn images_are_recorded_as_digests() {
        let body = |data: &str| {
            let url = format!("data:image/png;base64,{data}");
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
        };
        let data = "A".repeat(1 << 20);
        let (one, other) = (
            canonical(Some(&body(&data))),
            canonical(Some(&body("AAAA"))),
        );
        assert!(one.to_string().len() < 300, "{one}");
        assert_ne!(one, other);
        assert_eq!(canonical(Some(&one)), one);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = parse("\n{\"method\":\"POST\"}\n").unwrap_err();
        assert_eq!(error.line, 2);
    }

    #[test]
    fn equal_requests_have_equal_keys_and_others_do_not() {
        let key =
            |path: &str, body: Value| RequestKey::new(Method::Post, path, &canonical(Some(&body)));
        let one =
            json!({"model": "m", "user": "u1", "messages": [{"role": "user", "content": "x"}]});
        let same =
            json!({"messages": [{"content": "x", "role": "user"}], "model": "m", "user": "u2"});
        let other = json!({"messages": [{"content": "y", "role": "user"}], "model": "m"});
        assert_eq!(key("a", one.clone()), key("a", same));
        assert_ne!(key("a", one.clone()), key("a", other));
        assert_ne!(key("a", one.clone()), key("b", one));
    }
}
