//! The `tools` contract: native tool calling. Each tool is a function; with an output schema there is
//! one more, `finish`, that carries the output.

mod names;
mod parameters;
mod reply;
mod text_answer;
mod transcript;

pub(super) use names::given;
pub use names::tool;
pub use reply::read;

use crate::catalogue::ToolCatalogue;
use crate::contract::{RequestView, conversation, text};
use names::{function, function_of_member, members};
use parameters::{function_of, shown};
use toolhold_model::chat::{ChatRequest, ChatTool, ToolChoice};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor;
use toolhold_protocol::compose::Forcing;
use transcript::Functions;

pub fn request(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> ChatRequest {
    let composition = view.composition;
    let form = composition.call_form();
    let mut tools: Vec<_> = view
        .tools
        .iter()
        .map(|tool| {
            let shown = parameters::function(tool, form, catalogue);
            ChatTool {
                name: function(&tool.name, composition.names),
                description: shown.description.as_str().to_owned(),
                parameters: shown.parameters.clone(),
            }
        })
        .collect();
    for (name, member, description, schema) in members(view) {
        let Some(schema) = schema else { continue };
        tools.push(ChatTool {
            name: function_of_member(name, view),
            description: description.into(),
            parameters: shown(function_of(member, schema, composition.authored)),
        });
    }
    let mut last = match composition.advisors {
        Some(_) => advisor::VOTING.into(),
        None => PromptText::default(),
    };
    let demand = text::demand(composition.demanded);
    if !demand.is_empty() {
        last.words(if last.is_empty() { "" } else { "\n" });
        last.part(&demand);
    }
    let system = PromptText::instruction(view.instructions);
    let voice = Functions {
        reasons: view.settings.reasons,
        names: composition.names,
    };
    ChatRequest {
        model: view.model.to_owned(),
        messages: conversation::messages(view, system, &voice, last),
        tool_choice: tool_choice(view, &tools),
        tools,
        max_tokens: Some(view.settings.max_tokens),
        temperature: view.settings.temperature,
        ..ChatRequest::default()
    }
}

fn tool_choice(view: &RequestView<'_>, tools: &[ChatTool]) -> Option<ToolChoice> {
    if tools.is_empty() {
        return None;
    }
    if !view.composition.forced {
        return Some(ToolChoice::Auto);
    }
    Some(match (tools, view.composition.forcing) {
        (_, Forcing::Auto) => ToolChoice::Auto,
        ([only], Forcing::Named) => ToolChoice::Named(only.name.clone()),
        (_, Forcing::Named | Forcing::Required) => ToolChoice::Required,
    })
}
