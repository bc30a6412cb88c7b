//! The context that a turn of a session leaves for the next.

use serde_json::Value;
use toolhold_agent::language;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::turn::Role;
use toolhold_storage::{RecordError, RunRow, Store};
use uuid::Uuid;

/// What a turn of a session leaves for the next.
#[derive(Debug, Default)]
pub struct LeftByTurn {
    /// The turn's context, with its answer. A turn that ended with calls of the client's tools has none yet.
    pub context: Vec<Message>,
    pub reason: Option<StopReason>,
    /// The language of its task.
    pub language: Option<String>,
}

impl LeftByTurn {
    /// Puts it before what the next turn is asked. Where the language of that cannot be told, it is the same as
    /// before.
    pub fn put(self, request: &mut RunRequest) {
        request.context.splice(0..0, self.context);
        if let (Some(tag), None) = (self.language, &request.language) {
            language::keep(request, &tag, false);
        }
    }
}

/// Of the turns of a session the one that the next goes on from: the last whose input no shield blocked. What a shield
/// blocks once would block every later turn.
pub fn goes_on_from(turns: &[RunRow]) -> Option<&RunRow> {
    let is_input_blocked = |turn: &RunRow| {
        let end = turn.ended.as_ref();
        end.is_some_and(|end| end.reason == StopReason::Blocked && end.steps == 0)
    };
    turns.iter().rfind(|turn| !is_input_blocked(turn))
}

/// # Errors
/// The record of `run` cannot be read.
pub async fn left_by(store: &Store, run: Uuid) -> Result<LeftByTurn, RecordError> {
    let (first, last) = store.ends(run).await?;
    let mut left = LeftByTurn::default();
    if let EventKind::Run { request, .. } = first.kind {
        left.context = request.context;
        left.language = request.language;
    }
    if let EventKind::Done { output, reason, .. } = last.kind {
        left.reason = Some(reason);
        if reason != StopReason::ToolCalls {
            left.context.push(answer_message(&output, reason));
        }
    }
    Ok(left)
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
