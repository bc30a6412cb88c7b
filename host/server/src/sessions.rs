//! The context that a turn of a session leaves for the next.

use serde_json::Value;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::turn::Role;
use toolhold_storage::{RecordError, Store};
use uuid::Uuid;

/// The context of the turn after `run`: that of `run`, with its answer.
pub async fn left_by(store: &Store, run: Uuid) -> Result<Vec<Message>, RecordError> {
    let (first, last) = store.ends(run).await?;
    let mut context = match first.kind {
        EventKind::Run { request, .. } => request.context,
        _ => Vec::new(),
    };
    if let EventKind::Done { output, reason, .. } = last.kind {
        context.push(answer_message(&output, reason));
    }
    Ok(context)
}

/// The message that tells the model of the next turn how this one ended.
pub fn answer_message(output: &Value, reason: StopReason) -> Message {
    let said = match output {
        Value::String(text) => text.clone(),
        // The model must not take it for an answer that the user has read.
        Value::Null => format!("(I was stopped before I had an answer: {reason:?})"),
        other => other.to_string(),
    };
    Message::text(Role::Assistant, said)
}
