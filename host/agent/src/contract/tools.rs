//! The `tools` contract: native tool calling. Each tool is a function; with an output schema there is
//! one more, `finish`, that carries the output.

use crate::contract::{View, examples};
use crate::model::{ChatMessage, ChatRequest, ChatTool, ChatToolCall, Completion, ToolChoice};
use crate::protocol::lower::Lowering;
use crate::protocol::solution::Requested;
use crate::protocol::{Message, Role, Solution};
use serde_json::{Value, json};

const FINISH: &str = "finish";

pub fn request(view: &View<'_>) -> ChatRequest {
    let mut messages = vec![ChatMessage::system(view.instructions.to_owned())];
    for message in examples::turns(view.tools, view.settings.examples) {
        render(&message, &mut messages);
    }
    for message in view.context {
        render(message, &mut messages);
    }
    let mut tools: Vec<_> = view
        .tools
        .iter()
        .map(|tool| ChatTool {
            name: function(&tool.name),
            description: tool.description.clone(),
            parameters: lowered(&tool.parameters),
        })
        .collect();
    if let Some(schema) = view.output_schema {
        tools.push(ChatTool {
            name: FINISH.into(),
            description: "Gives the final output. Call it once, when the task is done.".into(),
            parameters: lowered(&json!({
                "type": "object",
                "properties": {"output": schema},
                "required": ["output"],
                "additionalProperties": false,
            })),
        });
    }
    ChatRequest {
        model: view.model.to_owned(),
        messages,
        tool_choice: (!tools.is_empty()).then_some(ToolChoice::Auto),
        tools,
        max_tokens: Some(view.settings.max_tokens),
        temperature: view.settings.temperature,
        ..ChatRequest::default()
    }
}

/// Decided by the presence of tool calls, never by finish_reason, which servers get wrong.
pub fn read(completion: &Completion, view: &View<'_>) -> Result<Solution, String> {
    let mut solution = Solution::default();
    for call in &completion.tool_calls {
        let text = if call.arguments.trim().is_empty() {
            "{}"
        } else {
            &call.arguments
        };
        let arguments: Value = serde_json::from_str(text)
            .map_err(|error| format!("the arguments of {} are not JSON: {error}", call.name))?;
        if call.name == FINISH && view.output_schema.is_some() {
            solution.output = arguments.get("output").cloned();
        } else {
            solution.calls.push(Requested {
                tool: tool(&call.name),
                arguments,
                reason: None,
            });
        }
    }
    if solution.calls.is_empty() && solution.output.is_none() {
        let text = completion.content.trim();
        if text.is_empty() {
            return Err("the reply is empty; call a tool or answer".into());
        }
        if view.output_schema.is_some() {
            return Err("the final output must be given by calling finish".into());
        }
        solution.output = Some(json!(text));
    }
    Ok(solution)
}

/// Function names may not hold dots. Tool names never hold a hyphen, so this can be undone.
fn function(tool: &str) -> String {
    tool.replace('.', "-")
}

fn tool(function: &str) -> String {
    function.replace('-', ".")
}

fn lowered(schema: &Value) -> Value {
    let mut lowering = Lowering::new(None);
    let mut lowered = lowering.lower(schema, "");
    // Lowering keeps what a grammar needs; what a parameter means is in its descriptions.
    describe(schema, &mut lowered);
    lowering.finish(lowered)
}

fn describe(from: &Value, to: &mut Value) {
    let (Some(from), Some(to)) = (
        from.get("properties").and_then(Value::as_object),
        to.get_mut("properties"),
    ) else {
        return;
    };
    for (name, property) in from {
        if let (Some(text), Some(Value::Object(target))) =
            (property.get("description"), to.get_mut(name))
        {
            target.insert("description".into(), text.clone());
        }
    }
}

fn render(message: &Message, out: &mut Vec<ChatMessage>) {
    match message {
        Message::Text {
            role: Role::System,
            text,
        } => out.push(ChatMessage::system(text.clone())),
        Message::Text {
            role: Role::User,
            text,
        } => out.push(ChatMessage::user(text.clone())),
        Message::Text {
            role: Role::Assistant,
            text,
        } => out.push(ChatMessage::assistant(text.clone())),
        Message::Exchange(exchange) => {
            let calls = exchange
                .calls
                .iter()
                .map(|answered| ChatToolCall {
                    id: answered.call.id.clone(),
                    name: function(&answered.call.tool),
                    arguments: answered.call.arguments.to_string(),
                })
                .collect();
            out.push(ChatMessage::assistant_calls(None, calls));
            for answered in &exchange.calls {
                let text = if answered.failed {
                    format!("error: {}", answered.text)
                } else {
                    answered.text.clone()
                };
                out.push(ChatMessage::tool(answered.call.id.clone(), text));
            }
        }
        Message::Rejected { reply, reason } => {
            if !reply.is_empty() {
                out.push(ChatMessage::assistant(reply.clone()));
            }
            out.push(ChatMessage::user(format!(
                "That reply could not be used: {reason}."
            )));
        }
    }
}
