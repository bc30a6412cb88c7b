//! The reasoning that goes from a run that ended with calls of its client's tools into the run that brings their results.

use crate::http::messages::ClientCall;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::mem;
use toolhold_json::bounded;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::fallback::Stage;

/// Reasoning of the reply that made the calls of the client's tools. It goes back with them in the next run.
#[derive(Debug, Default)]
pub(super) struct ReplyThoughts {
    /// Members of the message.
    members: Map<String, Value>,
    /// Signed members of the calls, in the order of the reply.
    calls: Vec<Map<String, Value>>,
    /// Signed members of calls, by the calls' ids.
    by_call: BTreeMap<String, Map<String, Value>>,
    /// Most bytes that were kept of a reply.
    bytes: u64,
    /// True while another model than the run's own is asked: its reasoning goes to no other one.
    is_foreign: bool,
}

impl ReplyThoughts {
    pub(super) fn take(&mut self, event: &EventKind) {
        match event {
            // A reply that broke off has none.
            EventKind::Request { .. } => {
                *self = Self {
                    is_foreign: self.is_foreign,
                    bytes: self.bytes,
                    ..Self::default()
                };
            }
            EventKind::Fallback { stage, .. } => {
                self.is_foreign = matches!(stage, Stage::Asked { .. } | Stage::Failed { .. });
            }
            EventKind::Reply { completion, .. } if !self.is_foreign => {
                self.members = completion.carried_reasoning();
                self.calls = completion.call_members();
                self.bytes = self.bytes.max(self.reply_bytes());
            }
            // Only if each call of the reply is one of the plan.
            EventKind::Plan { calls, .. } if calls.len() == self.calls.len() => {
                let ids = calls.iter().map(|call| call.id.clone());
                let signed = ids.zip(self.calls.drain(..));
                self.by_call = signed.collect();
            }
            _ => {}
        }
    }

    fn reply_bytes(&self) -> u64 {
        text_bytes(&self.members) + self.calls.iter().map(text_bytes).sum::<u64>()
    }

    /// Bytes of the reasoning of this reply that are more than those of every reply before it, whose place it takes.
    pub(super) fn more_bytes(&self, completion: &Completion) -> u64 {
        let signed = completion.tool_calls.iter();
        let signed: u64 = signed.map(|call| text_bytes(&call.members)).sum();
        (text_bytes(&completion.carried_reasoning()) + signed).saturating_sub(self.bytes)
    }

    /// Adds what is known to the calls that the turn ended with.
    pub(super) fn put(&mut self, calls: &mut [ClientCall]) {
        for call in &mut *calls {
            call.members = self.by_call.remove(&call.id).unwrap_or_default();
        }
        if let Some(first) = calls.first_mut() {
            first.reasoning = mem::take(&mut self.members);
        }
    }
}

/// Bytes of the JSON of these members.
pub(super) fn text_bytes(members: &Map<String, Value>) -> u64 {
    members.values().map(bounded::text_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn signed(text: &str) -> Value {
        json!({"google": {"thought_signature": text}})
    }

    fn reply(text: &str) -> EventKind {
        event(json!({"event": "reply", "step": 1, "completion": {
        "reasoning": text, "reasoning_names": ["reasoning_content"],
        "tool_calls": [
            {"id": "a", "extra_content": signed(text), "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "f", "arguments": "{}"}},
        ]}}))
    }

    fn plan(ids: &[&str]) -> EventKind {
        let calls = ids
            .iter()
            .map(|id| json!({"id": id, "tool": "f", "arguments": {}}));
        event(json!({"event": "plan", "step": 1, "calls": calls.collect::<Vec<_>>()}))
    }

    fn put(events: &[EventKind]) -> Vec<Value> {
        let mut thoughts = ReplyThoughts::default();
        for event in events {
            thoughts.take(event);
        }
        let mut calls = ["1", "2"].map(|id| ClientCall {
            id: id.into(),
            ..ClientCall::default()
        });
        thoughts.put(&mut calls);
        let told = calls.iter();
        told.map(|call| json!([call.reasoning, call.members]))
            .collect()
    }

    #[test]
    fn the_last_reply_of_the_runs_own_model_gives_its_reasoning() {
        let request = || event(json!({"event": "request", "step": 1, "body": {}}));
        let none = [json!([{}, {}]), json!([{}, {}])];
        let own = |text: &str| {
            [
                json!([{"reasoning_content": text}, {"extra_content": signed(text)}]),
                json!([{}, {}]),
            ]
        };
        assert_eq!(put(&[request(), reply("x"), plan(&["1", "2"])]), own("x"));
        // Of another reply, which broke off.
        assert_eq!(put(&[reply("x"), plan(&["1", "2"]), request()]), none);
        let asked = || {
            event(
                json!({"event": "fallback", "step": 1, "stage": "asked", "candidate": "other", "attempt": 1}),
            )
        };
        let foreign = [asked(), request(), reply("x"), plan(&["1", "2"])];
        assert_eq!(put(&foreign), none);
        // It is not known which call of the reply each is.
        let unclear = put(&[reply("x"), plan(&["1", "2", "3"])]);
        assert_eq!(
            unclear,
            [json!([{"reasoning_content": "x"}, {}]), json!([{}, {}])]
        );
    }
}
