//! Strict reading of messages from the wire: an unknown field is a typing error that would go unnoticed
//! otherwise.

use super::types::MessageTypes;
use super::{DataMessage, HiddenMetadata, KnowledgeMessage, Message, MessageFault, Text};
use crate::citation::is_id;
use crate::image::{Image, ImageDetail};
use crate::reference::Path;
use crate::turn::Role;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// A field of a message.
struct Field(&'static str, FieldNeed, Form);

#[derive(PartialEq)]
enum FieldNeed {
    Required,
    Optional,
}

/// The type of a field's value.
enum Form {
    Any,
    Text,
    Object,
    List,
    /// A JSON Schema is an object, `true` or `false`.
    Schema,
    OneOf(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// Milliseconds since 1970, or a date and time as ISO 8601 writes them.
    Moment,
    /// A text, a list of parts of text, or a typed message.
    Content,
}

use FieldNeed::{Optional, Required};
use Form::{Any, Content, List, Moment, Object, OneOf, Schema};

const ROLE_NAMES: &[&str] = &["system", "user", "assistant"];
const ROLES: Form = OneOf(ROLE_NAMES);

const PLAIN: &[Field] = &[
    Field("role", Optional, ROLES),
    Field("content", Required, Content),
];

/// The fields of each type, in the order in which people are told of them.
const TYPES: [(&str, &[Field]); 14] = [
    (
        "text",
        &[
            Field("text", Required, Form::Text),
            Field("role", Optional, ROLES),
        ],
    ),
    (
        "image",
        &[
            Field("data", Optional, Form::Text),
            Field("name", Optional, Form::Text),
            Field("detail", Optional, OneOf(&["low", "high"])),
            Field("media_type", Optional, Form::Text),
            Field("digest", Optional, Form::Text),
            Field("bytes", Optional, Any),
        ],
    ),
    (
        "data",
        &[
            Field("data", Required, Any),
            Field("kind", Optional, Form::Text),
            Field("schema", Optional, Schema),
            Field("description", Optional, Form::Text),
            Field("title", Optional, Form::Text),
            Field("_instance", Optional, Form::Text),
            Field("_call", Optional, Object),
            Field("_date", Optional, Moment),
            Field(
                "_outputMethod",
                Optional,
                OneOf(&["set", "merge", "assign", "push", "concat"]),
            ),
        ],
    ),
    (
        "input",
        &[
            Field("input", Optional, Any),
            Field("schema", Optional, Schema),
            Field("description", Optional, Form::Text),
            Field("title", Optional, Form::Text),
            Field("_instance", Optional, Form::Text),
        ],
    ),
    (
        "state",
        &[
            Field("state", Optional, Any),
            Field("schema", Optional, Schema),
            Field("description", Optional, Form::Text),
            Field("title", Optional, Form::Text),
            Field("_instance", Optional, Form::Text),
        ],
    ),
    ("tool", &[Field("tool", Required, Object)]),
    (
        "plan",
        &[
            Field("plan", Optional, List),
            Field("mode", Optional, OneOf(&["eager", "lazy"])),
        ],
    ),
    // Its own reader knows its fields, and keeps those that it does not know.
    ("advisor", &[]),
    ("meta", &[Field("meta", Required, Object)]),
    ("error", &[Field("data", Required, Object)]),
    (
        "type",
        &[
            Field("name", Required, Form::Text),
            Field("schema", Required, Schema),
            Field("description", Optional, Form::Text),
            Field("title", Optional, Form::Text),
        ],
    ),
    ("knowledge", &[Field("passages", Required, List)]),
    (
        "tool_result",
        &[
            Field("tool", Required, Form::Text),
            Field("arguments", Optional, Any),
            Field("result", Required, Any),
            Field("id", Optional, Form::Text),
            Field("next_step", Optional, Form::Flag),
            Field("failed", Optional, Form::Flag),
            Field("reasoning", Optional, Object),
            Field("members", Optional, Object),
        ],
    ),
    (
        "summary",
        &[
            Field("messages", Required, Any),
            Field("lines", Optional, List),
            Field("left_out", Optional, Any),
            Field("text", Optional, Form::Text),
        ],
    ),
];

const PASSAGE: &[Field] = &[
    Field("id", Required, Form::Text),
    Field("text", Required, Form::Text),
    Field("source", Required, Form::Text),
    Field("title", Optional, Form::Text),
    Field("heading", Optional, Form::Text),
    Field("collection", Optional, Form::Text),
    Field("passage", Optional, Any),
];

/// The fields of a message whose type the context registers. Any other is a field of its data.
const REGISTERED: &[Field] = &[
    Field("data", Required, Any),
    Field("_instance", Optional, Form::Text),
];

const ERROR: &[Field] = &[Field("call", Required, Any), Field("error", Required, Any)];

/// Whether `name` is a type or a role of the protocol.
pub(super) fn is_known(name: &str) -> bool {
    TYPES.iter().any(|(known, _)| *known == name) || ROLE_NAMES.contains(&name)
}

/// Reads one message, which may be of a type that the messages before it registered.
pub(super) fn message(value: &Value, types: &MessageTypes) -> Result<Message, MessageFault> {
    let Value::Object(fields) = value else {
        return Err(MessageFault::new(
            "",
            "a message must be an object with \"role\" and \"content\", or with \"type\"",
        ));
    };
    let known = || {
        let names = TYPES.iter().map(|(name, _)| *name);
        names.chain(types.names()).collect::<Vec<_>>().join(", ")
    };
    let name = match fields.get("type") {
        None if fields.contains_key("content") => return said(fields, types),
        None => {
            let reason = format!(
                "a message needs \"role\" and \"content\", or a \"type\", one of {}",
                known()
            );
            return Err(MessageFault::new("", reason));
        }
        Some(Value::String(role)) if ROLE_NAMES.contains(&role.as_str()) => {
            return said_by(role, fields, types);
        }
        Some(Value::String(name)) => name,
        Some(other) => {
            let reason = format!(
                "{other:.40} is no type of message; write one of {}",
                known()
            );
            return Err(MessageFault::new("/type", reason));
        }
    };
    let Some((name, form)) = TYPES.iter().find(|(known, _)| known == name) else {
        if types.get(name).is_some() {
            return registered(name, fields);
        }
        let reason = format!(
            "{name:.40?} is no type of message; write one of {}, or register it before it is used: \
             {{\"type\": \"type\", \"name\": …, \"schema\": …}}",
            known()
        );
        return Err(MessageFault::new("/type", reason));
    };
    let mut fields = fields.clone();
    fields.shift_remove("type");
    if *name == "text" && !fields.contains_key("text") {
        // Some write the plain message's field.
        if let Some(content) = fields.shift_remove("content") {
            fields.insert("text".into(), content);
        }
    }
    if *name == "advisor" {
        return read(&fields).map(Message::Advisor);
    }
    if ["state", "input"].contains(name) {
        fields_as_value(name, form, &mut fields);
    }
    check(&format!("of the type {name}"), form, &fields, "")?;
    // Null equals absent, except for values of data.
    fields.retain(|name, value| {
        !value.is_null()
            || form
                .iter()
                .any(|Field(known, _, form)| known == name && matches!(form, Any))
    });
    title_before_description(&mut fields);
    match *name {
        "text" => read::<Text>(&fields).map(Message::Text),
        "image" => image(&fields).map(Message::Image),
        "data" => {
            kind_of_the_place(&mut fields);
            if let Some(date) = fields.get("_date").and_then(moment) {
                fields.insert("_date".into(), date.into());
            }
            read(&fields).map(Message::Data)
        }
        "input" => {
            // An input that is given may be anything. One that waits for its value says what it waits for.
            if !fields.contains_key("schema") && !fields.contains_key("input") {
                let reason = "a message of the type input needs its value, or the \"schema\" of the value that it waits for";
                return Err(MessageFault::new("/schema", reason));
            }
            fields.entry("schema").or_insert(Value::Bool(true));
            read(&fields).map(Message::Input)
        }
        "state" => read(&fields).map(Message::State),
        "tool" => read(&fields).map(Message::Tool),
        "plan" => read(&fields).map(Message::Plan),
        "meta" => read(&fields).map(Message::Meta),
        "type" => read(&fields).map(Message::Type),
        "knowledge" => knowledge(&fields).map(Message::Knowledge),
        "tool_result" => read(&fields).map(Message::ToolResult),
        "summary" => read(&fields).map(Message::Summary),
        _ => {
            if let Some(Value::Object(data)) = fields.get("data") {
                check("of the type error, in its data,", ERROR, data, "/data")?;
            }
            read(&fields).map(Message::Error)
        }
    }
}

/// A message of a type that the context registers, as data of that kind.
fn registered(name: &str, fields: &Map<String, Value>) -> Result<Message, MessageFault> {
    let mut fields = fields.clone();
    fields.shift_remove("type");
    fields_as_value("data", REGISTERED, &mut fields);
    check(&format!("of the type {name}"), REGISTERED, &fields, "")?;
    let instance = fields.get("_instance").and_then(Value::as_str);
    Ok(Message::Data(DataMessage {
        instance: instance.map(str::to_owned),
        data: fields.shift_remove("data").unwrap_or_default(),
        kind: name.to_owned(),
        schema: None,
        description: None,
        hidden: HiddenMetadata::default(),
    }))
}

/// An image with its bytes, or one of a record, which has their digest. What is said beside the bytes goes by them.
fn image(fields: &Map<String, Value>) -> Result<Image, MessageFault> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match text("data") {
        Some(data) => {
            let image = Image::of_base64(text("name").unwrap_or_default(), data);
            let mut image = image.map_err(|error| MessageFault::new("/data", error.to_string()))?;
            image.detail = match text("detail") {
                Some("low") => Some(ImageDetail::Low),
                Some("high") => Some(ImageDetail::High),
                _ => None,
            };
            Ok(image)
        }
        // A record names it by its digest.
        None if fields.contains_key("digest") => read(fields),
        None => Err(MessageFault::new(
            "/data",
            "an image needs its bytes as base64 in \"data\"",
        )),
    }
}

/// Passages, each with an id of its own and a text.
fn knowledge(fields: &Map<String, Value>) -> Result<KnowledgeMessage, MessageFault> {
    let passages = fields.get("passages").and_then(Value::as_array);
    for (index, passage) in passages.into_iter().flatten().enumerate() {
        let place = format!("/passages/{index}");
        let Value::Object(passage) = passage else {
            return Err(MessageFault::new(place, "a passage is an object"));
        };
        check("with passages, in each,", PASSAGE, passage, &place)?;
    }
    let message: KnowledgeMessage = read(fields)?;
    let mut ids = HashSet::new();
    for (index, passage) in message.passages.iter().enumerate() {
        if !is_id(&passage.id) || !ids.insert(&passage.id) {
            let reason = "a passage needs an id of its own, k and a number, such as k1";
            return Err(MessageFault::new(format!("/passages/{index}/id"), reason));
        }
    }
    Ok(message)
}

/// A message of `role` and `content`.
fn said(fields: &Map<String, Value>, types: &MessageTypes) -> Result<Message, MessageFault> {
    check("of role and content", PLAIN, fields, "")?;
    let role = fields.get("role").filter(|role| !role.is_null());
    match fields.get("content") {
        // A typed message stands for itself. Only a text has a role.
        Some(content @ Value::Object(typed)) => {
            // Reading copies the message inside, so messages inside of messages would be copied once for each level.
            let named = typed.get("type").and_then(Value::as_str);
            let is_said = named.is_some_and(|name| ROLE_NAMES.contains(&name));
            if is_said && typed.get("content").is_some_and(Value::is_object) {
                return Err(MessageFault::new(
                    "/content/content",
                    "a content is one message and holds no other; give that message itself",
                ));
            }
            let mut typed = typed.clone();
            if let (Some(role), Some("text")) = (role, typed.get("type").and_then(Value::as_str)) {
                typed.entry("role").or_insert(role.clone());
            }
            let is_typed = content.get("type").is_some();
            let read = if is_typed {
                message(&typed.into(), types)
            } else {
                Err(MessageFault::new(
                    "/type",
                    "a content that is an object needs a \"type\"",
                ))
            };
            read.map_err(|fault| MessageFault {
                place: format!("/content{}", fault.place),
                ..fault
            })
        }
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(part);
            let text = texts.collect::<Vec<_>>().join("\n");
            read(&Map::from_iter([
                ("text".to_owned(), text.into()),
                (
                    "role".to_owned(),
                    role.cloned().unwrap_or(json!(Role::User)),
                ),
            ]))
            .map(Message::Text)
        }
        _ => read(fields).map(Message::Text),
    }
}

/// A message whose type is a role.
fn said_by(
    role: &str,
    fields: &Map<String, Value>,
    types: &MessageTypes,
) -> Result<Message, MessageFault> {
    let mut fields = fields.clone();
    fields.shift_remove("type");
    if let (Some(text), false) = (fields.shift_remove("text"), fields.contains_key("content")) {
        fields.insert("content".into(), text);
    }
    fields.insert("role".into(), role.into());
    said(&fields, types)
}

/// The text of a part of a content: `{"type": "text", "text": …}`.
fn part(part: &Value) -> Option<&str> {
    let is_text = part.get("type").is_some_and(|kind| kind == "text");
    part.get("text").filter(|_| is_text)?.as_str()
}

/// The value may stand beside the type: `{"type": "state", "task": …}` is a state with the field `task`. A message
/// that has its value has no other fields.
fn fields_as_value(name: &str, form: &[Field], fields: &mut Map<String, Value>) {
    if fields.contains_key(name) {
        return;
    }
    let is_own = |field: &String| {
        field.starts_with('_') || form.iter().any(|Field(known, ..)| known == field)
    };
    let (own, value): (Map<_, _>, Map<_, _>) = std::mem::take(fields)
        .into_iter()
        .partition(|(field, _)| is_own(field));
    *fields = own;
    if !value.is_empty() {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The title is the first line of the description.
fn title_before_description(fields: &mut Map<String, Value>) {
    let Some(Value::String(title)) = fields.shift_remove("title") else {
        return;
    };
    let described = match fields.get("description").and_then(Value::as_str) {
        Some(text) => format!("{title}\n{text}"),
        None => title,
    };
    fields.insert("description".into(), described.into());
}

/// Milliseconds since 1970.
fn moment(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => {
            let read: Timestamp = text.parse().ok()?;
            u64::try_from(read.as_millisecond()).ok()
        }
        value => value.as_u64(),
    }
}

fn check(
    what: &str,
    form: &[Field],
    fields: &Map<String, Value>,
    above: &str,
) -> Result<(), MessageFault> {
    let at = |name: &str| format!("{above}/{}", name.replace('~', "~0").replace('/', "~1"));
    let known = || {
        let names: Vec<_> = form.iter().map(|Field(name, ..)| *name).collect();
        names.join(", ")
    };
    for name in fields.keys() {
        if !form.iter().any(|Field(known, ..)| known == name) {
            let reason = format!(
                "a message {what} has no field {name:.40?}; it has {}. Correct the name, or remove it",
                known()
            );
            return Err(MessageFault::new(at(name), reason));
        }
    }
    for Field(name, need, form) in form {
        let value = fields.get(*name);
        let is_absent = match form {
            Any => value.is_none(),
            _ => value.is_none_or(Value::is_null),
        };
        match value.filter(|_| !is_absent) {
            None if *need == Required => {
                let reason = format!("a message {what} needs {name:?}, {}", form.noun());
                return Err(MessageFault::new(at(name), reason));
            }
            Some(value) if !form.holds(value) => {
                let reason = format!("{name:?} must be {}", form.noun());
                return Err(MessageFault::new(at(name), reason));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Form {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Text => value.is_string(),
            Self::Object => value.is_object(),
            Self::List => value.is_array(),
            Self::Schema => value.is_object() || value.is_boolean(),
            Self::OneOf(known) => value.as_str().is_some_and(|text| known.contains(&text)),
            Self::Flag => value.is_boolean(),
            Self::Moment => moment(value).is_some(),
            Self::Content => match value {
                Value::Array(parts) => parts.iter().all(|it| part(it).is_some()),
                value => value.is_string() || value.is_object(),
            },
        }
    }

    fn noun(&self) -> String {
        match self {
            Self::Any => "a value".into(),
            Self::Text => "a text".into(),
            Self::Object => "an object".into(),
            Self::List => "a list".into(),
            Self::Schema => "a JSON Schema: an object, true or false".into(),
            Self::OneOf(known) => format!("one of {}", known.join(", ")),
            Self::Flag => "true or false".into(),
            Self::Moment => "a whole number, milliseconds since 1970, or a date and time with its zone, such as \
                2026-11-23T08:00:00Z"
                .into(),
            Self::Content => {
                "a text, a list of {\"type\": \"text\", \"text\": …}, or a message with a \"type\"".into()
            }
        }
    }
}

/// A result says by its place which kind it belongs to.
fn kind_of_the_place(fields: &mut Map<String, Value>) {
    let place = fields
        .get("_call")
        .and_then(|call| call.get("_outputPath"))
        .and_then(Value::as_str)
        .and_then(|place| place.parse::<Path>().ok());
    if let (Some(place), false) = (place, fields.contains_key("kind")) {
        fields.insert("kind".into(), place.kind.into());
    }
}

fn read<'de, T: Deserialize<'de>>(fields: &'de Map<String, Value>) -> Result<T, MessageFault> {
    T::deserialize(fields).map_err(|error| MessageFault::new("", error.to_string()))
}
