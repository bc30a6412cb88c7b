//! The conversation of a run as calls of functions and messages with their results.

use super::names::function;
use crate::contract::conversation::TranscriptFormat;
use crate::contract::{text, thought};
use serde_json::json;
use std::sync::Arc;
use toolhold_model::chat::ChatMessage;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::completion::ChatToolCall;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::turn::{Answered, Exchange};

pub(super) struct Functions<'a> {
    pub(super) reasons: bool,
    pub(super) names: Option<&'a Arc<ToolNames>>,
}

impl TranscriptFormat for Functions<'_> {
    fn answer(&self, text: &str) -> ChatMessage {
        ChatMessage::assistant(text.to_owned())
    }

    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>) {
        let calls = exchange
            .calls
            .iter()
            .enumerate()
            .map(|(place, answered)| {
                let call = text::outward(&answered.call, self.names);
                let members = exchange.reasoning.of_call(place).cloned();
                let written = text::written_arguments(&answered.call).map(str::to_owned);
                ChatToolCall {
                    id: call.id.clone(),
                    name: function(&call.tool, self.names),
                    arguments: written.unwrap_or_else(|| {
                        json!(text::properties(&call, self.reasons)).to_string()
                    }),
                    members: members.unwrap_or_default(),
                }
            })
            .collect();
        out.push(ChatMessage::assistant_calls(None, calls));
        for answered in &exchange.calls {
            out.push(ChatMessage::tool(
                answered.call.id.clone(),
                result(answered),
            ));
        }
    }

    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>) {
        let answer = thought::split(reply).answer.trim();
        if !answer.is_empty() {
            out.push(ChatMessage::assistant(answer.to_owned()));
        }
        let mut text = PromptText::from("That reply could not be used: ");
        out.push(ChatMessage::user(text.line(reason).words(".").take()));
    }
}

/// A result in a message of its own, which is the fence of one line. Several lines stand in a fence that the tool does
/// not know: chat templates put them into one text with everything else.
fn result(answered: &Answered) -> PromptText {
    match PromptText::single_line(&answered.text) {
        Some(line) if answered.failed => PromptText::from("error: ").part(&line).take(),
        Some(line) => line,
        None => text::result(answered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use toolhold_protocol::solution::Call;

    /// The arguments of a client's own model go back as they were, where a value would have other digits.
    #[test]
    fn arguments_that_are_a_text_go_out_as_they_were_written() {
        let arguments = |arguments: Value| {
            let call = Call {
                tool: "a.b".into(),
                arguments,
                ..Call::default()
            };
            let exchange = Exchange {
                calls: vec![Answered {
                    call,
                    fence: String::new(),
                    text: "1".into(),
                    failed: false,
                }],
                ..Exchange::default()
            };
            let mut out = Vec::new();
            let voice = Functions {
                reasons: false,
                names: None,
            };
            voice.exchange(&exchange, &mut out);
            out[0].tool_calls[0].arguments.clone()
        };
        let text = "{\"a\": 123456789012345678901234567890}";
        assert_eq!(arguments(json!(text)), text);
        assert_eq!(arguments(json!({"a": 1})), "{\"a\":1}");
        assert_eq!(arguments(json!("[1]")), "{}");
    }
}
