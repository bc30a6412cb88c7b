//! Hides a model's text from clients until the shields on the run's output have seen it, and secrets that the run hides.
//! Only the operator sees both.

use crate::http::auth::Client;
use crate::secret_mask::SecretMask;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::result::is_denial;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_storage::{RecordError, Store};
use uuid::Uuid;

/// Removes unscreened text from events before a client gets them. Pieces of replies are dropped. Replies,
/// Requests (which repeat earlier replies), advisors' texts and the reasons for which a reply could not be
/// used, a candidate's of the fallback as well, lose their text. The calls of a reply have events of their own, and the last event has the output
/// that passed the shields.
#[derive(Debug)]
pub struct EventRedactor {
    sees_all: bool,
    is_screened: bool,
    secrets: SecretMask,
    /// Tools whose calls the client makes.
    clients: BTreeSet<String>,
}

impl EventRedactor {
    /// For a client that watches from the first event on.
    pub fn of(client: &Client) -> Self {
        Self {
            sees_all: client.is_admin(),
            is_screened: false,
            secrets: SecretMask::default(),
            clients: BTreeSet::new(),
        }
    }

    /// For a client that continues at the event `next` of a run.
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

    /// The event as the client gets it; `None` if it gets none.
    pub fn over(&mut self, event: Arc<Event>) -> Option<Arc<Event>> {
        self.look(&event.kind);
        if self.sees_all {
            return Some(event);
        }
        let mut event = event;
        if is_of_operator(&event.kind) {
            without_denials(&mut Arc::make_mut(&mut event).kind);
        }
        if !self.secrets.is_off() {
            let masked = self.without_secrets(&event.kind)?;
            Arc::make_mut(&mut event).kind = masked;
        }
        if !self.is_screened {
            return Some(event);
        }
        if is_piece(&event.kind) || self.is_for_the_client(&event.kind) {
            return None;
        }
        if !has_text(&event.kind) {
            return Some(event);
        }
        let mut veiled = Arc::unwrap_or_clone(event);
        without_text(&mut veiled.kind, &self.clients);
        Some(Arc::new(veiled))
    }

    /// `None` where what is left is no event.
    fn without_secrets(&mut self, kind: &EventKind) -> Option<EventKind> {
        let masked = serde_json::to_value(kind).map(|kind| self.secrets.value(kind));
        match masked.and_then(serde_json::from_value) {
            Ok(kind) => Some(kind),
            Err(error) => {
                tracing::error!(%error, event = kind.name(), "an event is kept from a client, because its secrets cannot be hidden");
                None
            }
        }
    }

    /// Whether it tells of the arguments of a call that is the client's to make: the end of the run has the call, as the
    /// shields on the output left it.
    fn is_for_the_client(&self, kind: &EventKind) -> bool {
        match kind {
            EventKind::ToolStart { call, .. } | EventKind::ToolWaits { call, .. } => {
                self.clients.contains(&call.tool)
            }
            EventKind::Repaired {
                tool: Some(tool), ..
            } => self.clients.contains(tool),
            _ => false,
        }
    }

    fn look(&mut self, kind: &EventKind) {
        if let EventKind::Run { request, tools, .. } = kind {
            let clients = tools.iter().filter(|bound| bound.runner == Runner::Client);
            self.clients = clients.map(|bound| bound.tool.name.clone()).collect();
            self.is_screened = request.policy.screens.contains(&ShieldPlace::Output);
            self.secrets = SecretMask::of(&request.settings.privacy);
        }
    }
}

/// Whether it tells what a module was denied, and so what it is granted: that is for those who may see its grants. So is the
/// id of a job, by which its service may let others reach the job.
fn is_of_operator(kind: &EventKind) -> bool {
    match kind {
        EventKind::Sub { what, .. } => is_of_operator(what),
        EventKind::Job { .. } => true,
        EventKind::ToolResult { printed, .. } => printed.iter().any(|line| is_denial(line)),
        _ => false,
    }
}

fn without_denials(kind: &mut EventKind) {
    match kind {
        EventKind::Sub { what, .. } => without_denials(what),
        EventKind::Job { job, .. } => job.job.clear(),
        EventKind::ToolResult { printed, .. } => printed.retain(|line| !is_denial(line)),
        _ => (),
    }
}

fn is_piece(kind: &EventKind) -> bool {
    match kind {
        EventKind::Sub { what, .. } => is_piece(what),
        kind => matches!(kind, EventKind::Delta { .. } | EventKind::Written { .. }),
    }
}

fn has_text(kind: &EventKind) -> bool {
    match kind {
        EventKind::Sub { what, .. } => has_text(what),
        kind => {
            matches!(
                kind,
                EventKind::Reply { .. }
                    | EventKind::Plan { .. }
                    | EventKind::Request { .. }
                    | EventKind::Council { .. }
                    | EventKind::UnusableReply(_)
                    | EventKind::Fallback { .. }
                    | EventKind::SummaryWritten { .. }
                    | EventKind::ConversationSummarized { .. }
                    | EventKind::Run { .. }
            )
        }
    }
}

fn without_text(kind: &mut EventKind, clients: &BTreeSet<String>) {
    match kind {
        EventKind::Sub { what, .. } => without_text(what, &BTreeSet::new()),
        EventKind::Plan { calls, .. } => calls.retain(|call| !clients.contains(&call.tool)),
        EventKind::Reply { completion, .. } => {
            let Completion {
                content,
                reasoning,
                reasoning_details,
                signed,
                tool_calls,
                extra,
                ..
            } = completion;
            content.clear();
            reasoning.clear();
            reasoning_details.clear();
            signed.clear();
            tool_calls.clear();
            extra.clear();
        }
        // The reason quotes the reply that could not be used.
        EventKind::UnusableReply(reply) => reply.reason.clear(),
        // So may these.
        EventKind::Fallback { tool, stage, .. } => match stage {
            Stage::Failed { reason, .. } => reason.clear(),
            Stage::Begun { first_error, .. } | Stage::Exhausted { first_error }
                if tool.is_none() =>
            {
                first_error.clear();
            }
            _ => {}
        },
        // No shield has seen what a model wrote of the conversation.
        EventKind::SummaryWritten { written, .. } => written.text.clear(),
        EventKind::ConversationSummarized { summary, .. } => summary.text.clear(),
        EventKind::Run { request, .. } => {
            for message in &mut request.context {
                match message {
                    Message::Summary(summary) => summary.text.clear(),
                    // The reply of an earlier run had it.
                    Message::ToolResult(result) => {
                        result.reasoning.clear();
                        result.members.clear();
                    }
                    _ => {}
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::result::{DENIED, NOT_GRANTED, ToolUsage};

    #[test]
    fn text_of_replies_is_kept_from_clients_whose_answers_are_screened() {
        let piece = json!({"event": "delta", "step": 1, "content": "x", "from": {}});
        let recorded = json!({"event": "delta", "step": 1, "content": "x"});
        let written = json!({"event": "written", "step": 1, "pieces": [{"content": "x"}]});
        for kind in [piece, recorded, written] {
            let nested = json!({"event": "sub", "call": "c", "what": kind});
            for kind in [kind, nested] {
                let mut told = json!({"run": Uuid::nil(), "seq": 1, "at_ms": 0});
                let (told_fields, fields) = (told.as_object_mut(), kind.as_object());
                told_fields.unwrap().extend(fields.unwrap().clone());
                let event: Event = serde_json::from_value(told).unwrap();
                for (sees_all, is_screened) in [(true, true), (false, false), (false, true)] {
                    let mut redactor = EventRedactor {
                        sees_all,
                        is_screened,
                        secrets: SecretMask::default(),
                        clients: BTreeSet::new(),
                    };
                    let shown = redactor.over(Arc::new(event.clone()));
                    assert_eq!(shown.is_some(), sees_all || !is_screened, "{event:?}");
                }
            }
        }
    }

    #[test]
    fn arguments_of_the_clients_calls_are_kept_from_it_until_the_shields_have_seen_them() {
        let events = |tool: &str| {
            let call = json!({"id": "c", "tool": tool, "arguments": {"of": 1}});
            let repair = json!({"at": "/of", "kind": "date_notation"});
            [
                json!({"event": "tool_start", "step": 1, "id": "c", "tool": tool, "arguments": {"of": 1}}),
                json!({"event": "tool_waits", "step": 1, "call": call}),
                json!({"event": "repaired", "step": 1, "call": "c", "tool": tool, "repairs": [repair]}),
            ]
        };
        for (tool, is_shown) in [("theirs", false), ("m.own", true)] {
            for kind in events(tool) {
                let kind: EventKind = serde_json::from_value(kind).unwrap();
                let redactor = EventRedactor {
                    sees_all: false,
                    is_screened: true,
                    secrets: SecretMask::default(),
                    clients: ["theirs".to_owned()].into(),
                };
                assert_eq!(!redactor.is_for_the_client(&kind), is_shown, "{kind:?}");
            }
        }
    }

    #[test]
    fn only_the_operator_sees_the_id_of_a_job() {
        let job = json!({
            "event": "job", "step": 1, "id": "c", "tool": "m.a", "job": "https://queue.example/7?key=k", "done": 1,
            "waited_ms": 5,
        });
        let nested = json!({"event": "sub", "call": "c", "what": job});
        for (kind, place) in [(job, "/job"), (nested, "/what/job")] {
            let mut told = json!({"run": Uuid::nil(), "seq": 1, "at_ms": 0, "seal": ""});
            let (told_fields, fields) = (told.as_object_mut(), kind.as_object());
            told_fields.unwrap().extend(fields.unwrap().clone());
            let event: Event = serde_json::from_value(told).unwrap();
            for sees_all in [true, false] {
                let mut redactor = EventRedactor {
                    sees_all,
                    is_screened: false,
                    secrets: SecretMask::default(),
                    clients: BTreeSet::new(),
                };
                let event = redactor.over(Arc::new(event.clone())).unwrap();
                let event = serde_json::to_value(&*event).unwrap();
                assert_eq!(event.pointer(place).is_some(), sees_all, "{event}");
            }
        }
    }

    #[test]
    fn only_the_operator_sees_what_a_module_was_denied() {
        let result = json!({
            "event": "tool_result", "step": 1, "id": "c", "tool": "m.a", "output": 1, "usage": ToolUsage::default(),
            "printed": [format!("{DENIED}a file"), format!("{NOT_GRANTED}b"), "stdout: denied: by myself"],
        });
        let nested = json!({"event": "sub", "call": "c", "what": result});
        for (kind, place) in [(result, "/printed"), (nested, "/what/printed")] {
            let mut told = json!({"run": Uuid::nil(), "seq": 1, "at_ms": 0, "seal": ""});
            let (told_fields, fields) = (told.as_object_mut(), kind.as_object());
            told_fields.unwrap().extend(fields.unwrap().clone());
            let event: Event = serde_json::from_value(told).unwrap();
            for (sees_all, lines) in [(true, 3), (false, 1)] {
                let mut redactor = EventRedactor {
                    sees_all,
                    is_screened: false,
                    secrets: SecretMask::default(),
                    clients: BTreeSet::new(),
                };
                let event = redactor.over(Arc::new(event.clone())).unwrap();
                let event = serde_json::to_value(&*event).unwrap();
                let printed = event.pointer(place).and_then(Value::as_array).unwrap();
                assert_eq!(printed.len(), lines, "{event}");
                assert_eq!(printed.last().unwrap(), "stdout: denied: by myself");
            }
        }
    }
}
