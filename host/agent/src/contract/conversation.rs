//! The messages of a Request, in the order that all contracts share.

use crate::contract::{RequestView, examples};
use toolhold_model::chat;
use toolhold_model::chat::ChatMessage;
use toolhold_protocol::turn::{Exchange, Role, Turn};

/// Writes the model's replies and the results in a contract's form.
pub(super) trait TranscriptFormat {
    /// A final answer, as the model would have written it.
    fn answer(&self, text: &str) -> ChatMessage;
    /// Calls as the model would have written them, and their results.
    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>);
    /// A reply that could not be used, and why.
    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>);
}

/// `system`, the worked examples, the turns, and what is asked of this reply alone: `last`.
pub(super) fn messages(
    view: &RequestView<'_>,
    system: String,
    format: &dyn TranscriptFormat,
    last: String,
) -> Vec<ChatMessage> {
    let mut messages = vec![ChatMessage::system(system)];
    for turn in examples::turns(view.tools, view.settings.examples) {
        render(&turn, format, &mut messages);
    }
    for turn in view.turns {
        render(turn, format, &mut messages);
    }
    if !last.is_empty() {
        messages.push(ChatMessage::user(last));
    }
    one_voice_at_a_time(messages)
}

/// Merges consecutive user messages: several chat templates refuse two in a row.
fn one_voice_at_a_time(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut joined: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        if message.role == chat::Role::User
            && let Some(last) = joined
                .last_mut()
                .filter(|last| last.role == chat::Role::User)
            && let (Some(before), Some(more)) = (last.text(), message.text())
        {
            *last = ChatMessage::user(format!("{before}\n\n{more}"));
        } else {
            joined.push(message);
        }
    }
    joined
}

fn render(turn: &Turn, format: &dyn TranscriptFormat, out: &mut Vec<ChatMessage>) {
    match turn {
        Turn::Text { role, text } => out.push(match role {
            Role::System => ChatMessage::system(text.clone()),
            Role::User => ChatMessage::user(text.clone()),
            Role::Assistant => format.answer(text),
        }),
        Turn::Summary(text) => out.push(ChatMessage::user(text.clone())),
        Turn::Exchange(exchange) => format.exchange(exchange, out),
        Turn::Rejected { reply, reason } => format.rejected(reply, reason, out),
    }
}
