//! The next Request and its size.

use std::borrow::Cow;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::window::Part;

/// The next Request, with the texts in it of which it is known what they are.
#[derive(Debug)]
pub(super) struct Composed {
    pub request: ChatRequest,
    pub known: Vec<(Part, String)>,
    pub size: Size,
    /// Whether the endpoint that is asked counts.
    pub is_counted: bool,
}

/// The size of texts: counted tokens, and estimated bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub tokens: u64,
    pub bytes: usize,
}

impl Size {
    /// Whether nothing of it is estimated.
    pub fn is_counted(self) -> bool {
        self.bytes == 0
    }

    /// These tokens, which go by this size. What an estimate has beyond is for what it does not see.
    pub fn most(self, tokens: u64) -> u64 {
        if self.is_counted() {
            tokens
        } else {
            tokens.saturating_mul(20) / 19
        }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub fn less(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The texts that an endpoint counts: the messages, and native tools.
pub(super) fn texts(request: &ChatRequest) -> impl Iterator<Item = Cow<'_, str>> {
    let messages = request.messages.iter().flat_map(|message| {
        let said = [message.text().map(Cow::Borrowed), message.thought()];
        let calls = message.tool_calls.iter();
        said.into_iter()
            .flatten()
            .chain(calls.map(|call| Cow::Owned(format!("{}\n{}", call.name, call.arguments))))
    });
    let tools = request.tools.iter().map(|tool| {
        let (name, description) = (&tool.name, &tool.description);
        Cow::Owned(format!("{name}\n{description}\n{}", tool.parameters))
    });
    messages.chain(tools)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_model::chat::{ChatMessage, ChatTool};
    use toolhold_protocol::completion::ChatToolCall;

    #[test]
    fn messages_calls_and_tools_are_counted() {
        let call = ChatToolCall {
            id: "1".into(),
            name: "t".into(),
            arguments: "{}".into(),
            ..ChatToolCall::default()
        };
        let mut request = ChatRequest::new(
            "m",
            vec![
                ChatMessage::user("task"),
                ChatMessage::assistant_calls(None, vec![call]),
            ],
        );
        request.tools.push(ChatTool {
            name: "t".into(),
            description: "d".into(),
            parameters: json!(true),
        });
        let texts: Vec<_> = texts(&request).collect();
        assert_eq!(texts, ["task", "t\n{}", "t\nd\ntrue"]);
    }

    #[test]
    fn an_estimate_leaves_room_for_what_it_does_not_see() {
        let counted = Size {
            tokens: 19,
            bytes: 0,
        };
        let estimated = Size {
            tokens: 0,
            bytes: 57,
        };
        assert_eq!((counted.most(19), estimated.most(19)), (19, 20));
        assert!(!counted.plus(estimated).is_counted());
        assert!(counted.plus(estimated).less(estimated).is_counted());
    }
}
