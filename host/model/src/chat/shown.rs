//! Texts of a request as a model is shown them: without hidden characters, which could carry instructions that no person
//! sees (`docs/security.md`, promise 10). A message says at its end how many were left out, and which.
//!
//! Each request to a model passes here, those of shields and routers too. Controls stay, because programs print them and
//! they carry no text.

use crate::chat::{ChatMessage, ChatTool, Content, Role};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use toolhold_json::descriptions;
use toolhold_text::hidden;

/// Maximum kinds of characters that a message names.
const MAX_NAMED_KINDS: usize = 8;

/// The messages without hidden characters. Each but the model's own says what was left out of it.
pub(super) fn messages(messages: &[ChatMessage]) -> Cow<'_, [ChatMessage]> {
    if !messages
        .iter()
        .any(|message| texts(message).any(has_hidden) || members(message).any(hides))
    {
        return Cow::Borrowed(messages);
    }
    let mut shown = messages.to_vec();
    for message in &mut shown {
        let mut removed = Removed::default();
        match &mut message.content {
            Some(Content::Text(text)) => removed.take_from(text),
            Some(Content::Parts(parts)) => {
                for part in parts {
                    if let Some(Value::String(text)) = part.get_mut("text") {
                        removed.take_from(text);
                    }
                }
            }
            None => {}
        }
        message.reasoning.retain(|_, value| match value {
            Value::String(text) => {
                removed.take_from(text);
                true
            }
            // Parts with a signature are taken as they were, or not at all.
            parts => !hides(parts),
        });
        for call in &mut message.tool_calls {
            call.members.retain(|_, signed| !hides(signed));
        }
        // What the model wrote itself is an example of the form of a reply, so nothing is added to it.
        if message.role != Role::Assistant
            && let Some(note) = removed.note()
        {
            match &mut message.content {
                Some(Content::Text(text)) => text.push_str(&note),
                Some(Content::Parts(parts)) => {
                    parts.push(serde_json::json!({"type": "text", "text": note.trim_start()}));
                }
                None => {}
            }
        }
    }
    Cow::Owned(shown)
}

/// The tools, in whose descriptions there are no hidden characters. Values that a call must have stay as they are.
pub(super) fn tools(tools: &[ChatTool]) -> Cow<'_, [ChatTool]> {
    let is_plain = |tool: &ChatTool| tool.description.is_ascii() && is_ascii(&tool.parameters);
    if tools.iter().all(is_plain) {
        return Cow::Borrowed(tools);
    }
    let mut shown = tools.to_vec();
    for tool in &mut shown {
        let mut removed = Removed::default();
        removed.take_from(&mut tool.description);
        descriptions::each(&mut tool.parameters, &mut |text| removed.take_from(text));
        if let Some(note) = removed.note() {
            tool.description.push_str(&note);
        }
    }
    Cow::Owned(shown)
}

/// Members that an endpoint gave with the message and its calls.
fn members(message: &ChatMessage) -> impl Iterator<Item = &Value> {
    let calls = message.tool_calls.iter();
    let signed = calls.flat_map(|call| call.members.values());
    message.reasoning.values().chain(signed)
}

fn texts(message: &ChatMessage) -> impl Iterator<Item = &str> {
    let no_parts: &[Value] = &[];
    let (text, parts) = match &message.content {
        Some(Content::Text(text)) => (Some(text.as_str()), no_parts),
        Some(Content::Parts(parts)) => (None, parts.as_slice()),
        None => (None, no_parts),
    };
    let parts = parts.iter().filter_map(|part| part.get("text")?.as_str());
    text.into_iter().chain(parts)
}

fn has_hidden(text: &str) -> bool {
    !text.is_ascii() && hidden::characters(text).any(|(c, is_hidden)| is_hidden && !c.is_control())
}

/// Whether texts in it have hidden characters.
fn hides(json: &Value) -> bool {
    match json {
        Value::String(text) => has_hidden(text),
        Value::Array(items) => items.iter().any(hides),
        Value::Object(members) => members.values().any(hides),
        _ => false,
    }
}

fn is_ascii(json: &Value) -> bool {
    match json {
        Value::String(text) => text.is_ascii(),
        Value::Array(items) => items.iter().all(is_ascii),
        Value::Object(members) => members.values().all(is_ascii),
        _ => true,
    }
}

/// Hidden characters that were left out.
#[derive(Debug, Default)]
struct Removed {
    count: usize,
    kinds: BTreeSet<char>,
}

impl Removed {
    fn take_from(&mut self, text: &mut String) {
        if !has_hidden(text) {
            return;
        }
        let mut left = String::with_capacity(text.len());
        for (c, is_hidden) in hidden::characters(text) {
            if !is_hidden || c.is_control() {
                left.push(c);
                continue;
            }
            self.count += 1;
            if self.kinds.len() <= MAX_NAMED_KINDS {
                self.kinds.insert(c);
            }
            // Separators of lines and paragraphs stand between words.
            if c.is_whitespace() {
                left.push(' ');
            }
        }
        *text = left;
    }

    /// Says what was left out, on a line of its own.
    fn note(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let mut note = format!(
            "\n[Invisible characters that the host left out: {} (",
            self.count
        );
        for (at, c) in self.kinds.iter().take(MAX_NAMED_KINDS).enumerate() {
            let space = if at == 0 { "" } else { " " };
            let _ = write!(note, "{space}U+{:04X}", u32::from(*c));
        }
        let more = if self.kinds.len() > MAX_NAMED_KINDS {
            " …)]"
        } else {
            ")]"
        };
        note.push_str(more);
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatRequest;
    use serde_json::json;

    const TAGS: &str = "\u{E0068}\u{E0069}";

    #[test]
    fn hidden_text_in_a_message_is_left_out_and_named() {
        let result = format!("Paid.{TAGS} Sure\u{200B}ly\u{2028}now\x1b[0m");
        let request = ChatRequest::new(
            "m",
            vec![
                ChatMessage::user("می\u{200C}خواهم ❤\u{FE0F}"),
                ChatMessage::assistant(format!("{{\"output\": \"a{TAGS}\"}}")),
                ChatMessage::tool("1", result),
            ],
        );
        let body = request.body();
        assert_eq!(body["messages"][0]["content"], "می\u{200C}خواهم ❤\u{FE0F}");
        assert_eq!(body["messages"][1]["content"], "{\"output\": \"a\"}");
        assert_eq!(
            body["messages"][2]["content"],
            "Paid. Surely now\x1b[0m\n[Invisible characters that the host left out: 4 (U+200B U+2028 U+E0068 U+E0069)]"
        );
        assert_eq!(request.recorded()["messages"], body["messages"]);
    }

    #[test]
    fn reasoning_hides_nothing() {
        let mut message = ChatMessage::assistant_calls(None, Vec::new());
        let members = json!({"reasoning": format!("a{TAGS}"), "reasoning_details": [{"text": format!("a{TAGS}")}]});
        message.reasoning = members.as_object().unwrap().clone();
        let shown = messages(std::slice::from_ref(&message)).into_owned();
        assert_eq!(
            Value::Object(shown[0].reasoning.clone()),
            json!({"reasoning": "a"})
        );
    }

    #[test]
    fn parts_of_a_message_hide_nothing() {
        let mut message = ChatMessage::user("");
        message.content = Some(Content::Parts(vec![
            json!({"type": "text", "text": format!("a{TAGS}")}),
        ]));
        let shown = messages(std::slice::from_ref(&message)).into_owned();
        assert_eq!(
            serde_json::to_value(&shown[0].content).unwrap(),
            json!([{"type": "text", "text": "a"},
                {"type": "text", "text": "[Invisible characters that the host left out: 2 (U+E0068 U+E0069)]"}])
        );
    }

    #[test]
    fn descriptions_of_functions_hide_nothing_and_values_stay() {
        let parameters = json!({"type": "object", "description": format!("d{TAGS}"), "properties": {
            "description": {"title": format!("t{TAGS}"), "enum": [format!("e{TAGS}")]},
            "enum": {"description": format!("d{TAGS}")},
        }});
        let request = ChatRequest {
            tools: vec![ChatTool {
                name: "f".into(),
                description: "Does.\u{3164}".into(),
                parameters,
            }],
            ..ChatRequest::new("m", vec![ChatMessage::user("x")])
        };
        let function = &request.body()["tools"][0]["function"];
        assert_eq!(
            function["description"],
            "Does.\n[Invisible characters that the host left out: 7 (U+3164 U+E0068 U+E0069)]"
        );
        assert_eq!(
            function["parameters"],
            json!({"type": "object", "description": "d", "properties": {
                "description": {"title": "t", "enum": [format!("e{TAGS}")]},
                "enum": {"description": "d"},
            }})
        );
    }

    #[test]
    fn clean_messages_are_not_copied() {
        let clean = [ChatMessage::user("größer 日本語\r\n")];
        assert!(matches!(messages(&clean), Cow::Borrowed(_)));
    }
}
