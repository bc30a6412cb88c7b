//! The messages of a Request, in the order that all contracts share.

use crate::contract::{View, examples};
use crate::model::ChatMessage;
use crate::protocol::{Exchange, Message, Role};

/// How a contract writes what the model said and what it is told about it.
pub(super) trait Voice {
    /// A final answer, as the model would have written it.
    fn answer(&self, text: &str) -> ChatMessage;
    /// Calls as the model would have written them, and their results.
    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>);
    /// A reply that could not be used, and why.
    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>);
}

/// `system`, the worked examples, the context.
pub(super) fn messages(view: &View<'_>, system: String, voice: &dyn Voice) -> Vec<ChatMessage> {
    let mut messages = vec![ChatMessage::system(system)];
    for message in examples::turns(view.tools, view.settings.examples) {
        render(&message, voice, &mut messages);
    }
    for message in view.context {
        render(message, voice, &mut messages);
    }
    messages
}

fn render(message: &Message, voice: &dyn Voice, out: &mut Vec<ChatMessage>) {
    match message {
        Message::Text { role, text } => out.push(match role {
            Role::System => ChatMessage::system(text.clone()),
            Role::User => ChatMessage::user(text.clone()),
            Role::Assistant => voice.answer(text),
        }),
        Message::Exchange(exchange) => voice.exchange(exchange, out),
        Message::Rejected { reply, reason } => voice.rejected(reply, reason, out),
    }
}
