//! The text that a model writes beside calls of its client's tools: the content of the message with the calls.

use crate::answer_stream::AnswerStream;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::EventKind;

/// The text of the last reply, also of one that broke off. Only replies under the contract `tools` have text beside their
/// calls.
#[derive(Debug, Default)]
pub(super) struct TextBesideCalls {
    text: AnswerStream,
    /// Bytes of the longest reply.
    bytes: u64,
}

impl TextBesideCalls {
    pub(super) fn take(&mut self, event: &EventKind) {
        match event {
            EventKind::Request { .. } => self.begin(),
            EventKind::Delta {
                delta: Delta::Content(text),
                ..
            } => {
                self.text.push(text);
            }
            EventKind::Reply { completion, .. } => {
                self.begin();
                self.text.push(&completion.content);
                self.text.finish();
                // Its calls are text: those with marks end at the first mark, and others are all of it.
                if completion.tool_calls.is_empty() && !self.text.ends_at_call() {
                    self.begin();
                }
                self.bytes = self.bytes.max(completion.content.len() as u64);
            }
            _ => {}
        }
    }

    fn begin(&mut self) {
        self.text = AnswerStream::new(Contract::Tools);
    }

    /// The text, as a stream has it.
    pub(super) fn text(&self) -> &str {
        self.text.said()
    }

    /// Bytes of this reply that are more than those of every reply before it, whose place it takes.
    pub(super) fn more_bytes(&self, completion: &Completion) -> u64 {
        (completion.content.len() as u64).saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(kind: Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn reply(text: &str) -> EventKind {
        event(json!({"event": "reply", "step": 1, "completion": {"content": text}}))
    }

    /// A reply with a native call.
    fn calling(text: &str) -> EventKind {
        let calls = json!([{"id": "c", "function": {"name": "w", "arguments": "{}"}}]);
        event(
            json!({"event": "reply", "step": 1, "completion": {"content": text, "tool_calls": calls}}),
        )
    }

    fn wrote(text: &str) -> EventKind {
        EventKind::Delta {
            step: 1,
            delta: Delta::Content(text.to_owned()),
            from: None,
        }
    }

    fn beside(events: &[EventKind]) -> String {
        let mut beside = TextBesideCalls::default();
        for event in events {
            beside.take(event);
        }
        beside.text().to_owned()
    }

    #[test]
    fn a_call_that_is_written_as_text_is_not_said_beside_itself() {
        for (text, shown) in [
            (r#"{"name": "w", "arguments": {"a": "1"}}"#, ""),
            (r#"[w(a="1")]"#, ""),
            ("```json\n{\"name\": \"w\", \"arguments\": {}}\n```", ""),
            ("w\n{\"a\": \"1\"}", ""),
            (
                "Let me see.\n<tool_call>{\"name\": \"w\"}</tool_call>",
                "Let me see.",
            ),
        ] {
            assert_eq!(beside(&[reply(text)]), shown, "{text}");
        }
    }

    #[test]
    fn it_is_the_text_of_the_last_reply_without_thoughts_and_calls() {
        let request = || event(json!({"event": "request", "step": 1, "body": {}}));
        for (text, shown) in [
            ("Let me see.\n", "Let me see."),
            ("<think>hm</think>Let me see `it`", "Let me see `it`"),
            (
                "Let me see.\n<tool_call>{\"name\": \"w\"}</tool_call>",
                "Let me see.",
            ),
            ("", ""),
        ] {
            let events = [request(), wrote("No"), request(), calling(text)];
            assert_eq!(beside(&events), shown, "{text}");
        }
        // It broke off behind its calls.
        let events = [request(), wrote("Let me "), wrote("see.")];
        assert_eq!(beside(&events), "Let me see.");
    }
}
