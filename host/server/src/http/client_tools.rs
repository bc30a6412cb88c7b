//! Tools that a client defines in OpenAI's forms: those of ours that it names, and those that it runs itself, which
//! become tool messages for the model.

use crate::http::agent::Prepared;
use crate::http::bounds;
use crate::http::error::ApiError;
use crate::http::tool_choice::ChosenTools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use toolhold_protocol::context::Message;
use toolhold_protocol::function_names::{NameKind, NameMap};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{NAME_RULE, PARAMETERS, is_name};
use utoipa::ToSchema;

/// A tool as a client defines it. The definition stands beside `type`, as in the Responses API, or inside of
/// `function`, as in Chat Completions; every API takes both forms. A name that is one of the agent's tools means that
/// tool (`calculator-evaluate` is `calculator.evaluate`), with our definition of it, and the server runs it. Any other tool the client runs itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ClientTool {
    /// `function`, also if absent. Tools that OpenAI runs itself (`web_search`, `mcp`, …) are not supported.
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionDefinition>,
    #[serde(flatten)]
    beside: FunctionDefinition,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FunctionDefinition {
    #[schema(schema_with = bounds::function_name)]
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[schema(value_type = Option<Object>)]
    pub parameters: Value,
    /// Has no effect: arguments always satisfy the schema.
    pub strict: Option<bool>,
}

/// The kind of tool that a client may define.
const FUNCTION: &str = "function";

/// A tool in a request.
#[derive(Debug)]
pub struct PlacedTool {
    /// Its path, such as `tools[0]`.
    pub place: String,
    /// The member of it that has the definition in this API, with its dot; empty where the definition stands beside `type`.
    pub inner: &'static str,
    pub tool: ClientTool,
}

impl PlacedTool {
    /// The tools of a list.
    pub fn all<'t>(
        list: &str,
        inner: &'static str,
        tools: impl IntoIterator<Item = &'t ClientTool>,
    ) -> Vec<Self> {
        let tools = tools.into_iter().enumerate().map(|(index, tool)| Self {
            place: format!("{list}[{index}]"),
            inner,
            tool: tool.clone(),
        });
        tools.collect()
    }

    /// The definition, and its path.
    ///
    /// # Errors
    /// It is no function, or none that can be called by a name.
    fn definition(&self) -> Result<(String, &FunctionDefinition), ApiError> {
        let Self { place, inner, tool } = self;
        if !matches!(tool.kind.as_str(), "" | FUNCTION) {
            let reason = format_args!(
                "{:?} is not here to be called; expected function. The agent has tools of its own: /v1/tools",
                tool.kind
            );
            return Err(ApiError::member(&format!("{place}.type"), reason));
        }
        let (at, definition) = match &tool.function {
            None if tool.beside.name.is_empty() => (format!("{place}{inner}"), &tool.beside),
            None => (place.clone(), &tool.beside),
            // Some clients write other fields of the nested form, such as `strict`, beside it.
            Some(function) if tool.beside.name.is_empty() => {
                (format!("{place}.function"), function)
            }
            Some(function) => {
                let reason = format_args!(
                    "{:?} is defined twice, inside of \"function\" and beside it; leave one away",
                    function.name
                );
                return Err(ApiError::member(&format!("{place}.function"), reason));
            }
        };
        if definition.name.is_empty() {
            return Err(ApiError::member(
                &format!("{at}.name"),
                "a function needs a name",
            ));
        }
        Ok((at, definition))
    }
}

impl ClientTool {
    /// The tool that a member of `functions` is.
    pub fn of(definition: FunctionDefinition) -> Self {
        Self {
            kind: FUNCTION.into(),
            function: None,
            beside: definition,
        }
    }

    /// The tool with its definition beside `type`: the form of the Responses API.
    pub fn flat(&self) -> Self {
        Self {
            kind: FUNCTION.into(),
            function: None,
            beside: self.function.clone().unwrap_or_else(|| self.beside.clone()),
        }
    }
}

/// The tools that a client defined, by who runs them.
#[derive(Debug, Default)]
pub struct DefinedTools {
    /// Names of the agent's tools.
    pub registered: Vec<String>,
    pub clients: Vec<FunctionDefinition>,
}

impl DefinedTools {
    /// # Errors
    /// A tool is none that can be called.
    pub async fn of(tools: &[PlacedTool], prepared: &Prepared) -> Result<Self, ApiError> {
        let definitions = tools.iter().map(PlacedTool::definition);
        let definitions: Vec<_> = definitions.collect::<Result<_, _>>()?;
        if definitions.is_empty() {
            return Ok(Self::default());
        }
        let known = prepared.agent.tools(&prepared.behalf).await;
        let names = known.iter().map(|tool| tool.name.as_str());
        let names = NameMap::new(NameKind::Tool, names);
        let mut defined = Self::default();
        for (at, definition) in definitions {
            // Models and clients write the names of functions, which have no dots.
            match names.exact(&definition.name) {
                Some(name) => defined.registered.push(name.to_owned()),
                None => {
                    definition.check(&at)?;
                    defined.clients.push(definition.clone());
                }
            }
        }
        Ok(defined)
    }

    /// The names of the client's own tools.
    pub fn names(&self) -> BTreeSet<String> {
        self.clients.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Offers the client's own tools, and has the run end with their calls. Of these and of the agent's, those that the
    /// client chose.
    ///
    /// # Errors
    /// A tool has an invalid name or schema, the choice names no tool, or demands a call where there is no tool.
    pub async fn offer(
        mut self,
        prepared: &mut Prepared,
        choice: &ChosenTools,
    ) -> Result<(), ApiError> {
        match choice {
            ChosenTools::None => {
                forbid(&mut prepared.request);
                return Ok(());
            }
            ChosenTools::Required if self.clients.is_empty() => {
                if prepared.agent.tools(&prepared.behalf).await.is_empty() {
                    let reason =
                        "a call is demanded, and there is no tool to call; define one in tools";
                    return Err(ApiError::member("tool_choice", reason));
                }
            }
            ChosenTools::Auto | ChosenTools::Required => {}
            ChosenTools::Named(name) => self.leave(prepared, std::slice::from_ref(name)).await?,
            ChosenTools::Allowed { names, .. } => self.leave(prepared, names).await?,
        }
        prepared.request.settings.must_call = choice.demands_call();
        prepared.behalf.elsewhere = self.names();
        let offer = offer(self.clients.into_iter())?;
        prepared.request.context.splice(0..0, offer);
        Ok(())
    }

    /// Leaves the client's tools and the agent's that have one of these names.
    ///
    /// # Errors
    /// A name is that of no tool.
    async fn leave(&mut self, prepared: &mut Prepared, names: &[String]) -> Result<(), ApiError> {
        let known = prepared.agent.tools(&prepared.behalf).await;
        let known = known.iter().map(|tool| tool.name.as_str());
        let known = NameMap::new(NameKind::Tool, known);
        let mut own = Vec::new();
        for name in names {
            if self.clients.iter().any(|tool| tool.name == *name) {
                continue;
            }
            let Some(found) = known.exact(name) else {
                let reason = format_args!(
                    "no tool is called {name:?}; define it in tools, or name one of the agent's (/v1/tools)"
                );
                return Err(ApiError::member("tool_choice", reason));
            };
            own.push(found.to_owned());
        }
        self.clients.retain(|tool| names.contains(&tool.name));
        if own.is_empty() {
            forbid(&mut prepared.request);
        } else {
            withdraw_all(&mut prepared.request.context);
            prepared.behalf.narrow(Some(own));
            prepared.request.allowed = prepared.agent.allowed(&prepared.behalf);
        }
        Ok(())
    }
}

/// The context message that offers these tools; `None` without tools.
///
/// # Errors
/// A tool has an invalid name or schema.
fn offer(tools: impl Iterator<Item = FunctionDefinition>) -> Result<Vec<Message>, ApiError> {
    let tools: Map<String, Value> = tools.map(|it| (it.name.clone(), it.schema())).collect();
    if tools.is_empty() {
        return Ok(Vec::new());
    }
    Message::parse_all(&json!([{"type": "tool", "tool": tools}]))
        .map_err(|error| ApiError::member("tools", error))
}

/// Leaves no tool of the agent and of the context.
fn forbid(request: &mut RunRequest) {
    request.own_tools_only = true;
    withdraw_all(&mut request.context);
}

/// Removes the tools of the context, such as those of an earlier run of another API: none of them was chosen.
fn withdraw_all(context: &mut Vec<Message>) {
    context.retain(|message| !matches!(message, Message::Tool(_)));
}

/// Removes the message that [`DefinedTools::offer`] added: every request brings its own tools.
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
    /// # Errors
    /// No model could call it by its name, or with an object of arguments. `at`: its path in the request.
    fn check(&self, at: &str) -> Result<(), ApiError> {
        if !is_name(&self.name) {
            let reason = format_args!("a function {NAME_RULE}");
            return Err(ApiError::member(&format!("{at}.name"), reason));
        }
        if !is_of_objects(&self.parameters) {
            let reason =
                "expected the JSON Schema of an object ({\"type\": \"object\", …}), or nothing";
            return Err(ApiError::member(&format!("{at}.parameters"), reason));
        }
        Ok(())
    }

    /// The tool as a tool message defines it: with the client's schema as it was written, because its names may be those
    /// that are reserved in a tool.
    fn schema(&self) -> Value {
        // Many clients generate the schema from a type: its title is the type's name, and says nothing of the tool.
        let parameters = match &self.parameters {
            Value::Object(schema) => schema.clone(),
            _ => Map::new(),
        };
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        let own = self.description.as_deref().filter(|text| !text.is_empty());
        let description = own.or_else(|| parameters.get("description").and_then(Value::as_str));
        if let Some(description) = description {
            schema.insert("description".into(), description.into());
        }
        let properties = json!({"_activity": {"const": self.name}, PARAMETERS: parameters});
        schema.insert("properties".into(), properties);
        schema.into()
    }
}

/// Whether these `parameters` may be those of a function.
fn is_of_objects(parameters: &Value) -> bool {
    match parameters {
        Value::Null => true,
        Value::Object(schema) => match schema.get("type") {
            None | Some(Value::Null) => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(kind) => kind == "object",
        },
        _ => false,
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
        // Open Responses lets clients leave the type away where there is a schema.
        Some("json_schema") | None if schema.is_object() => Ok(Some(schema.clone())),
        _ => Err(ApiError::member(
            name,
            "expected text, json_object, or json_schema with its schema",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_in_both_forms_and_not_in_two_at_once() {
        let read = |tool: Value| PlacedTool {
            place: "tools[1]".into(),
            inner: ".function",
            tool: serde_json::from_value(tool).unwrap(),
        };
        let definition = json!({"name": "weather", "parameters": {"type": "object"}});
        let mut flat = definition.clone();
        flat["type"] = "function".into();
        for tool in [
            flat.clone(),
            json!({"type": "function", "function": definition}),
            json!({"function": definition}),
            json!({"type": "function", "function": definition, "strict": true}),
        ] {
            let tool = read(tool);
            assert_eq!(tool.definition().unwrap().1.name, "weather");
            let flat = json!(tool.tool.flat());
            assert_eq!(flat["name"], "weather");
            assert!(flat.get("function").is_none());
        }
        flat["function"] = definition;
        for (tool, reason, param) in [
            (flat, "defined twice", "tools[1].function"),
            (
                json!({"type": "function"}),
                "needs a name",
                "tools[1].function.name",
            ),
            (
                json!({"type": "web_search"}),
                "expected function",
                "tools[1].type",
            ),
        ] {
            let refused = read(tool).definition().unwrap_err().body().error;
            let message = refused.message;
            assert!(message.contains(reason), "{message}");
            assert_eq!(refused.param.as_deref(), Some(param));
        }
    }

    #[test]
    fn client_tools_are_told_from_other_tools() {
        let weather = FunctionDefinition {
            name: "weather".into(),
            description: Some("Today's weather".into()),
            parameters: json!({
                "title": "WeatherArgs", "type": "object", "properties": {"city": {"type": "string"}, "_tool": {}},
            }),
            strict: None,
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
        assert!(schema.get("title").is_none(), "{schema}");
        let own = &schema["properties"][PARAMETERS]["properties"];
        assert_eq!(*own, json!({"city": {"type": "string"}, "_tool": {}}));
        for name in ["resolve-library-id", "finish", "meta", "9", "_x", "-"] {
            let tool = FunctionDefinition {
                name: name.into(),
                ..FunctionDefinition::default()
            };
            assert_eq!(offer([tool].into_iter()).unwrap().len(), 1, "{name}");
        }
        withdraw(&mut context);
        assert_eq!(context, Message::parse_all(&others).unwrap());
        assert!(offer([].into_iter()).unwrap().is_empty());
    }
}
