//! What a model wrote before the shields on a run's output have seen it: for whoever runs the server, and for
//! nobody else.

use crate::http::auth::Client;
use serde_json::Value;
use std::sync::Arc;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::shield::ShieldPlace;
use toolhold_storage::{RecordError, Store};
use uuid::Uuid;

/// Takes it out of the events that a client is told: pieces of replies are left out, and replies, Requests, which
/// repeat them, what advisors wrote and why a reply could not be used come without their text. The calls that a reply makes are told as events of their own, and
/// the output that was let through with the last one.
#[derive(Debug)]
pub struct EventRedactor {
    sees_all: bool,
    is_screened: bool,
}

impl EventRedactor {
    /// For whoever watches from the first event on.
    pub fn of(client: &Client) -> Self {
        Self {
            sees_all: client.is_admin(),
            is_screened: false,
        }
    }

    /// For whoever goes on at the event `next` of a run.
    ///
    /// # Errors
    /// The run's record cannot be read.
    pub async fn from(
        client: &Client,
        store: &Store,
        run: Uuid,
        next: u64,
    ) -> Result<Self, RecordError> {
        let mut redactor = Self::of(client);
        if next > 0 && !redactor.sees_all {
            let (first, _) = store.ends(run).await?;
            redactor.look(&first.kind);
        }
        Ok(redactor)
    }

    /// What the client is told of the event, if anything.
    pub fn over(&mut self, event: Arc<Event>) -> Option<Arc<Event>> {
        self.look(&event.kind);
        if self.sees_all || !self.is_screened {
            return Some(event);
        }
        if is_piece(&event.kind) {
            return None;
        }
        if !has_text(&event.kind) {
            return Some(event);
        }
        let mut veiled = Arc::unwrap_or_clone(event);
        without_text(&mut veiled.kind);
        Some(Arc::new(veiled))
    }

    fn look(&mut self, kind: &EventKind) {
        if let EventKind::Run { request, .. } = kind {
            self.is_screened = request.policy.screens.contains(&ShieldPlace::Output);
        }
    }
}

fn is_piece(kind: &EventKind) -> bool {
    match kind {
        EventKind::Sub { what, .. } => is_piece(what),
        kind => matches!(kind, EventKind::Delta { .. }),
    }
}

fn has_text(kind: &EventKind) -> bool {
    match kind {
        EventKind::Sub { what, .. } => has_text(what),
        kind => {
            matches!(
                kind,
                EventKind::Reply { .. }
                    | EventKind::Request { .. }
                    | EventKind::Council { .. }
                    | EventKind::UnusableReply(_)
            )
        }
    }
}

fn without_text(kind: &mut EventKind) {
    match kind {
        EventKind::Sub { what, .. } => without_text(what),
        EventKind::Reply { completion, .. } => {
            let Completion {
                content,
                reasoning,
                tool_calls,
                extra,
                ..
            } = completion;
            content.clear();
            reasoning.clear();
            tool_calls.clear();
            extra.clear();
        }
        // The reason quotes what could not be used.
        EventKind::UnusableReply(reply) => reply.reason.clear(),
        EventKind::Council { council, .. } => {
            for opinion in &mut council.opinions {
                opinion.fields.clear();
            }
            council.faults.clear();
        }
        EventKind::Request {
            body: Value::Object(body),
            ..
        } => body.retain(|name, _| name != "messages"),
        _ => {}
    }
}
