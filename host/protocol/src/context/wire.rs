//! Strict reading of messages from the wire: an unknown field is a typing error that would go unnoticed
//! otherwise.

use super::{Message, MessageFault, Text};
use crate::reference::Path;
use serde::Deserialize;
use serde_json::{Map, Value};

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
    Milliseconds,
}

use FieldNeed::{Optional, Required};
use Form::{Any, List, Milliseconds, Object, OneOf, Schema};

const ROLES: Form = OneOf(&["system", "user", "assistant"]);

const PLAIN: &[Field] = &[
    Field("role", Optional, ROLES),
    Field("content", Required, Form::Text),
];

/// The fields of each type, in the order in which people are told of them.
const TYPES: [(&str, &[Field]); 9] = [
    (
        "text",
        &[
            Field("text", Required, Form::Text),
            Field("role", Optional, ROLES),
        ],
    ),
    (
        "data",
        &[
            Field("data", Required, Any),
            Field("kind", Optional, Form::Text),
            Field("schema", Optional, Schema),
            Field("description", Optional, Form::Text),
            Field("_instance", Optional, Form::Text),
            Field("_call", Optional, Object),
            Field("_date", Optional, Milliseconds),
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
            Field("schema", Required, Schema),
            Field("description", Optional, Form::Text),
            Field("_instance", Optional, Form::Text),
        ],
    ),
    (
        "state",
        &[
            Field("state", Optional, Any),
            Field("schema", Optional, Schema),
            Field("description", Optional, Form::Text),
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
];

const ERROR: &[Field] = &[Field("call", Required, Any), Field("error", Required, Any)];

/// Reads one message.
pub(super) fn message(value: &Value) -> Result<Message, MessageFault> {
    let Value::Object(fields) = value else {
        return Err(MessageFault::new(
            "",
            "a message must be an object with \"role\" and \"content\", or with \"type\"",
        ));
    };
    let known = || TYPES.map(|(name, _)| name).join(", ");
    let name = match fields.get("type") {
        None if fields.contains_key("content") => {
            check("of role and content", PLAIN, fields, "")?;
            return read(fields).map(Message::Text);
        }
        None => {
            let reason = format!(
                "a message needs \"role\" and \"content\", or a \"type\", one of {}",
                known()
            );
            return Err(MessageFault::new("", reason));
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
        let reason = format!(
            "{name:.40?} is no type of message; write one of {}",
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
    check(&format!("of the type {name}"), form, &fields, "")?;
    // Null equals absent, except for values of data.
    fields.retain(|name, value| {
        !value.is_null()
            || form
                .iter()
                .any(|Field(known, _, form)| known == name && matches!(form, Any))
    });
    match *name {
        "text" => read::<Text>(&fields).map(Message::Text),
        "data" => {
            kind_of_the_place(&mut fields);
            read(&fields).map(Message::Data)
        }
        "input" => read(&fields).map(Message::Input),
        "state" => read(&fields).map(Message::State),
        "tool" => read(&fields).map(Message::Tool),
        "plan" => read(&fields).map(Message::Plan),
        "meta" => read(&fields).map(Message::Meta),
        _ => {
            if let Some(Value::Object(data)) = fields.get("data") {
                check("of the type error, in its data,", ERROR, data, "/data")?;
            }
            read(&fields).map(Message::Error)
        }
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
            Self::Milliseconds => value.is_u64(),
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
            Self::Milliseconds => "a whole number, milliseconds since 1970".into(),
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
