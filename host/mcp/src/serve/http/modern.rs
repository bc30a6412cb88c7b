//! Requests of revision 2026-07-28: each stands for itself, and its headers repeat parts of its body.

use super::reply::{self, RequestWork};
use super::{HttpEndpoint, VERSION, accepts, remote};
use crate::rpc::{HEADER_MISMATCH, INVALID_REQUEST, Message, RpcError, RpcRequest};
use crate::serve::revision;
use crate::serve::revision::{LEGACY, MODERN, unsupported};
use crate::serve::unread::{RequestMemory, UnreadAnswers};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Whether a message is of this era, by its header or `_meta`. An unknown version counts as a later one.
pub fn is_modern(headers: &HeaderMap, message: &Message) -> bool {
    let by_header = headers
        .get(VERSION)
        .and_then(|version| version.to_str().ok())
        .is_some_and(|version| version == MODERN || !LEGACY.contains(&version));
    match message {
        Message::Request(request) if request.method == "initialize" => false,
        Message::Request(request) => by_header || revision::requested_version(request).is_some(),
        _ => by_header,
    }
}

pub async fn post(
    endpoint: &Arc<HttpEndpoint>,
    head: &Parts,
    message: Message,
    memory: RequestMemory,
    answers: &UnreadAnswers,
) -> Response {
    let headers = &head.headers;
    let request = match message {
        Message::Request(request) => request,
        // No notification has a meaning here: a client cancels by closing its stream.
        Message::Notification { .. } => {
            return match headers
                .get(VERSION)
                .and_then(|version| version.to_str().ok())
            {
                Some(MODERN) => StatusCode::ACCEPTED.into_response(),
                version => {
                    let error = unsupported(version.unwrap_or_default());
                    reply::error(StatusCode::BAD_REQUEST, None, error)
                }
            };
        }
        Message::Answer { id, .. } => {
            let reason = format!("revision {MODERN} has no requests of a server's to answer");
            let error = RpcError::new(INVALID_REQUEST, reason);
            return reply::error(StatusCode::BAD_REQUEST, Some(&id), error);
        }
    };
    let metadata = revision::requested_version(&request)
        .map_or(Ok(()), |named| mirrored(headers, &request, named))
        .and_then(|()| revision::modern(&request, endpoint.id.clone()));
    let mut metadata = match metadata {
        Ok(metadata) => metadata,
        Err(error) => return reply::error(reply::status(&error), Some(&request.id), error),
    };
    remote(&mut metadata, head);
    let streams = accepts(headers, "text/event-stream");
    if request.method == "subscriptions/listen" && !streams {
        let error = RpcError::new(INVALID_REQUEST, "a subscription is a text/event-stream");
        return reply::error(StatusCode::NOT_ACCEPTABLE, Some(&request.id), error);
    }
    let (service, id) = (endpoint.service.clone(), request.id.clone());
    let work = RequestWork::begin(id, answers, streams, true, |client_sender| async move {
        let outcome = service
            .answer(request, metadata, None, &client_sender)
            .await;
        drop(memory);
        Some(outcome)
    });
    work.answer().await
}

/// Whether the headers agree with the body: proxies may have routed the request by them.
fn mirrored(headers: &HeaderMap, request: &RpcRequest, version: &Value) -> Result<(), RpcError> {
    let mismatch = |reason: String| {
        Err(RpcError::new(
            HEADER_MISMATCH,
            format!("Header mismatch: {reason}"),
        ))
    };
    let name = match request.method.as_str() {
        "tools/call" | "prompts/get" => request.params.get("name"),
        "resources/read" => request.params.get("uri"),
        _ => None,
    };
    let method = Value::from(request.method.as_str());
    for (header, own) in [
        (&VERSION, Some(version)),
        (&METHOD, Some(&method)),
        (&NAME, name),
    ] {
        let Some(own) = own else { continue };
        let mut given = headers.get_all(header).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return mismatch(format!("there must be one {header}"));
        };
        let value = value.to_str().ok().and_then(|value| {
            if *header == NAME {
                decoded(value)
            } else {
                Some(Cow::Borrowed(value))
            }
        });
        if value.is_none() || value.as_deref() != own.as_str() {
            return mismatch(format!("{header} does not say what the body says"));
        }
    }
    Ok(())
}

/// Decodes a header value that may be wrapped as `=?base64?…?=`.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let wrapped = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match wrapped {
        None => Some(Cow::Borrowed(value)),
        Some(inner) => {
            let bytes = STANDARD.decode(inner).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Id;
    use serde_json::json;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let request = RpcRequest {
            id: Id::Number(1.into()),
            method: "tools/call".into(),
            params: json!({"name": "m.é"}).as_object().cloned().unwrap(),
        };
        let version = json!(MODERN);
        let base = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/call"),
        ];
        let with = |name: &str| {
            let mut pairs = base.to_vec();
            pairs.push(("mcp-name", name));
            mirrored(&headers(&pairs), &request, &version)
        };
        assert!(with("=?base64?bS7DqQ==?=").is_ok());
        for wrong in ["m.e", "=?base64?bS5l?=", "=?base64?*?=", ""] {
            assert_eq!(with(wrong).unwrap_err().code, HEADER_MISMATCH, "{wrong}");
        }
        assert!(mirrored(&headers(&base), &request, &version).is_err());
        let twice = [
            base[0],
            base[1],
            base[1],
            ("mcp-name", "=?base64?bS7DqQ==?="),
        ];
        assert!(mirrored(&headers(&twice), &request, &version).is_err());
        let other = [("mcp-protocol-version", "2025-11-25"), base[1]];
        assert!(mirrored(&headers(&other), &request, &version).is_err());
    }
}
