//! Tools that a client brings in OpenAI's form, converted to tool messages for the model.

use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolhold_protocol::context::Message;
use toolhold_protocol::settings::RunRequest;
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionDefinition {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// The context message that offers these tools; `None` without tools.
///
/// # Errors
/// A tool has an invalid name or schema.
pub fn offer(tools: impl Iterator<Item = FunctionDefinition>) -> Result<Vec<Message>, ApiError> {
    let tools: Map<String, Value> = tools.map(|it| (it.name.clone(), it.schema())).collect();
    if tools.is_empty() {
        return Ok(Vec::new());
    }
    Message::parse_all(&json!([{"type": "tool", "tool": tools}]))
        .map_err(|error| ApiError::invalid(format!("tools: {error}")))
}

/// Whether tools may be called, the agent's included.
///
/// # Errors
/// The choice names a tool or requires a call; the agent decides that itself.
pub fn may_call(tool_choice: &Value) -> Result<bool, ApiError> {
    match (tool_choice, tool_choice.as_str()) {
        (Value::Null, _) | (_, Some("auto")) => Ok(true),
        (_, Some("none")) => Ok(false),
        _ => Err(ApiError::invalid(
            "tool_choice: expected auto or none; which tool is called, the agent decides",
        )),
    }
}

/// No tool is called at all.
pub fn forbid(request: &mut RunRequest) {
    request.own_tools_only = true;
    let context = &mut request.context;
    context.retain(|message| !matches!(message, Message::Tool(_)));
}

/// Removes the message that [`offer`] added: every request brings its own tools.
pub fn withdraw(context: &mut Vec<Message>) {
    context.retain(|message| match message {
        Message::Tool(tools) => !tools.tool.iter().all(|(name, it)| is_clients(name, it)),
        _ => true,
    });
}

/// Whether the tool is a client's: its `_activity` is its own name.
fn is_clients(name: &str, schema: &Value) -> bool {
    schema["properties"]["_activity"]["const"] == name
}

impl FunctionDefinition {
    /// The tool as a tool message defines it. Reserved names in the client's schema have no meaning for us.
    fn schema(&self) -> Value {
        let mut schema = match &self.parameters {
            Value::Object(schema) => schema.clone(),
            _ => Map::new(),
        };
        let mut properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        properties.retain(|name, _| !name.starts_with('_'));
        properties.insert("_activity".into(), json!({"const": self.name}));
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        if let Some(description) = self.description.as_ref().filter(|text| !text.is_empty()) {
            schema.insert("description".into(), description.clone().into());
        }
        schema.into()
    }
}

/// The output schema that a `format` of OpenAI's APIs asks for; `None` for text. `schema` is the member that
/// holds a `json_schema`, and `name` the client's name of the whole format.
pub fn output_schema(
    name: &str,
    format: &Value,
    schema: &Value,
) -> Result<Option<Value>, ApiError> {
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({"type": "object"}))),
        Some("json_schema") if schema.is_object() => Ok(Some(schema.clone())),
        _ => Err(ApiError::invalid(format!(
            "{name}: expected text, json_object, or json_schema with its schema"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_tools_are_told_from_other_tools() {
        let weather = FunctionDefinition {
            name: "weather".into(),
            description: Some("Today's weather".into()),
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}, "_tool": {}}}),
        };
        let mut context = offer([weather].into_iter()).unwrap();
        let others = json!([
            {"type": "tool", "tool": {"mine": {"type": "object", "properties": {"_activity": {"const": "mcp:s/echo"}}}}},
            {"role": "user", "content": "t"},
        ]);
        context.extend(Message::parse_all(&others).unwrap());
        let Message::Tool(tools) = &context[0] else {
            panic!("{context:?}");
        };
        let schema = &tools.tool["weather"];
        assert_eq!(schema["description"], "Today's weather");
        assert!(schema["properties"].get("_tool").is_none(), "{schema}");
        withdraw(&mut context);
        assert_eq!(context, Message::parse_all(&others).unwrap());
        assert!(offer([].into_iter()).unwrap().is_empty());
    }
}
