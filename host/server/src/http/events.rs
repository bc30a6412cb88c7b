//! A run's events as they happen: server-sent events, and the same over a WebSocket.

use crate::http::error::ApiError;
use crate::http::event_redactor::EventRedactor;
use crate::runs::Watcher;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use toolhold_connections::Connection;
use toolhold_connections::websocket::{self, WebSocketUpgrade};
use toolhold_protocol::event::Event;
use toolhold_storage::RecordError;

/// Interval of comments in a silent stream, so that proxies leave it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `event:` is the event's kind, `id:` its number, `data:` the event as it is recorded.
pub fn stream(watcher: Watcher, redactor: EventRedactor) -> Response {
    respond(told(watcher, redactor).map(|told| match told {
        Ok(event) => sse_event(&event),
        Err(error) => failed(&error.into()),
    }))
}

/// The events of a run as a client gets them. The last one may be an error: the rest cannot be read.
fn told(
    watcher: Watcher,
    redactor: EventRedactor,
) -> impl Stream<Item = Result<Arc<Event>, RecordError>> + Send + 'static {
    stream::unfold(Some((watcher, redactor)), async |left| {
        let (mut watcher, mut redactor) = left?;
        loop {
            match watcher.next().await {
                Ok(Some(event)) => {
                    if let Some(event) = redactor.over(event) {
                        return Some((Ok(event), Some((watcher, redactor))));
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some((Err(error), None)),
            }
        }
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

fn sse_event(event: &Event) -> sse::Event {
    sse::Event::default()
        .event(event.kind.name())
        .id(event.seq.to_string())
        .data(text(event))
}

/// The last event of a stream that breaks off.
fn failed(error: &ApiError) -> sse::Event {
    sse::Event::default()
        .event("error")
        .data(text(&error.body()))
}

/// Sends one event a message until the run is over or the client is gone.
pub fn socket(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    watcher: Watcher,
    redactor: EventRedactor,
) -> Response {
    let texts = told(watcher, redactor).map(|told| match told {
        Ok(event) => text(event.as_ref()),
        Err(error) => text(&ApiError::from(error).body()),
    });
    websocket::send(upgrade, connection, texts)
}

fn text(said: &impl Serialize) -> String {
    serde_json::to_string(said).unwrap_or_default()
}
