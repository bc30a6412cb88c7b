//! Tools as the protocol sees them: an interface that never says how it runs (docs/protocol.md, 3).

mod place;
mod wire;

pub use place::OutputPath;

use crate::reference::{Path, ReferenceError, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// One capability that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// `module.tool`, or whatever a tool message calls it; unique in a run.
    pub name: String,
    /// Description by which the model chooses it.
    pub description: String,
    /// JSON Schema of the arguments, `"type": "object"`, without reserved properties.
    pub parameters: Value,
    /// JSON Schema of the result (`_output`): of an explicit tool hidden from the model and checked
    /// against the real result, of a latent one what the model fills in.
    pub output: Option<Value>,
    pub execution: Execution,
    /// What is said of where results go; if absent, they go wherever the call says.
    pub output_path: Option<OutputPath>,
    pub scopes: Scopes,
    #[serde(default, skip_serializing_if = "Resolve::is_default")]
    pub resolve: Resolve,
    pub annotations: Annotations,
    pub examples: Vec<Example>,
    /// The party that its calls have outside state with, to themselves: those of one step and one party are made one
    /// after the other, in the order in which the model wrote them. The toolbox says so, and no tool message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_turns: Option<String>,
    /// SHA-256 of the module that the toolbox runs calls with, in hex, when the tool was offered. A resumed run waits for
    /// that module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_digest: Option<String>,
}

/// When a saved Request that runs a tool's calls is held against the tool (docs/protocol.md, 6). In the
/// tool's schema beside `properties`: `"resolve": "upfront"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolve {
    /// When it is called (`"execution"`): the sub-agent's model makes do with parameters that do not
    /// fit the Request's input schema.
    #[default]
    Execution,
    /// Before anything is asked: the Request's schemas are the tool's, and each call is checked.
    Upfront,
}

/// The runner of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// No runner: the model writes the output itself, in the same generation.
    Latent,
    /// Code registered in the host under this name.
    Activity(String),
    /// What `_module` names (docs/protocol.md, 6).
    Module(String),
    /// The host itself: the question to an advisor that a `ConsultAdvisor` call makes.
    Consult,
}

/// The parts of the context that the runner of a call may see (`_scopes`); everything else is
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scopes {
    #[default]
    None,
    /// By the author: always these.
    Provisioned(Vec<Path>),
    /// By the model: those of these that the call asks for.
    Requested(Vec<Path>),
}

/// Claims of the author about what the tool does to the world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Annotations {
    #[serde(alias = "readOnly")]
    pub read_only: bool,
    pub idempotent: bool,
    pub destructive: bool,
    #[serde(alias = "openWorld")]
    pub open_world: bool,
    /// The call runs in the background; the run does not wait for its result.
    #[serde(alias = "fireAndForget")]
    pub fire_and_forget: bool,
}

impl Annotations {
    /// Whether making a call twice does what making it once does.
    pub fn may_be_repeated(self) -> bool {
        self.read_only || self.idempotent
    }
}

/// A worked example: small models imitate rather than deduce.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    pub task: String,
    pub arguments: Value,
    pub output: Value,
    pub answer: String,
}

/// Why a JSON object is no tool.
#[derive(Debug, Error)]
#[error("the tool {tool:?} cannot be used: {place} {reason}")]
pub struct ToolError {
    pub tool: String,
    /// The JSON pointer into the tool.
    pub place: String,
    pub reason: String,
}

/// The reserved properties that mean something in a tool or a call.
const RESERVED: [&str; 12] = [
    "_tool",
    "_reasoningForCall",
    "_output",
    "_activity",
    "_module",
    "_delegate",
    "_outputPath",
    "_outputMethod",
    "_instance",
    "_scopes",
    "_imports",
    PARAMETERS,
];

/// The schema of the arguments as a client wrote it, whose names may begin with `_`.
pub const PARAMETERS: &str = "_parameters";

/// The `_module` of a clean room for one call: an empty context, and what `_scopes` lets in.
pub const ANONYMOUS: &str = "anonymous";

/// Maximum keys in a tool's scopes.
const MAX_SCOPES: usize = 64;

impl Tool {
    /// A latent tool without parameters: the start of every other.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {}}),
            output: None,
            execution: Execution::Latent,
            output_path: None,
            scopes: Scopes::None,
            resolve: Resolve::default(),
            annotations: Annotations::default(),
            examples: Vec::new(),
            takes_turns: None,
            module_digest: None,
        }
    }

    /// Reads a Tool of the protocol: a JSON Schema of `type: object`, in which properties with a
    /// leading `_` are reserved. `is_activity` says whether an Activity has a name: without `_module`
    /// and `_activity`, the one with the tool's own name runs its calls.
    ///
    /// Unknown reserved properties are ignored and told in the second part.
    ///
    /// # Errors
    /// Which part of the schema cannot be used, and why.
    pub fn parse(
        name: &str,
        schema: &Value,
        is_activity: impl Fn(&str) -> bool,
    ) -> Result<(Self, Vec<String>), ToolError> {
        DefinitionReader { name, schema }.read(is_activity)
    }

    /// Where results go whatever a call says.
    pub fn fixed_output_path(&self) -> Option<&Target> {
        self.output_path.as_ref().and_then(OutputPath::fixed)
    }

    /// The first of its parameters that is called as a reserved property that means something in a call.
    pub fn reserved_parameter(&self) -> Option<&str> {
        let parameters = self.parameters.get("properties").and_then(Value::as_object);
        let names = parameters.into_iter().flat_map(Map::keys);
        let mut names = names.map(String::as_str);
        names.find(|name| is_reserved(name))
    }

    /// Whether the model writes the output itself.
    pub fn is_latent(&self) -> bool {
        self.execution == Execution::Latent
    }
}

impl Resolve {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_default(&self) -> bool {
        *self == Self::Execution
    }
}

struct DefinitionReader<'a> {
    name: &'a str,
    schema: &'a Value,
}

impl DefinitionReader<'_> {
    fn read(&self, is_activity: impl Fn(&str) -> bool) -> Result<(Tool, Vec<String>), ToolError> {
        if !is_name(self.name) {
            return Err(self.wrong("", NAME_RULE));
        }
        let Value::Object(schema) = self.schema else {
            return Err(self.wrong("", "must be a JSON Schema object"));
        };
        if schema.get("type").is_some_and(|ty| ty != "object") {
            return Err(self.wrong("/type", "must be \"object\""));
        }
        let none = Map::new();
        let properties = match schema.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => return Err(self.wrong("/properties", "must be an object")),
        };
        if properties
            .get("_tool")
            .and_then(constant)
            .is_some_and(|own| own != self.name)
        {
            return Err(self.wrong(
                "/properties/_tool",
                &format!("must be the const {:?}", self.name),
            ));
        }
        let execution = self.execution(properties, is_activity)?;
        let (parameters, mut loosened) = match properties.get(PARAMETERS) {
            None => (parameters(schema, properties), Vec::new()),
            Some(Value::Object(own)) => self.loosened(whole(own)),
            Some(_) => {
                let place = format!("/properties/{PARAMETERS}");
                return Err(self.wrong(&place, "must be a JSON Schema object"));
            }
        };
        let tool = Tool {
            name: self.name.to_owned(),
            description: ["title", "description"]
                .iter()
                .filter_map(|key| schema.get(*key)?.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
            parameters,
            output: properties.get("_output").cloned(),
            output_path: self.output_path(properties, execution == Execution::Latent)?,
            execution,
            scopes: self.scopes(properties)?,
            resolve: schema
                .get("resolve")
                .map(Resolve::deserialize)
                .transpose()
                .map_err(|_| self.wrong("/resolve", "must be \"execution\" or \"upfront\""))?
                .unwrap_or_default(),
            annotations: schema
                .get("annotations")
                .map(Annotations::deserialize)
                .transpose()
                .map_err(|error| self.wrong("/annotations", &format!("is wrong: {error}")))?
                .unwrap_or_default(),
            examples: Vec::new(),
            takes_turns: None,
            module_digest: None,
        };
        loosened.append(&mut self.warnings(properties));
        Ok((tool, loosened))
    }

    /// The schema without what cannot be checked, and what that is.
    fn loosened(&self, schema: Value) -> (Value, Vec<String>) {
        match toolhold_schema::loosened(&schema) {
            None => (schema, Vec::new()),
            Some(loose) => {
                let told = loose.told(&format!("the parameters of the tool {:?}", self.name));
                (loose.schema, told)
            }
        }
    }

    fn warnings(&self, properties: &Map<String, Value>) -> Vec<String> {
        let unknown = properties
            .keys()
            .filter(|key| key.starts_with('_') && !RESERVED.contains(&key.as_str()));
        let mut warnings: Vec<String> = unknown
            .map(|key| {
                format!("the tool {:?} has the reserved property {key:?}, which means nothing here and is ignored", self.name)
            })
            .collect();
        if properties.contains_key("_outputMethod") {
            warnings.push(format!(
                "the tool {:?} has \"_outputMethod\", which belongs to calls and is ignored in a tool",
                self.name
            ));
        }
        warnings
    }

    fn execution(
        &self,
        properties: &Map<String, Value>,
        is_activity: impl Fn(&str) -> bool,
    ) -> Result<Execution, ToolError> {
        for key in ["_module", "_delegate"] {
            let Some(module) = properties.get(key) else {
                continue;
            };
            return match text(module) {
                // The activity answers the call in the place of a model.
                Some(ANONYMOUS) if properties.get("_activity").is_some_and(names_something) => {
                    self.activity(properties, is_activity)
                }
                Some(module) if !module.trim().is_empty() => {
                    Ok(Execution::Module(module.to_owned()))
                }
                _ => Err(self.wrong(
                    &format!("/properties/{key}"),
                    "must be the const that names a module",
                )),
            };
        }
        self.activity(properties, is_activity)
    }

    fn activity(
        &self,
        properties: &Map<String, Value>,
        is_activity: impl Fn(&str) -> bool,
    ) -> Result<Execution, ToolError> {
        match properties.get("_activity").map(|own| (own, text(own))) {
            Some((_, Some(activity))) if !activity.is_empty() => {
                Ok(Execution::Activity(activity.to_owned()))
            }
            Some((_, None)) => Err(self.wrong(
                "/properties/_activity",
                "must be the const that names an activity",
            )),
            _ if is_activity(self.name) => Ok(Execution::Activity(self.name.to_owned())),
            _ => Ok(Execution::Latent),
        }
    }

    fn output_path(
        &self,
        properties: &Map<String, Value>,
        is_latent: bool,
    ) -> Result<Option<OutputPath>, ToolError> {
        let Some(own) = properties.get("_outputPath") else {
            return Ok(None);
        };
        OutputPath::read(own, is_latent)
            .map_err(|(at, reason)| self.wrong(&format!("/properties/_outputPath{at}"), &reason))
    }

    fn scopes(&self, properties: &Map<String, Value>) -> Result<Scopes, ToolError> {
        let Some((key, own)) = ["_scopes", "_imports"]
            .iter()
            .find_map(|key| properties.get_key_value(*key))
        else {
            return Ok(Scopes::None);
        };
        let place = format!("/properties/{key}");
        let paths = |list: &Value| -> Result<Vec<Path>, ToolError> {
            let list = list.as_array().filter(|list| list.len() <= MAX_SCOPES);
            let list = list
                .ok_or_else(|| self.wrong(&place, "must be a list of at most 64 context keys"))?;
            list.iter()
                .map(|key| scope(key).map_err(|reason| self.wrong(&place, &reason)))
                .collect()
        };
        if let Some(provisioned) = own.get("const").or_else(|| own.is_array().then_some(own)) {
            return paths(provisioned).map(Scopes::Provisioned);
        }
        match own.pointer("/items/enum").or_else(|| own.get("enum")) {
            Some(offered) => paths(offered).map(Scopes::Requested),
            None => Err(self.wrong(&place, "must have a const (what the author provides) or items with an enum (what the model may ask for)")),
        }
    }

    fn wrong(&self, place: &str, reason: &str) -> ToolError {
        ToolError {
            tool: self.name.chars().take(64).collect(),
            place: place.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// True for the name of a property that means something in a tool or a call.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The rule of [`is_name`], for error messages.
pub const NAME_RULE: &str =
    "needs a name of 1 to 64 letters, digits, _, - and . that does not begin with a dot";

/// True for a tool's name in messages and requests: one that OpenAI's API takes, or one with dots. Its form for other
/// systems is a matter of `function_names`.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// A context key: `user`, `state.profile`, or the same with a dagger.
///
/// # Errors
/// What is wrong with it.
pub fn scope(key: &Value) -> Result<Path, String> {
    let text = key
        .as_str()
        .ok_or("holds something that is no text; a context key is one, such as state.user")?;
    let written = if text.starts_with('†') {
        text.to_owned()
    } else {
        format!("†{text}")
    };
    written
        .parse()
        .map_err(|error: ReferenceError| format!("holds no context key: {error}"))
}

fn names_something(value: &Value) -> bool {
    text(value).is_some_and(|name| !name.is_empty())
}

/// `{"const": "x"}` or `"x"`.
fn text(value: &Value) -> Option<&str> {
    constant(value)?.as_str()
}

/// The constant value of a schema, if it has one.
fn constant(value: &Value) -> Option<&Value> {
    match value {
        Value::Object(schema) => schema.get("const"),
        other => Some(other),
    }
}

/// A client's schema of the arguments, as one of an object.
fn whole(own: &Map<String, Value>) -> Value {
    let mut schema = own.clone();
    for key in ["description", "title"] {
        schema.shift_remove(key);
    }
    schema.insert("type".into(), json!("object"));
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".into(), json!({}));
    }
    Value::Object(schema)
}

/// The schema without what is reserved.
fn parameters(schema: &Map<String, Value>, properties: &Map<String, Value>) -> Value {
    let own: Map<String, Value> = properties
        .iter()
        .filter(|(key, _)| !key.starts_with('_'))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut parameters = schema.clone();
    for key in ["description", "title", "annotations", "resolve"] {
        parameters.shift_remove(key);
    }
    parameters.insert("type".into(), json!("object"));
    parameters.insert("properties".into(), Value::Object(own));
    if let Some(Value::Array(required)) = parameters.get_mut("required") {
        required.retain(|key| !key.as_str().is_some_and(|key| key.starts_with('_')));
    }
    Value::Object(parameters)
}
