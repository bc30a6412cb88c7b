//! The `schema` contract: one JSON object that satisfies the composed schema.

use crate::contract::{View, examples};
use crate::model::{ChatMessage, ChatRequest, Completion};
use crate::protocol::compose::{self, Composition};
use crate::protocol::{Exchange, Message, Role, Solution, Tool};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// llama.cpp refuses repetitions beyond 2000, and a bound that the token limit makes useless only
/// costs grammar.
const MAX_BOUND: u32 = 2_000;
/// A model that babbles is shown the beginning of its babble, not all of it.
const MAX_REJECTED: usize = 1_000;

pub fn request(view: &View<'_>) -> ChatRequest {
    let settings = view.settings;
    let mut messages = vec![ChatMessage::system(system(view))];
    for message in examples::turns(view.tools, settings.examples) {
        render(&message, settings.reasons, &mut messages);
    }
    for message in view.context {
        render(message, settings.reasons, &mut messages);
    }
    // About three characters a token: a string this long fills what the reply may have.
    let bound = settings.max_tokens.saturating_mul(3);
    let schema = compose::compose(
        view.tools,
        view.output_schema,
        Composition {
            shape: settings.shape,
            reasons: settings.reasons,
            max_calls: settings.max_calls,
            max_string: Some(bound).filter(|bound| *bound <= MAX_BOUND),
        },
    );
    ChatRequest {
        model: view.model.to_owned(),
        messages,
        response_format: Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "solution", "strict": true, "schema": schema},
        })),
        max_tokens: Some(settings.max_tokens),
        temperature: settings.temperature,
        ..ChatRequest::default()
    }
}

pub fn read(completion: &Completion) -> Result<Solution, String> {
    Solution::parse(&completion.content)
}

/// Instructions, tools and the form of a reply. The same bytes at every step of a run, so that
/// prefix caches hit.
fn system(view: &View<'_>) -> String {
    let mut text = view.instructions.to_owned();
    if view.tools.is_empty() {
        text.push_str(
            "\n\nReply with one JSON object: {\"calls\": [], \"output\": <your answer>}.",
        );
        return text;
    }
    text.push_str("\n\n# Tools\n");
    for tool in view.tools {
        describe(tool, &mut text);
    }
    text.push_str(
        "\n# Form of a reply\nReply with one JSON object and nothing else.\n\
         To call tools: {\"calls\": [{\"_tool\": \"<name>\", <parameters>}], \"output\": null}\n\
         When you know the answer: {\"calls\": [], \"output\": <answer>}\n\
         Never write what a tool would return: call it, and read its result in the next message.",
    );
    text
}

fn describe(tool: &Tool, text: &mut String) {
    let mut parameters = tool.parameters.clone();
    if let Value::Object(schema) = &mut parameters {
        schema.remove("$schema");
        schema.remove("title");
    }
    let _ = write!(
        text,
        "\n## {}\n{}\nParameters: {parameters}\n",
        tool.name, tool.description
    );
}

fn render(message: &Message, reasons: bool, out: &mut Vec<ChatMessage>) {
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
        } => {
            out.push(ChatMessage::assistant(
                json!({"calls": [], "output": text}).to_string(),
            ));
        }
        Message::Exchange(exchange) => {
            out.push(ChatMessage::assistant(solution(exchange, reasons)));
            out.push(ChatMessage::user(results(exchange)));
        }
        Message::Rejected { reply, reason } => {
            out.push(ChatMessage::assistant(crate::guard::validate::cut(
                reply,
                MAX_REJECTED,
            )));
            out.push(ChatMessage::user(format!(
                "That reply could not be used: {reason}. Reply again, with one JSON object of the form described above."
            )));
        }
    }
}

/// The calls as the model would have written them.
fn solution(exchange: &Exchange, reasons: bool) -> String {
    let calls: Vec<Value> = exchange
        .calls
        .iter()
        .map(|answered| {
            let mut object = Map::new();
            object.insert("_tool".into(), json!(answered.call.tool));
            if let (true, Some(reason)) = (reasons, &answered.call.reason) {
                object.insert("_reasoningForCall".into(), json!(reason));
            }
            if let Value::Object(arguments) = &answered.call.arguments {
                object.extend(arguments.clone());
            }
            Value::Object(object)
        })
        .collect();
    json!({"calls": calls, "output": null}).to_string()
}

fn results(exchange: &Exchange) -> String {
    let mut text = String::new();
    for answered in &exchange.calls {
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
