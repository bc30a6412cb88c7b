//! A run's events as they happen: server-sent events, and the same over a WebSocket.

use crate::http::error::ApiError;
use crate::http::event_redactor::EventRedactor;
use crate::runs::{WatchError, Watcher};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use toolhold_connections::Connection;
use toolhold_connections::websocket::{self, CloseCode, SocketItem, WebSocketUpgrade};
use toolhold_protocol::event::Event;
use toolhold_protocol::reply_offset::StreamPosition;

/// Interval of comments in a silent stream, so that proxies leave it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A part of a run's stream for a client.
enum StreamItem {
    Event {
        event: Arc<Event>,
        /// The place behind it, where a client can go on.
        id: Option<StreamPosition>,
    },
    /// The last item.
    End(StreamEnd),
}

/// The reason why a stream ends.
enum StreamEnd {
    /// The last event was sent.
    RunOver,
    /// This server stops.
    Closing,
    /// No process drives the run.
    Parked,
    Failed(WatchError),
}

/// `event:` is the event's kind, `id:` its number and, in the middle of a reply, how much of it was sent
/// ([`StreamPosition`]), `data:` the event as it is recorded.
pub fn stream(watcher: Watcher, redactor: EventRedactor) -> Response {
    let items = items(watcher, redactor).filter_map(async |item| match item {
        StreamItem::Event { event, id } => Some(sse_event(&event, id.as_ref())),
        StreamItem::End(StreamEnd::Failed(error)) => Some(failed(&error.into())),
        StreamItem::End(_) => None,
    });
    respond(items)
}

/// The events of a run as a client gets them, and why there are no more.
fn items(
    watcher: Watcher,
    redactor: EventRedactor,
) -> impl Stream<Item = StreamItem> + Send + 'static {
    stream::unfold(Some((watcher, redactor)), async |left| {
        let (mut watcher, mut redactor) = left?;
        let end = loop {
            match watcher.next().await {
                Ok(Some(event)) => {
                    let id = watcher.behind(&event);
                    if let Some(event) = redactor.over(event) {
                        return Some((StreamItem::Event { event, id }, Some((watcher, redactor))));
                    }
                }
                Ok(None) if watcher.is_over() => break StreamEnd::RunOver,
                Ok(None) if watcher.is_closing() => break StreamEnd::Closing,
                Ok(None) => break StreamEnd::Parked,
                Err(error) => break StreamEnd::Failed(error),
            }
        };
        Some((StreamItem::End(end), None))
    })
}

/// A stream of events, with the headers that make proxies pass each event at once.
pub fn respond(events: impl Stream<Item = sse::Event> + Send + 'static) -> Response {
    let sse =
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    let mut response = sse.into_response();
    let buffering = axum::http::HeaderValue::from_static("no");
    response
        .headers_mut()
        .insert("x-accel-buffering", buffering);
    response
}

fn sse_event(event: &Event, id: Option<&StreamPosition>) -> sse::Event {
    let sent = sse::Event::default()
        .event(event.kind.name())
        .data(text(event));
    match id {
        Some(id) => sent.id(id.to_string()),
        None => sent,
    }
}

/// The last event of a stream that breaks off.
fn failed(error: &ApiError) -> sse::Event {
    sse::Event::default()
        .event("error")
        .data(text(&error.body()))
}

/// An event as a message. In the middle of a reply it has the place behind it (`after`), where a client can go on; elsewhere
/// that is the event's number.
fn message(event: &Event, id: Option<&StreamPosition>) -> String {
    let text = text(event);
    if let Some(id) = id.filter(|id| !id.offset.is_beginning())
        && let Some(begin) = text.strip_suffix('}')
    {
        return format!(r#"{begin},"after":"{id}"}}"#);
    }
    text
}

/// Sends one event a message until the run is over, the client's right has ended or the client is gone. A failure is a
/// last message; the close code tells why the socket ends.
pub fn socket(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    watcher: Watcher,
    redactor: EventRedactor,
) -> Response {
    let messages = items(watcher, redactor).map(|item| match item {
        StreamItem::Event { event, id } => SocketItem::Text(message(&event, id.as_ref())),
        StreamItem::End(StreamEnd::RunOver) => SocketItem::Close {
            code: CloseCode::Normal,
            reason: "the run is over".into(),
            last: None,
        },
        StreamItem::End(StreamEnd::Closing) => SocketItem::Close {
            code: CloseCode::Away,
            reason: "the server stops; connect again when it is back".into(),
            last: None,
        },
        StreamItem::End(StreamEnd::Parked) => SocketItem::Close {
            code: CloseCode::Again,
            reason: "no process drives the run; connect again when it goes on".into(),
            last: None,
        },
        StreamItem::End(StreamEnd::Failed(error)) => {
            let code = match &error {
                WatchError::Right(_) => CloseCode::Policy,
                WatchError::Record(_) => CloseCode::Error,
            };
            let error = ApiError::from(error);
            SocketItem::Close {
                code,
                reason: error.message().to_owned(),
                last: Some(text(&error.body())),
            }
        }
    });
    websocket::send(upgrade, connection, messages)
}

fn text(said: &impl Serialize) -> String {
    serde_json::to_string(said).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn messages_say_where_a_client_can_go_on_in_a_reply() {
        let piece = json!({"run": "019aa000-0000-7000-8000-000000000000", "seq": 7, "at_ms": 1, "event": "delta", "step": 1,
            "content": "é", "from": {"content": 3}});
        let event: Event = serde_json::from_value(piece.clone()).unwrap();
        let sent = |id: Option<&str>| -> Value {
            let id = id.map(|id| id.parse::<StreamPosition>().unwrap());
            serde_json::from_str(&message(&event, id.as_ref())).unwrap()
        };
        assert_eq!(sent(None), piece);
        assert_eq!(sent(Some("7")), piece);
        let mut placed = piece;
        placed["after"] = json!("7.5.0");
        assert_eq!(sent(Some("7.5.0")), placed);
    }
}
