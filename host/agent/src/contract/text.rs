//! Shared parts of the contracts in which the model writes JSON as text: `schema` and `simple`.

use crate::catalogue::ToolCatalogue;
use crate::contract::{RequestView, thought};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use toolhold_model::chat::ChatMessage;
use toolhold_policy::prompt::{Fence, PromptText};
use toolhold_protocol::advisor;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::function_names::{self, ToolNames};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{OutputPath, Scopes, Tool};
use toolhold_protocol::turn::Answered;
use toolhold_text::cut;

/// Maximum characters of an unusable reply that the model is shown again.
const MAX_REJECTED_CHARS: usize = 1_000;

/// The tools, under a heading.
pub(super) fn tools(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> PromptText {
    let mut text = PromptText::from("\n\n# Tools\n");
    let Composition { names, lazy, .. } = view.composition;
    let is_named = names.is_some();
    for own in view.tools {
        match catalogue.forms(own) {
            Some(forms) => {
                let kept = forms
                    .texts
                    .get_or_make((is_named, lazy), || tool(own, is_named, lazy));
                text.part(&kept);
            }
            None => {
                text.part(&tool(own, is_named, lazy));
            }
        }
    }
    text
}

/// A tool: its name, its description and its parameters.
fn tool(tool: &Tool, is_named: bool, lazy: bool) -> PromptText {
    let mut text = PromptText::default();
    let mut parameters = if is_named {
        function_names::outward_parameters(tool).into_owned()
    } else {
        tool.parameters.clone()
    };
    if let Some(schema) = parameters.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
    }
    text.words("\n## ").line(&tool.name).words("\n");
    text.quoted(&tool.description)
        .words("\nParameters: ")
        .json(&parameters)
        .words("\n");
    for line in reserved(tool, lazy) {
        text.part(&line).words("\n");
    }
    if let (true, Some(output)) = (tool.is_latent(), &tool.output) {
        text.words("\"_output\" must satisfy ")
            .json(output)
            .words("\n");
    }
    text
}

/// Tells the model to call the tool: small models tend to write the tool's result themselves.
/// Latent tools are an exception.
pub(super) fn call_it(tools: &[Arc<Tool>]) -> &'static str {
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
pub(super) fn reserved(tool: &Tool, lazy: bool) -> Vec<PromptText> {
    let mut lines = Vec::new();
    if let Scopes::Requested(offered) = &tool.scopes {
        let offered: Vec<_> = offered.iter().map(ToString::to_string).collect();
        let mut line = PromptText::from("\"_scopes\": the list of what it may see, of ");
        lines.push(line.line(&offered.join(", ")).take());
    }
    match &tool.output_path {
        None => {}
        Some(OutputPath::Fixed(target)) => {
            let mut line = PromptText::from("\"_outputPath\" is always ");
            line.line(&target.to_string())
                .words(": there you find the result");
            lines.push(line);
        }
        Some(OutputPath::OneOf(offered)) => {
            let offered: Vec<_> = offered.iter().map(ToString::to_string).collect();
            let mut line = PromptText::from("\"_outputPath\" is one of ");
            line.line(&offered.join(", "))
                .words(": choose the one that the result is for");
            lines.push(line);
        }
        Some(path) => {
            let mut line = PromptText::from("\"_outputPath\" must satisfy ");
            lines.push(line.json(&path.schema()).take());
        }
    }
    if tool.is_latent() && lazy {
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
pub(super) fn output(view: &RequestView<'_>) -> PromptText {
    let mut text = PromptText::default();
    if let Some(schema) = view.output_schema {
        text.words("\nThe answer must satisfy this JSON Schema: ")
            .json(schema);
    }
    text
}

/// The arguments of a call that was made elsewhere, where they are the text of an object: as a value they would lose digits.
pub(super) fn written_arguments(call: &Call) -> Option<&str> {
    let text = call.arguments.as_str()?;
    let is_object = text.trim_start().starts_with('{');
    (is_object && serde_json::from_str::<IgnoredAny>(text).is_ok()).then_some(text)
}

/// The call with its arguments as they go out. Arguments that are a text stand in a member.
pub(super) fn outward<'c>(call: &'c Call, names: Option<&Arc<ToolNames>>) -> Cow<'c, Call> {
    if let Some(text) = written_arguments(call) {
        return Cow::Owned(Call {
            arguments: json!({"arguments": text}),
            ..call.clone()
        });
    }
    names.map_or(Cow::Borrowed(call), |names| names.outward_arguments(call))
}

/// A call's reserved properties and its parameters, without its tool.
pub(super) fn properties(call: &Call, reasons: bool) -> Map<String, Value> {
    let mut properties = call.object(reasons);
    properties.shift_remove("_tool");
    properties
}

/// Describes what the next reply needs: members before the calls, for advisors or a version, and a call. They differ
/// from step to step, so this text comes last.
pub(super) fn first(view: &RequestView<'_>) -> PromptText {
    let mut text = PromptText::default();
    if let Some(schema) = view.composition.meta {
        text.words("Every reply has \"meta\" first, which satisfies ")
            .json(schema);
    }
    if let Some(schema) = view.composition.advisors {
        text.words(if text.is_empty() { "" } else { "\n" });
        text.words("Before its calls this reply has \"advisors\", which satisfies ")
            .json(schema)
            .words("\n")
            .words(advisor::VOTING);
    }
    let demand = demand(view.composition.demanded);
    if !demand.is_empty() {
        text.words(if text.is_empty() { "" } else { "\n" });
        text.part(&demand);
    }
    text
}

/// Maximum number of tools that are named where one of them has to be called.
const MAX_DEMANDED: usize = 5;

/// Says that the next reply has to call one of these tools, for models that nothing else holds to it.
pub(super) fn demand(names: &[String]) -> PromptText {
    let mut text = PromptText::default();
    match names {
        [] => {}
        [only] => {
            text.words("This reply has to call the tool ")
                .line(only)
                .words(". Do not answer before that.");
        }
        names if names.len() <= MAX_DEMANDED => {
            text.words("This reply has to call one of these tools: ")
                .line(&names.join(", "))
                .words(". Do not answer before that.");
        }
        _ => {
            text.words("This reply has to call one of the tools. Do not answer before that.");
        }
    }
    text
}

/// Results inside their fences.
pub(super) fn results(calls: &[Answered]) -> PromptText {
    let results: Vec<PromptText> = calls.iter().map(result).collect();
    PromptText::joined(&results, "\n")
}

/// A result inside its fence.
pub(super) fn result(answered: &Answered) -> PromptText {
    let mut attributes = vec![("tool", answered.call.tool.as_str())];
    let instance = answered.call.instance.as_deref();
    attributes.extend(instance.map(|name| ("instance", name)));
    let fence = Fence {
        kind: if answered.failed { "error" } else { "result" },
        mark: &answered.fence,
        attributes: &attributes,
    };
    PromptText::default().fenced(&fence, &answered.text).take()
}

/// A reply that could not be used, and how to write the next: `form`.
pub(super) fn rejected(reply: &str, reason: &str, form: &PromptText, out: &mut Vec<ChatMessage>) {
    let shown = match thought::split(reply).answer.trim() {
        "" => reply,
        answer => answer,
    };
    out.push(ChatMessage::assistant(cut(shown, MAX_REJECTED_CHARS)));
    let mut text = PromptText::from("That reply could not be used: ");
    text.line(reason).words(". Reply again, with ");
    out.push(ChatMessage::user(text.part(form).words(".").take()));
}
