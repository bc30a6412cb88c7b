//! Empties parts of events. Each function returns whether there was something.

use serde_json::{Value, json};
use toolhold_protocol::advisor::Council;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::context::{Message, SummaryMessage};
use toolhold_protocol::decision::Pending;
use toolhold_protocol::event::{RunFailure, StopReason, ToolOutcome};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::solution::Call;

/// Empties the messages that the host composed from the record of an earlier run.
pub(super) fn empty_carried(request: &mut RunRequest) -> bool {
    let RunRequest {
        context, carried, ..
    } = request;
    let Some(carried) = carried else {
        return false;
    };
    let mut is_changed = false;
    for message in carried.messages_of(context) {
        is_changed |= match message {
            Message::Text(text) => empty(&mut text.text),
            // The result is what the client said.
            Message::ToolResult(result) => {
                let has_thoughts = !(result.reasoning.is_empty() && result.members.is_empty());
                result.reasoning.clear();
                result.members.clear();
                no_arguments(&mut result.arguments) | has_thoughts
            }
            Message::Summary(summary) => empty_summary(summary),
            _ => false,
        };
    }
    is_changed
}

/// Empties the summary of a conversation. Its counts stay.
pub(super) fn empty_summary(summary: &mut SummaryMessage) -> bool {
    let has_lines = !summary.lines.is_empty();
    summary.lines.clear();
    empty(&mut summary.text) || has_lines
}

/// Takes the arguments of a call away, and leaves a call without arguments. Returns whether it had some.
fn no_arguments(arguments: &mut Value) -> bool {
    let none = json!({});
    let has_some = !arguments.is_null() && *arguments != none;
    if has_some {
        *arguments = none;
    }
    has_some
}

/// Empties an output that the host composed. The ids of calls that a client was given stay: it brings their results.
pub(super) fn empty_output(reason: StopReason, output: &mut Value) -> bool {
    let calls = output.get("calls").and_then(Value::as_array);
    let Some(calls) = calls.filter(|_| reason == StopReason::ToolCalls) else {
        return nothing(output);
    };
    let member = |call: &Value, name: &str| call.get(name).cloned().unwrap_or_default();
    let calls: Vec<Value> = calls
        .iter()
        .map(
            |call| json!({"id": member(call, "id"), "tool": member(call, "tool"), "arguments": {}}),
        )
        .collect();
    let left = json!({"told": "", "calls": calls});
    let is_changed = *output != left;
    *output = left;
    is_changed
}

pub(super) fn empty_failure(failure: &mut RunFailure) -> bool {
    let had_names = failure.code.take().is_some() | failure.param.take().is_some();
    empty(&mut failure.message) | had_names
}

pub(super) fn empty_outcome(outcome: &mut ToolOutcome) -> bool {
    match outcome {
        ToolOutcome::Output(value) => nothing(value),
        ToolOutcome::Error(failure) => empty(&mut failure.message),
    }
}

/// Empties what a reply said for its advisors. Their votes stay.
pub(super) fn empty_council(council: &mut Council) -> bool {
    let mut is_changed = false;
    for opinion in &mut council.opinions {
        is_changed |= !opinion.fields.is_empty();
        opinion.fields.clear();
    }
    for fault in &mut council.faults {
        is_changed |= empty(&mut fault.reason);
    }
    is_changed
}

/// Members of a passage or a fact in a result that have its text.
const TEXTS: [&str; 2] = ["text", "under"];

/// Empties the texts of those that are listed in `member` and gone.
pub(super) fn redact_listed(
    value: &mut Value,
    member: &str,
    is_gone: impl Fn(&Value) -> bool,
) -> bool {
    let listed = value.get_mut(member).and_then(Value::as_array_mut);
    let mut is_changed = false;
    for one in listed.into_iter().flatten() {
        if !is_gone(one) {
            continue;
        }
        for name in TEXTS {
            if let Some(Value::String(text)) = one.get_mut(name) {
                is_changed |= empty(text);
            }
        }
    }
    is_changed
}

/// Empties a text. Returns whether it had something.
pub(super) fn empty(text: &mut String) -> bool {
    let has_some = !text.is_empty();
    text.clear();
    has_some
}

/// Takes a value away. Returns whether it had something.
pub(super) fn nothing(value: &mut Value) -> bool {
    !std::mem::take(value).is_null()
}

/// Empties what the model wrote into a call, but for the tool and the place of the result.
pub(super) fn empty_call(call: &mut Call) -> bool {
    let has_unknown = !call.unknown.is_empty();
    call.unknown.clear();
    nothing(&mut call.arguments)
        | call.reason.take().is_some()
        | call.scopes.take().is_some()
        | has_unknown
}

pub(super) fn empty_pending(pending: &mut Pending) -> bool {
    empty_call(&mut pending.call) | nothing(&mut pending.arguments) | empty(&mut pending.digest)
}

pub(super) fn empty_delta(delta: &mut Delta) -> bool {
    match delta {
        Delta::Content(text) | Delta::Reasoning(text) => empty(text),
        Delta::ToolCall { arguments, .. } => empty(arguments),
    }
}

/// The member of a reply that has the revision of what answered.
const REVISION: &str = "system_fingerprint";

pub(super) fn empty_reply(completion: &mut Completion) -> bool {
    let mut is_changed = empty(&mut completion.content) | empty(&mut completion.reasoning);
    is_changed |= !completion.reasoning_details.is_empty() || !completion.signed.is_empty();
    completion.reasoning_details.clear();
    completion.signed.clear();
    for call in &mut completion.tool_calls {
        is_changed |= empty(&mut call.arguments) || !call.members.is_empty();
        call.members.clear();
    }
    // Such as the words with their probabilities. The revision of what answered says nothing of them.
    let before = completion.extra.len();
    completion.extra.retain(|name, _| name == REVISION);
    is_changed || completion.extra.len() < before
}
