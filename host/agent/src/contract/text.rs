//! What the contracts share in which the model writes JSON as its text: `schema` and `simple`.

use crate::guard::validate::cut;
use crate::model::ChatMessage;
use crate::protocol::message::Answered;
use crate::protocol::{Call, Tool};
use serde_json::{Map, Value, json};
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

/// The reasons for a call, where they are wanted, and its parameters.
pub(super) fn properties(call: &Call, reasons: bool) -> Map<String, Value> {
    let mut properties = Map::new();
    if let (true, Some(reason)) = (reasons, &call.reason) {
        properties.insert("_reasoningForCall".into(), json!(reason));
    }
    if let Value::Object(arguments) = &call.arguments {
        properties.extend(arguments.clone());
    }
    properties
}

/// Results inside their fences.
pub(super) fn results(calls: &[Answered]) -> String {
    let mut text = String::new();
    for answered in calls {
        let (tool, fence) = (&answered.call.tool, &answered.fence);
        let kind = if answered.failed { "error" } else { "result" };
        let _ = writeln!(
            text,
            "<{kind} {fence} tool=\"{tool}\">\n{}\n</{kind} {fence}>",
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
