//! The context that a turn of a session leaves for the next.

use serde_json::Value;
use toolhold_agent::language;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::turn::Role;
use toolhold_storage::{RecordError, RunRow, Store, StoreError};
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

/// Turns of a session that are read at once.
pub const PAGE_TURNS: u32 = 100;

/// Finds the turn that turn number `before` continues: the last one before it whose input no shield blocked. Blocked input
/// is left out, because it would be blocked in every later turn, too.
///
/// # Errors
/// The database failed.
pub async fn goes_on_from(
    store: &Store,
    session: Uuid,
    before: u32,
) -> Result<Option<RunRow>, StoreError> {
    let is_input_blocked = |turn: &RunRow| {
        let end = turn.ended.as_ref();
        end.is_some_and(|end| end.reason == StopReason::Blocked && end.steps == 0)
    };
    let mut end = before;
    while end > 0 {
        let start = end.saturating_sub(PAGE_TURNS);
        let turns = store.turns(session, start..end).await?;
        let found = turns.into_iter().rfind(|turn| !is_input_blocked(turn));
        if found.is_some() {
            return Ok(found);
        }
        end = start;
    }
    Ok(None)
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
