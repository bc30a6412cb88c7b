//! What the contracts share in which the model writes JSON as its text: `schema` and `simple`.

use crate::contract::View;
use crate::guard::validate::cut;
use crate::model::ChatMessage;
use crate::protocol::turn::Answered;
use crate::protocol::{Call, Tool, advisor};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// A model that babbles is shown the beginning of its babble, not all of it.
const MAX_REJECTED: usize = 1_000;
/// Small models like to play the tool too.
pub(super) const CALL_IT: &str =
    "Never write what a tool would return: call it, and read its result in the next message.";

/// The tools, under a heading.
pub(super) fn tools(tools: &[Tool]) -> String {
    let mut text = String::from("\n\n# Tools\n");
    for tool in tools {
        let mut parameters = tool.parameters.clone();
        if let Some(schema) = parameters.as_object_mut() {
            schema.remove("$schema");
            schema.remove("title");
        }
        let _ = write!(
            text,
            "\n## {}\n{}\nParameters: {parameters}\n",
            tool.name, tool.description
        );
    }
    text
}

/// A call's reserved properties and its parameters, without its tool.
pub(super) fn properties(call: &Call, reasons: bool) -> Map<String, Value> {
    let mut properties = call.object(reasons);
    properties.shift_remove("_tool");
    properties
}

/// What every reply begins with besides, where advisors speak or a version moves.
pub(super) fn first(view: &View<'_>) -> String {
    let mut text = String::new();
    if let Some(schema) = view.composition.meta {
        let _ = write!(
            text,
            "\nEvery reply has \"meta\" first, which satisfies {schema}"
        );
    }
    if let Some(schema) = view.composition.advisors {
        let _ = write!(
            text,
            "\nBefore its calls this reply has \"advisors\", which satisfies {schema}\n{}",
            advisor::VOTING
        );
    }
    text
}

/// Results inside their fences.
pub(super) fn results(calls: &[Answered]) -> String {
    let mut text = String::new();
    for answered in calls {
        let (tool, fence) = (&answered.call.tool, &answered.fence);
        let kind = if answered.failed { "error" } else { "result" };
        let instance = answered.call.instance.as_ref();
        let of = instance.map_or(String::new(), |name| format!(" instance={name:?}"));
        let _ = writeln!(
            text,
            "<{kind} {fence} tool=\"{tool}\"{of}>\n{}\n</{kind} {fence}>",
            answered.text
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// A reply that could not be used, and how to write the next: `form`.
pub(super) fn rejected(reply: &str, reason: &str, form: &str, out: &mut Vec<ChatMessage>) {
    out.push(ChatMessage::assistant(cut(reply, MAX_REJECTED)));
    out.push(ChatMessage::user(format!(
        "That reply could not be used: {reason}. Reply again, with {form}."
    )));
}
