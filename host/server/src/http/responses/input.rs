//! Reads the items of an input as messages, and lists them with their ids.

use crate::http::error::ApiError;
use crate::http::messages::{ChatMessage, ClientCall, ClientFunction};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use toolhold_protocol::context::{Message, ToolResultMessage};
use toolhold_protocol::turn::Role;
use uuid::Uuid;

/// Types of a message's text parts: input to the model, and output of it.
const SAID: [&str; 2] = ["input_text", "output_text"];

/// The type of an item that holds what a model thought.
const REASONING: &str = "reasoning";

/// One item of an input, of any type.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputItem {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    role: String,
    content: Value,
    call_id: String,
    name: String,
    arguments: String,
    output: Value,
}

/// Converts the items of an input into messages of the chat API, in order. `composed`: places of items whose texts the
/// host composed.
///
/// # Errors
/// The input has an invalid form, or an item that cannot be used.
pub fn messages(input: &Value, composed: &BTreeSet<usize>) -> Result<Vec<ChatMessage>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![message("user", Value::String(text.clone()))]),
        Value::Array(items) => items,
        _ => {
            return Err(ApiError::member(
                "input",
                "expected a text or a list of items",
            ));
        }
    };
    let read = |(index, item): (usize, &Value)| {
        let at = |error: String| ApiError::member(&format!("input[{index}]"), error);
        let item = InputItem::deserialize(item).map_err(|error| at(error.to_string()))?;
        if item.is_reasoning() {
            return Ok(None);
        }
        let mut message = item.message().map_err(at)?;
        message.is_composed = composed.contains(&index);
        Ok(Some(message))
    };
    let read = items.iter().enumerate().map(read);
    read.filter_map(Result::transpose).collect()
}

/// The input items of a response as they are listed, after the items `before`. Each has an id: the client's,
/// or a new one.
pub fn listed(run: Uuid, before: Vec<Value>, input: &Value) -> Vec<Value> {
    let items: Vec<InputItem> = match input {
        Value::Array(items) => items
            .iter()
            .filter_map(|it| InputItem::deserialize(it).ok())
            .collect(),
        text => vec![InputItem::said("user", text.clone())],
    };
    with_ids(run, before, items)
}

/// A run's context as input items, for a run that another API began.
pub fn of_context(run: Uuid, context: &[Message]) -> Vec<Value> {
    let said = context.iter().flat_map(|message| match message {
        Message::Text(said) => {
            let role = match said.role {
                Role::Assistant => "assistant",
                _ => "user",
            };
            vec![InputItem::said(role, said.text.clone().into())]
        }
        Message::Image(image) => {
            let part = json!([{"type": "input_image", "detail": image.detail}]);
            vec![InputItem::said("user", part)]
        }
        Message::ToolResult(result) => InputItem::called(result),
        _ => Vec::new(),
    });
    with_ids(run, Vec::new(), said.collect())
}

fn with_ids(run: Uuid, before: Vec<Value>, items: Vec<InputItem>) -> Vec<Value> {
    let ids = before.iter().filter_map(|item| item["id"].as_str());
    let mut taken: BTreeSet<String> = ids.map(str::to_owned).collect();
    let mut all = before;
    for (index, item) in items.into_iter().enumerate() {
        let given = item.id.clone().filter(|id| !id.is_empty());
        let id = given
            .filter(|id| !taken.contains(id))
            .unwrap_or_else(|| format!("{}_{}_in{index}", item.prefix(), run.simple()));
        taken.insert(id.clone());
        all.push(item.listed(id));
    }
    all
}

impl InputItem {
    fn said(role: &str, content: Value) -> Self {
        Self {
            role: role.to_owned(),
            content,
            ..Self::default()
        }
    }

    /// A call that the client made, and its result.
    fn called(result: &ToolResultMessage) -> Vec<Self> {
        let of = |kind: &str| Self {
            kind: Some(kind.to_owned()),
            call_id: result.id.clone(),
            ..Self::default()
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![
            Self {
                name: result.tool.clone(),
                arguments: text(&result.arguments),
                ..of("function_call")
            },
            Self {
                output: text(&result.result).into(),
                ..of("function_call_output")
            },
        ]
    }

    /// Whether it is what a model thought, for that model alone. Clients send it back with their history.
    fn is_reasoning(&self) -> bool {
        self.kind.as_deref() == Some(REASONING)
    }

    fn message(self) -> Result<ChatMessage, String> {
        Ok(match self.kind.as_deref() {
            None | Some("message") => message(&self.role, self.content),
            Some("function_call") => ChatMessage {
                tool_calls: vec![ClientCall {
                    id: self.call_id,
                    function: ClientFunction {
                        name: self.name,
                        arguments: self.arguments,
                    },
                    ..ClientCall::default()
                }],
                ..message("assistant", Value::Null)
            },
            Some("function_call_output") => ChatMessage {
                tool_call_id: Some(self.call_id),
                name: Some(self.name),
                ..message("tool", self.output)
            },
            Some(other) => {
                return Err(format!(
                    "an item of the type {other:?} cannot be used; expected message, function_call or function_call_output"
                ));
            }
        })
    }

    /// Prefixes of the items' ids.
    fn prefix(&self) -> &'static str {
        match self.kind.as_deref() {
            Some("function_call") => "fc",
            Some("function_call_output") => "fco",
            Some(REASONING) => "rs",
            _ => "msg",
        }
    }

    fn listed(self, id: String) -> Value {
        match self.kind.as_deref() {
            Some("function_call") => json!({
                "type": "function_call", "id": id, "status": "completed",
                "call_id": self.call_id, "name": self.name, "arguments": self.arguments,
            }),
            Some("function_call_output") => {
                let output: Value = match self.output {
                    Value::Array(parts) => parts.into_iter().map(listed_part).collect(),
                    output => output,
                };
                json!({
                    "type": "function_call_output", "id": id, "status": "completed",
                    "call_id": self.call_id, "output": output,
                })
            }
            Some(REASONING) => json!({"type": REASONING, "id": id, "summary": []}),
            _ => json!({
                "type": "message", "id": id, "status": "completed",
                "role": self.role, "content": parts(&self.role, self.content),
            }),
        }
    }
}

/// A part of a text that was said.
fn text_part(kind: &str, text: Value) -> Value {
    match kind {
        "output_text" => json!({"type": kind, "text": text, "annotations": [], "logprobs": []}),
        _ => json!({"type": kind, "text": text}),
    }
}

/// A client's part, as it is listed: without the bytes of images and files, which each list would repeat.
fn listed_part(mut part: Value) -> Value {
    let [to_the_model, _] = SAID;
    let kind = part["type"].as_str().unwrap_or(to_the_model).to_owned();
    let is_address = |it: &Value| it.as_str().is_some_and(|text| text.starts_with("http"));
    match kind.as_str() {
        "image_url" | "input_image" => {
            let image = &part["image_url"];
            let own = if image.is_object() { image } else { &part };
            let detail = own["detail"].as_str().unwrap_or("auto");
            let url = if image.is_object() {
                &image["url"]
            } else {
                image
            };
            let address = Some(url).filter(|url| is_address(url));
            json!({"type": "input_image", "detail": detail, "file_id": null, "image_url": address})
        }
        "file" | "input_file" => {
            let file = if kind == "file" { &part["file"] } else { &part };
            let mut listed = json!({"type": "input_file", "filename": file["filename"]});
            if is_address(&file["file_url"]) {
                listed["file_url"] = file["file_url"].clone();
            }
            listed
        }
        "refusal" => json!({"type": kind, "refusal": part["refusal"]}),
        _ => {
            let text = part.get_mut("text").map(Value::take);
            text_part(&kind, text.unwrap_or_default())
        }
    }
}

/// The content of a message as a list.
fn parts(role: &str, content: Value) -> Vec<Value> {
    let [to_the_model, by_the_model] = SAID;
    match content {
        Value::Null => Vec::new(),
        Value::Array(parts) => parts.into_iter().map(listed_part).collect(),
        text if role == "assistant" => vec![text_part(by_the_model, text)],
        text => vec![text_part(to_the_model, text)],
    }
}

fn message(role: &str, content: Value) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content,
        ..ChatMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_files_are_listed_without_their_bytes() {
        let data = "data:image/png;base64,AAAA";
        let given = json!([{"role": "user", "content": [
            {"type": "input_text", "text": "what is it?"},
            {"type": "input_image", "image_url": data, "detail": "low"},
            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
            {"type": "input_file", "filename": "a.pdf", "file_data": data},
            {"type": "refusal", "refusal": "No."},
        ]}]);
        let all = listed(Uuid::now_v7(), Vec::new(), &given);
        assert!(!json!(all).to_string().contains("AAAA"), "{all:?}");
        let image = |detail: &str, url: Value| json!({"type": "input_image", "detail": detail, "file_id": null, "image_url": url});
        let content = all[0]["content"].as_array().unwrap();
        assert_eq!(content[1], image("low", Value::Null));
        assert_eq!(content[2], image("auto", json!("https://a.example/b.png")));
        assert_eq!(
            content[3],
            json!({"type": "input_file", "filename": "a.pdf"})
        );
        assert_eq!(content[4], json!({"type": "refusal", "refusal": "No."}));
    }

    #[test]
    fn every_item_is_listed_once_and_with_an_id_of_its_own() {
        let run = Uuid::now_v7();
        let id = |prefix: &str, n: usize| format!("{prefix}_{}_in{n}", run.simple());
        let text = |kind: &str, text: &str| match kind {
            "output_text" => {
                json!([{"type": kind, "text": text, "annotations": [], "logprobs": []}])
            }
            _ => json!([{"type": kind, "text": text}]),
        };
        let message = |id: String, role: &str, content: Value| json!({"type": "message", "id": id, "status": "completed", "role": role, "content": content});
        let first = listed(run, Vec::new(), &json!("Hello"));
        assert_eq!(
            first,
            [message(id("msg", 0), "user", text("input_text", "Hello"))]
        );
        let given = json!([
            {"role": "system", "content": "Be short."},
            {"id": "msg_1", "role": "assistant", "content": "4"},
            {"id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "sun"},
        ]);
        let all = listed(Uuid::now_v7(), first.clone(), &given);
        assert_eq!((all.len(), &all[0]), (6, &first[0]));
        assert_eq!(
            all[2],
            message("msg_1".into(), "assistant", text("output_text", "4"))
        );
        assert_eq!(all[3]["content"], text("input_text", "2+2?"));
        assert_eq!(
            (&all[4]["name"], &all[5]["output"]),
            (&json!("f"), &json!("sun"))
        );
        let ids: BTreeSet<&str> = all.iter().filter_map(|item| item["id"].as_str()).collect();
        assert_eq!(ids.len(), all.len(), "{ids:?}");
    }
}
