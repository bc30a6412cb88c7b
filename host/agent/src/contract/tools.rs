//! The `tools` contract: native tool calling. Each tool is a function; with an output schema there is
//! one more, `finish`, that carries the output.

use crate::contract::View;
use crate::contract::conversation::{self, Voice};
use crate::contract::reader::{Given, SPACE, call_object};
use crate::model::{ChatMessage, ChatRequest, ChatTool, ChatToolCall, Completion, ToolChoice};
use crate::protocol::lower::Lowering;
use crate::protocol::solution::requested;
use crate::protocol::{Exchange, Solution};
use serde_json::{Map, Value, json};

/// The function that carries the output. Tools have a dot in their names, so none is called this.
const FINISH: &str = "finish";

pub fn request(view: &View<'_>) -> ChatRequest {
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
        messages: conversation::messages(view, view.instructions.to_owned(), &Functions),
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
        let arguments = match call.arguments.trim_matches(SPACE) {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|error| format!("the arguments of {} are not JSON: {error}", call.name))?,
        };
        match given(&call.name, arguments)? {
            Given::Call(call) => solution.calls.push(requested(call)?),
            Given::Output(_) if solution.output.is_some() => {
                return Err("finish was called twice; call it once, with the final output".into());
            }
            Given::Output(output) => solution.output = Some(output),
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

/// What a function call of the model stands for. No arguments at all are `null` here.
pub(super) fn given(function: &str, arguments: Value) -> Result<Given, String> {
    let mut arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => Map::new(),
        _ => return Err(format!("the arguments of {function} must be a JSON object")),
    };
    if function != FINISH {
        return Ok(Given::Call(call_object(tool(function), arguments)));
    }
    match arguments.shift_remove("output") {
        None | Some(Value::Null) => {
            Err("finish was called without the final output; give it as \"output\"".into())
        }
        Some(output) => Ok(Given::Output(output)),
    }
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

struct Functions;

impl Voice for Functions {
    fn answer(&self, text: &str) -> ChatMessage {
        ChatMessage::assistant(text.to_owned())
    }

    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>) {
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

    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>) {
        if !reply.is_empty() {
            out.push(ChatMessage::assistant(reply.to_owned()));
        }
        out.push(ChatMessage::user(format!(
            "That reply could not be used: {reason}."
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Settings;

    fn reply(calls: &[(&str, &str)], output_schema: Option<&Value>) -> Result<Solution, String> {
        let tool_calls = calls.iter().map(|(name, arguments)| ChatToolCall {
            id: String::new(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        });
        let completion = Completion {
            tool_calls: tool_calls.collect(),
            ..Completion::default()
        };
        let view = View {
            model: "m",
            instructions: "",
            context: &[],
            tools: &[],
            output_schema,
            settings: &Settings::default(),
        };
        read(&completion, &view)
    }

    #[test]
    fn functions_are_tools_and_finish_is_the_output() {
        let solution = reply(
            &[
                ("a-b", r#"{"_reasoningForCall":"why","_tool":"c.d","x":1}"#),
                ("c-d", " "),
                ("e-f", "null"),
                ("finish", r#"{"output":{"n":7}}"#),
            ],
            None,
        )
        .unwrap();
        let calls: Vec<_> = solution
            .calls
            .iter()
            .map(|call| (call.tool.as_str(), call.arguments.clone()))
            .collect();
        assert_eq!(
            calls,
            [
                ("a.b", json!({"x": 1})),
                ("c.d", json!({})),
                ("e.f", json!({}))
            ]
        );
        assert_eq!(solution.calls[0].reason.as_deref(), Some("why"));
        assert_eq!(solution.output, Some(json!({"n": 7})));
    }

    #[test]
    fn every_fault_says_what_to_do() {
        let schema = json!({"type": "integer"});
        let output = r#"{"output":7}"#;
        for (calls, expect) in [
            (vec![], "the reply is empty"),
            (vec![("a-b", "{")], "the arguments of a-b are not JSON"),
            (
                vec![("a-b", "[1]")],
                "the arguments of a-b must be a JSON object",
            ),
            (vec![("finish", r#"{"answer":7}"#)], "give it as \"output\""),
            (vec![("finish", output), ("finish", output)], "called twice"),
        ] {
            let error = reply(&calls, Some(&schema)).unwrap_err();
            assert!(error.contains(expect), "{calls:?} gave {error}");
        }
    }
}
