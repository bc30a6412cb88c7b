//! Shared parts of the contracts in which the model writes JSON as text: `schema` and `simple`.

use crate::contract::{RequestView, thought};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use toolhold_model::chat::ChatMessage;
use toolhold_protocol::advisor;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{OutputPath, Scopes, Tool};
use toolhold_protocol::turn::Answered;
use toolhold_text::cut;

/// Maximum characters of an unusable reply that the model is shown again.
const MAX_REJECTED_CHARS: usize = 1_000;

/// The tools, under a heading.
pub(super) fn tools(view: &RequestView<'_>) -> String {
    let mut text = String::from("\n\n# Tools\n");
    for tool in view.tools {
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
        for line in reserved(tool, view.composition) {
            let _ = writeln!(text, "{line}");
        }
        if let (true, Some(output)) = (tool.is_latent(), &tool.output) {
            let _ = writeln!(text, "\"_output\" must satisfy {output}");
        }
    }
    text
}

/// Tells the model to call the tool: small models tend to write the tool's result themselves.
/// Latent tools are an exception.
pub(super) fn call_it(tools: &[Tool]) -> &'static str {
    let latent = tools.iter().filter(|tool| tool.is_latent()).count();
    if latent == 0 {
        "Never write what a tool would return: call it, and read its result in the next message."
    } else if latent < tools.len() {
        "Never write what a tool would return that is not yours to answer: call it, and read its result in the next message."
    } else {
        ""
    }
}

/// Describes the reserved properties of a tool's calls, one line each.
pub(super) fn reserved(tool: &Tool, how: Composition<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Scopes::Requested(offered) = &tool.scopes {
        let offered: Vec<_> = offered.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "\"_scopes\": the list of what it may see, of {}",
            offered.join(", ")
        ));
    }
    match &tool.output_path {
        None => {}
        Some(OutputPath::Fixed(target)) => lines.push(format!(
            "\"_outputPath\" is always {target}: there you find the result"
        )),
        Some(OutputPath::OneOf(offered)) => {
            let offered: Vec<_> = offered.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "\"_outputPath\" is one of {}: choose the one that the result is for",
                offered.join(", ")
            ));
        }
        Some(path) => lines.push(format!("\"_outputPath\" must satisfy {}", path.schema())),
    }
    if tool.is_latent() && how.lazy {
        lines.push(
            "This tool is yours to answer, later: plan it without \"_output\", and write its result as \"_output\" \
             in the call when the plan was accepted and asks for it"
                .into(),
        );
    } else if tool.is_latent() {
        lines.push(
            "This tool is yours to answer: write its result as \"_output\" in the call".into(),
        );
    }
    lines
}

/// The schema of the answer: a grammar enforces its form and does not tell its meaning.
pub(super) fn output(view: &RequestView<'_>) -> String {
    view.output_schema.map_or_else(String::new, |schema| {
        format!("\nThe answer must satisfy this JSON Schema: {schema}")
    })
}

/// A call's reserved properties and its parameters, without its tool.
pub(super) fn properties(call: &Call, reasons: bool) -> Map<String, Value> {
    let mut properties = call.object(reasons);
    properties.shift_remove("_tool");
    properties
}

/// Describes the members before the calls that the next reply needs, for advisors or a version. They differ
/// from step to step, so this text comes last.
pub(super) fn first(view: &RequestView<'_>) -> String {
    let mut text = String::new();
    if let Some(schema) = view.composition.meta {
        let _ = write!(
            text,
            "Every reply has \"meta\" first, which satisfies {schema}"
        );
    }
    if let Some(schema) = view.composition.advisors {
        let _ = write!(
            text,
            "{}Before its calls this reply has \"advisors\", which satisfies {schema}\n{}",
            if text.is_empty() { "" } else { "\n" },
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
    let shown = match thought::split(reply).answer.trim() {
        "" => reply,
        answer => answer,
    };
    out.push(ChatMessage::assistant(cut(shown, MAX_REJECTED_CHARS)));
    out.push(ChatMessage::user(format!(
        "That reply could not be used: {reason}. Reply again, with {form}."
    )));
}
