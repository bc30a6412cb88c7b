//! The context that a turn of a session leaves for the next.

use serde_json::Value;
use std::collections::BTreeSet;
use toolhold_agent::language;
use toolhold_agent::user_text::UserText;
use toolhold_protocol::context::{Message, SummaryMessage};
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::{CarriedTexts, RunRequest};
use toolhold_protocol::turn::Role;
use toolhold_storage::{RecordError, RunRow, Store, StoreError};
use uuid::Uuid;

/// What a turn of a session leaves for the next.
#[derive(Debug, Default)]
pub struct LeftByTurn {
    /// The turn's context, with its answer, and without the bytes of images. A turn that ended with calls of the client's tools has none yet.
    pub context: Vec<Message>,
    pub reason: Option<StopReason>,
    /// The language of its task.
    pub language: Option<String>,
    /// Messages of the context that the host composed, and the documents and facts whose texts they may have.
    pub carried: CarriedTexts,
    /// Ids of the calls of the client's tools that it ended with.
    pub calls: BTreeSet<String>,
}

impl LeftByTurn {
    /// Puts it before what the next turn is asked. Where the language of that cannot be told, it is the same as
    /// before.
    pub fn put(self, request: &mut RunRequest) {
        request.context.splice(0..0, self.context);
        let mut carried = self.carried;
        carried.add_results(&self.calls, &request.context);
        request.carried = carried.if_any();
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

/// Reads what a turn left. Images have no bytes.
///
/// # Errors
/// The record of `run` cannot be read.
pub async fn left_by(store: &Store, run: Uuid) -> Result<LeftByTurn, RecordError> {
    let carried = store.carried_texts(run).await?;
    let (first, last) = store.ends(run).await?;
    let mut left = LeftByTurn {
        carried,
        ..LeftByTurn::default()
    };
    let mut has_plan = false;
    if let EventKind::Run { request, .. } = first.kind {
        has_plan = request.plan.is_some();
        left.context = request.context;
        left.language = request.language;
        left.carried.messages = carried_messages(request.carried, &mut left.context);
        let summed_up = store.summed_up(run).await?;
        put_summary(summed_up, &mut left.context, &mut left.carried);
    }
    if let EventKind::Done { output, reason, .. } = last.kind {
        left.reason = Some(reason);
        if reason != StopReason::ToolCalls {
            let is_gone = last.removed.is_some();
            let answer = answer_message(&output, reason, is_gone);
            left.context.push(answer);
            if reason.is_of_host(has_plan) && !output.is_null() {
                left.carried.add_last(&left.context);
            }
        }
    }
    Ok(left)
}

/// Puts the summary that a run made in the place of the messages of its context that it stands for, with whose number it
/// comes. The record of the run has the messages.
pub fn put_summary(
    summed_up: Option<(usize, SummaryMessage)>,
    context: &mut Vec<Message>,
    carried: &mut CarriedTexts,
) {
    // Without its texts, which were taken out, the messages that have none of these are summed up again.
    let has_text =
        |summary: &SummaryMessage| !(summary.lines.is_empty() && summary.text.is_empty());
    if let Some((count, summary)) = summed_up
        && has_text(&summary)
    {
        carried.sum_up(count, context);
        summary.put(context, count);
    }
}

/// Stands for a text that was taken out of a record: endpoints refuse messages without a text.
const TAKEN_OUT: &str = "(The text of this message was deleted.)";

/// The places of the messages that a run itself carried. Those whose texts were taken out say so.
pub fn carried_messages(carried: Option<CarriedTexts>, context: &mut [Message]) -> BTreeSet<usize> {
    let Some(carried) = carried else {
        return BTreeSet::new();
    };
    for message in carried.messages_of(context) {
        match message {
            Message::Text(text) if text.text.is_empty() => text.text.push_str(TAKEN_OUT),
            Message::Summary(summary) if summary.lines.is_empty() && summary.text.is_empty() => {
                summary.text.push_str(TAKEN_OUT);
            }
            _ => {}
        }
    }
    carried.messages
}

/// The message that tells the model of the next turn how this one ended, and what the user was asked in a text of the
/// host, which is no part of the record. `is_gone`: texts were taken out of the end.
pub fn answer_message(output: &Value, reason: StopReason, is_gone: bool) -> Message {
    let question = match UserText::of(reason) {
        Some(UserText::Unfinished) => " I asked the user whether I should go on.",
        Some(UserText::OutOfTokens) => {
            " The task needs more text than is allowed for one request. I asked the user which part of it to work on \
             first."
        }
        _ => "",
    };
    // The model must not take it for an answer that the user has read.
    let stopped = || format!("(I was stopped before I had an answer: {reason:?}.{question})");
    let said = match output {
        Value::String(text) => text.clone(),
        Value::Null if is_gone => TAKEN_OUT.to_owned(),
        Value::Null => stopped(),
        data if question.is_empty() => data.to_string(),
        data => format!("{data}\n\n{}", stopped()),
    };
    Message::text(Role::Assistant, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that a document was not part of are there for the next summary.
    #[test]
    fn a_summary_whose_texts_were_taken_out_leaves_the_messages() {
        let said = ["a", "b", "c"].map(Message::user).to_vec();
        let emptied = SummaryMessage {
            messages: 2,
            left_out: 1,
            ..SummaryMessage::default()
        };
        let mut context = said.clone();
        put_summary(
            Some((1, emptied)),
            &mut context,
            &mut CarriedTexts::default(),
        );
        assert_eq!(context, said);
    }

    #[test]
    fn an_answer_that_was_taken_out_is_none_that_was_stopped() {
        for (is_gone, begins) in [(true, TAKEN_OUT), (false, "(I was stopped")] {
            let message = answer_message(&Value::Null, StopReason::Output, is_gone);
            let Message::Text(text) = message else {
                panic!("the answer is no text");
            };
            assert!(text.text.starts_with(begins), "{}", text.text);
        }
    }
}
