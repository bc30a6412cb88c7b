//! The context: the messages that a Request is built from, and their combined content (docs/protocol.md, 2).

mod material;
mod placed;
mod summary;
mod types;
mod wire;
mod written;

pub use material::keep_newest_images;
pub use placed::data_at;
pub use summary::{Speaker, SummablePlaces, SummaryLine, SummaryMessage};
pub use types::TypeMessage;

use crate::advisor::Advisor;
use crate::data::{Data, Method, Write};
use crate::image::{Image, ImageCount};
use crate::knowledge::RetrievedPassage;
use crate::meta::Meta;
use crate::plan::Mode;
use crate::reference::Path;
use crate::tool;
use crate::tool::Tool;
use crate::turn::Role;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use toolhold_schema::{SchemaFault, Validator};
use types::{MessageTypes, TypedMessages};

/// One element of the context. On the wire `{"role", "content"}` or `{"type", …}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    Text(Text),
    Image(Image),
    Data(DataMessage),
    Input(Input),
    State(State),
    Tool(ToolMessage),
    Plan(PlanMessage),
    Advisor(Advisor),
    Meta(MetaMessage),
    Error(ErrorMessage),
    Type(TypeMessage),
    Knowledge(KnowledgeMessage),
    ToolResult(ToolResultMessage),
    Summary(SummaryMessage),
}

/// Shown as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Text {
    #[serde(alias = "content")]
    pub text: String,
    #[serde(default = "user")]
    pub role: Role,
}

/// Data of one kind. Messages of the same kind and instance are one value, merged in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataMessage {
    pub data: Value,
    #[serde(default = "data")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "_instance", default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    #[serde(flatten)]
    pub hidden: HiddenMetadata,
}

/// Metadata of an appended output message, hidden from the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HiddenMetadata {
    /// The call whose result this is; its `_outputPath` says where in the kind `data` belongs.
    #[serde(rename = "_call", default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Value>,
    /// Milliseconds since 1970 (UTC).
    #[serde(rename = "_date", default, skip_serializing_if = "Option::is_none")]
    pub date: Option<u64>,
    #[serde(
        rename = "_outputMethod",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub method: Option<Method>,
}

/// A structured prompt: data of the kind `input`, validated before anything is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// May be absent in a saved Request, whose caller gives it.
    #[serde(default)]
    pub input: Value,
    pub schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "_instance", default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// The scratchpad that survives between iterations. A schema without a value is a blueprint that
/// tells the model which paths to write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "_instance", default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolMessage {
    /// Name → Tool. The last definition of a name wins.
    pub tool: Map<String, Value>,
}

/// Calls that are carried from one iteration to the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanMessage {
    #[serde(default)]
    pub plan: Vec<Value>,
    #[serde(default)]
    pub mode: Mode,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetaMessage {
    pub meta: Meta,
}

/// What went wrong with a call, as an earlier run left it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorMessage {
    pub data: ErrorData,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorData {
    pub call: Value,
    pub error: Value,
}

/// Passages of documents. They are data of low trust: shown apart from what is said, and read by references as
/// `†knowledge.k1.text`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeMessage {
    pub passages: Vec<RetrievedPassage>,
}

/// A call that was made outside of this host, as of a client's own tool, with its result. The model is shown both as a
/// call and its result, and shields see the result as a tool's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResultMessage {
    /// The tool's name.
    pub tool: String,
    #[serde(default)]
    pub arguments: Value,
    pub result: Value,
    /// The client's id of the call, which the model is not shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Whether it was made when the results before it were known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub next_step: bool,
    /// Whether the result is the reason why there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Reasoning before the call, in members of the message that made it
    /// ([`reasoning_members`](crate::completion::reasoning_members)). Of several calls of a message the first has it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub reasoning: Map<String, Value>,
    /// Signed members of the call ([`signed_members`](crate::completion::signed_members)).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub members: Map<String, Value>,
}

/// Why a context cannot be used. Configuration: nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("message {} of the context{}: {reason}", index + 1, at(place))]
pub struct ContextError {
    /// Which message, beginning with 0.
    pub index: usize,
    /// The JSON pointer into it; empty for the message itself.
    pub place: String,
    pub reason: String,
}

/// A fault in one message.
#[derive(Debug)]
struct MessageFault {
    place: String,
    reason: String,
}

/// The combined content of the messages.
#[derive(Debug, Default)]
pub struct Context {
    pub messages: Vec<Message>,
    pub data: Data,
    /// Schemas and descriptions of data, by kind and instance.
    notes: Vec<Note>,
    /// Kinds that the messages registered as types, in whichever lists these came.
    types: MessageTypes,
    /// Name and definition, the last of each name, in the order of the names' first appearance.
    pub tools: Vec<(String, Value)>,
    /// The last one.
    pub plan: Option<PlanMessage>,
    /// The last definition of each id.
    pub advisors: Vec<Advisor>,
    /// The last one, or what a solution made of it.
    pub meta: Option<Meta>,
    given_meta: Option<Meta>,
    /// In the order of their first appearance.
    pub instances: Vec<String>,
    /// Entries of the data's log that come from messages.
    given: usize,
    /// Origins of the later entries, in their order.
    origins: Vec<written::EntryOrigin>,
    /// Of calls that were made of it and failed, in the order in which they ended.
    errors: Vec<ErrorData>,
}

#[derive(Debug)]
struct Note {
    kind: String,
    instance: Option<String>,
    schema: Option<Value>,
    description: Option<String>,
}

/// The kind of data that holds passages, by their ids.
pub const KNOWLEDGE: &str = "knowledge";
const MAX_MESSAGES: usize = 100_000;
/// Maximum bytes of an instance's name, which is repeated in every call.
const MAX_NAME: usize = 128;

impl Message {
    pub fn user(text: impl Into<String>) -> Self {
        Self::text(Role::User, text)
    }

    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::Text(Text {
            text: text.into(),
            role,
        })
    }

    /// Reads a context.
    ///
    /// # Errors
    /// The first element that is no message.
    pub fn parse_all(messages: &Value) -> Result<Vec<Self>, ContextError> {
        let Value::Array(messages) = messages else {
            return Err(MessageFault::new("", "the context must be a list of messages").of(0));
        };
        let (mut read, mut typed) = (Vec::new(), TypedMessages::default());
        for (index, message) in messages.iter().enumerate() {
            let message = wire::message(message, &typed.types).map_err(|fault| fault.of(index))?;
            match &message {
                // Only a record names an image by its digest.
                Self::Image(image) if image.data().is_none() => {
                    let reason = "an image needs its bytes as base64 in \"data\"";
                    return Err(MessageFault::new("/data", reason).of(index));
                }
                Self::Type(message) => typed.register(message).map_err(|fault| fault.of(index))?,
                message => typed.hold(index, message),
            }
            read.push(message);
        }
        typed
            .check(&read)
            .map_err(|(index, fault)| fault.of(index))?;
        Ok(read)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let message = Value::deserialize(deserializer)?;
        let read = wire::message(&message, &MessageTypes::default());
        read.map_err(|MessageFault { place, reason }| {
            serde::de::Error::custom(format!("a message{}: {reason}", at(&place)))
        })
    }
}

impl Context {
    /// # Errors
    /// The first message that cannot be used: an input that does not satisfy its schema, a schema
    /// that is none, a name that cannot be referred to.
    pub fn new(messages: Vec<Message>) -> Result<Self, ContextError> {
        if messages.len() > MAX_MESSAGES {
            let reason = format!("there are more messages than {MAX_MESSAGES}");
            return Err(MessageFault::new("", reason).of(MAX_MESSAGES));
        }
        let (mut context, mut images) = (Self::default(), ImageCount::default());
        for (index, message) in messages.iter().enumerate() {
            if let Message::Image(image) = message {
                let counted = images.add(image);
                counted.map_err(|error| MessageFault::new("", error.to_string()).of(index))?;
            }
            context.take(message).map_err(|fault| fault.of(index))?;
        }
        context.messages = messages;
        context.given = context.data.log().len();
        context.given_meta.clone_from(&context.meta);
        Ok(context)
    }

    /// Whether there is data, or a schema that tells which is to be written.
    pub fn has_data(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Whether a model can be asked: a saved Request waits for its caller's input.
    ///
    /// # Errors
    /// The input message that has a schema and lacks the value.
    pub fn check_input(&self) -> Result<(), ContextError> {
        let inputs = || {
            self.messages
                .iter()
                .enumerate()
                .filter_map(|(index, message)| match message {
                    Message::Input(input) => Some((index, input)),
                    _ => None,
                })
        };
        for (index, waiting) in inputs().filter(|(_, input)| input.input.is_null()) {
            // Another message may hold it: of the same instance, or of each instance for all of them.
            let is_given = inputs().any(|(_, other)| {
                !other.input.is_null()
                    && (other.instance == waiting.instance || waiting.instance.is_none())
            });
            let takes_nothing = Validator::new(&waiting.schema)
                .is_ok_and(|schema| schema.check(&Value::Null).is_ok());
            if !is_given && !takes_nothing {
                let reason = "the input is missing; give a value that satisfies the schema";
                return Err(MessageFault::new("/input", reason).of(index));
            }
        }
        Ok(())
    }

    /// The schema and the description of one kind of data, as they were given last.
    pub fn note_of(&self, kind: &str, instance: Option<&str>) -> (Option<&Value>, Option<&str>) {
        let note = self
            .notes
            .iter()
            .find(|note| note.kind == kind && note.instance.as_deref() == instance);
        note.map_or((None, None), |note| {
            (note.schema.as_ref(), note.description.as_deref())
        })
    }

    fn take(&mut self, message: &Message) -> Result<(), MessageFault> {
        match message {
            Message::Text(_) | Message::Image(_) | Message::Error(_) | Message::Summary(_) => {}
            Message::ToolResult(message) => {
                if !tool::is_name(&message.tool) {
                    return Err(MessageFault::new("/tool", tool::NAME_RULE));
                }
            }
            Message::Data(message) => {
                self.note(
                    &message.kind,
                    message.instance.as_ref(),
                    message.schema.as_ref(),
                    message.description.as_ref(),
                )?;
                let (path, method) = message.place()?;
                if path.kind != message.kind {
                    let reason = format!(
                        "the message is of the kind {} and its call wrote to {path}; make them one",
                        message.kind
                    );
                    return Err(MessageFault::new("/kind", reason));
                }
                let value = message.value_at(&path).clone();
                self.write(path, message.instance.clone(), method, value)?;
            }
            Message::Input(message) => {
                let schema = Some(&message.schema);
                self.note(
                    "input",
                    message.instance.as_ref(),
                    schema,
                    message.description.as_ref(),
                )?;
                // A saved Request waits for its caller's.
                if !message.input.is_null() {
                    let validator = Validator::new(&message.schema)
                        .map_err(|reason| MessageFault::new("/schema", reason.to_string()))?;
                    validator.check(&message.input).map_err(|reason| {
                        let reason = format!("the input does not fit its schema: {reason}");
                        MessageFault::new("/input", reason)
                    })?;
                    self.write(
                        Path::root("input"),
                        message.instance.clone(),
                        Method::Merge,
                        message.input.clone(),
                    )?;
                }
            }
            Message::State(message) => {
                let (schema, description) = (message.schema.as_ref(), message.description.as_ref());
                self.note("state", message.instance.as_ref(), schema, description)?;
                if let Some(state) = &message.state {
                    self.write(
                        Path::root("state"),
                        message.instance.clone(),
                        Method::Merge,
                        state.clone(),
                    )?;
                }
            }
            Message::Tool(message) => {
                for (name, tool) in &message.tool {
                    check_tool(name, tool)?;
                    match self.tools.iter_mut().find(|(known, _)| known == name) {
                        Some((_, known)) => *known = tool.clone(),
                        None => self.tools.push((name.clone(), tool.clone())),
                    }
                }
            }
            Message::Plan(message) => self.plan = Some(message.clone()),
            Message::Advisor(message) => {
                message
                    .check()
                    .map_err(|error| MessageFault::new("", error.to_string()))?;
                match self
                    .advisors
                    .iter_mut()
                    .find(|known| known.id == message.id)
                {
                    Some(known) => *known = message.clone(),
                    None => self.advisors.push(message.clone()),
                }
            }
            Message::Meta(message) => self.meta = Some(message.meta.clone()),
            Message::Type(message) => {
                self.types.register(message)?;
            }
            // Without a note: a context that has no other data needs no references.
            Message::Knowledge(message) => {
                let passages = message.passages.iter();
                let passages: Map<String, Value> = passages
                    .map(|it| (it.id.clone(), serde_json::to_value(it).unwrap_or_default()))
                    .collect();
                self.write(Path::root(KNOWLEDGE), None, Method::Merge, passages.into())?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        path: Path,
        instance: Option<String>,
        method: Method,
        value: Value,
    ) -> Result<(), MessageFault> {
        let write = Write {
            path,
            instance,
            method,
            value,
        };
        self.data
            .write(write)
            .map_err(|error| MessageFault::new("", error.to_string()))
    }

    fn note(
        &mut self,
        kind: &str,
        instance: Option<&String>,
        schema: Option<&Value>,
        description: Option<&String>,
    ) -> Result<(), MessageFault> {
        let root: Result<Path, _> = format!("†{kind}").parse();
        if !root.is_ok_and(|path| path.segments.is_empty()) {
            let reason =
                format!("{kind:.40?} cannot name a kind of data: use letters, digits, _ and -");
            return Err(MessageFault::new("/kind", reason));
        }
        if let Some(instance) = instance {
            let length = instance.chars().count();
            if length == 0 || length > MAX_NAME || instance.contains(char::is_control) {
                let reason = "an instance needs a name of 1 to 128 characters in one line";
                return Err(MessageFault::new("/_instance", reason));
            }
            if !self.instances.contains(instance) {
                self.instances.push(instance.clone());
            }
        }
        if let Some(schema) = schema {
            Validator::new(schema).map_err(|reason| {
                MessageFault::new("/schema", format!("this schema cannot be used: {reason}"))
            })?;
        }
        let known = self
            .notes
            .iter()
            .position(|note| note.kind == kind && note.instance.as_ref() == instance);
        let at = known.unwrap_or_else(|| {
            self.notes.push(Note {
                kind: kind.to_owned(),
                instance: instance.cloned(),
                schema: None,
                description: None,
            });
            self.notes.len() - 1
        });
        if let Some(note) = self.notes.get_mut(at) {
            note.schema = schema.cloned().or(note.schema.take());
            note.description = description.cloned().or(note.description.take());
        }
        Ok(())
    }
}

fn user() -> Role {
    Role::User
}

fn data() -> String {
    "data".into()
}

impl MessageFault {
    fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            reason: reason.into(),
        }
    }

    fn of(self, index: usize) -> ContextError {
        ContextError {
            index,
            place: self.place,
            reason: self.reason,
        }
    }
}

/// What can be said of a tool before it is known who runs it.
fn check_tool(name: &str, schema: &Value) -> Result<(), MessageFault> {
    let at = format!("/tool/{}", name.replace('~', "~0").replace('/', "~1"));
    let (tool, _) = Tool::parse(name, schema, |_| false)
        .map_err(|error| MessageFault::new(format!("{at}{}", error.place), error.reason))?;
    let no_schema = |place: &str, reason: SchemaFault| {
        MessageFault::new(
            format!("{at}{place}"),
            format!("this schema cannot be used: {reason}"),
        )
    };
    Validator::new(&tool.parameters).map_err(|reason| no_schema("", reason))?;
    if let Some(output) = &tool.output {
        Validator::new(output).map_err(|reason| no_schema("/properties/_output", reason))?;
    }
    Ok(())
}

fn at(place: &str) -> String {
    if place.is_empty() {
        String::new()
    } else {
        format!(" at {place}")
    }
}
