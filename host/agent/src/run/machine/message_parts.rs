//! The two parts of a context's message that shields on the input see: its content, and its other fields.

use serde_json::{Map, Value, json};
use toolhold_protocol::context::Message;

/// The content of a message, which shields see first.
pub(super) fn content(message: &Message) -> Option<Value> {
    match message {
        Message::Text(text) => Some(Value::from(text.text.as_str())),
        Message::Data(data) => Some(data.data.clone()),
        Message::Input(input) => Some(input.input.clone()),
        Message::State(state) => state.state.clone(),
        Message::Knowledge(message) => {
            Some(message.passages.iter().map(|it| json!(it.text)).collect())
        }
        Message::ToolResult(message) => Some(message.result.clone()),
        Message::Summary(summary) => {
            let lines = summary.lines.iter().map(|line| &line.text);
            Some(
                [&summary.text]
                    .into_iter()
                    .chain(lines)
                    .map(|text| json!(text))
                    .collect(),
            )
        }
        Message::Image(_)
        | Message::Tool(_)
        | Message::Plan(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => None,
    }
}

/// Replaces the content of a message. `None` if `left` has another form than the content.
pub(super) fn replace_content(message: &mut Message, left: Value) -> Option<()> {
    match message {
        Message::Text(text) => left.as_str()?.clone_into(&mut text.text),
        Message::Data(data) => data.data = left,
        Message::Input(input) => input.input = left,
        Message::State(state) => state.state = Some(left),
        Message::Knowledge(message) => {
            let texts = left.as_array()?;
            for (passage, left) in message.passages.iter_mut().zip(texts) {
                left.as_str()?.clone_into(&mut passage.text);
            }
        }
        Message::ToolResult(message) => message.result = left,
        Message::Summary(summary) => {
            let lines = summary.lines.iter_mut().map(|line| &mut line.text);
            let texts = [&mut summary.text].into_iter().chain(lines);
            for (text, left) in texts.zip(left.as_array()?) {
                left.as_str()?.clone_into(text);
            }
        }
        Message::Image(_)
        | Message::Tool(_)
        | Message::Plan(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => {}
    }
    Some(())
}

/// The fields of a message but for its content, for the bytes of an image, and for words of the protocol.
pub(super) fn without_content(message: &Message) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(message) else {
        return Map::new();
    };
    let own: &[&str] = match message {
        Message::Text(_) => &["text", "role"],
        Message::Image(_) => &["data", "detail", "media_type", "digest", "bytes"],
        Message::Data(_) => &["data"],
        Message::Input(_) => &["input"],
        Message::State(_) => &["state"],
        Message::ToolResult(_) => &["result", "next_step", "failed"],
        Message::Summary(_) => &["text", "lines"],
        Message::Plan(_) => &["mode"],
        Message::Knowledge(_)
        | Message::Tool(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => &[],
    };
    fields
        .retain(|name, value| name != "type" && !own.contains(&name.as_str()) && !value.is_null());
    if let Some(Value::Array(passages)) = fields.get_mut("passages") {
        for passage in passages.iter_mut().filter_map(Value::as_object_mut) {
            passage.shift_remove("text");
        }
    }
    fields.values_mut().for_each(without_dialects);
    fields
}

/// Addresses that say by which rules a schema is read. They are the same for all, and look to a shield like any other.
const DIALECTS: [&str; 6] = [
    "http://json-schema.org/schema",
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];
const DIALECT: &str = "$schema";

fn is_dialect(value: &Value) -> bool {
    let address = value.as_str().map(|text| text.trim_end_matches('#'));
    address.is_some_and(|address| DIALECTS.contains(&address))
}

pub(super) fn without_dialects(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, value| name != DIALECT || !is_dialect(value));
            members.values_mut().for_each(without_dialects);
        }
        Value::Array(items) => items.iter_mut().for_each(without_dialects),
        _ => {}
    }
}

/// Puts into `after` what [`without_dialects`] took out of `before`.
pub(super) fn with_dialects(before: &Value, after: &mut Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, before) in before {
                match after.get_mut(name) {
                    Some(after) => with_dialects(before, after),
                    None => drop(after.insert(name.clone(), before.clone())),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (before, after) in before.iter().zip(after) {
                with_dialects(before, after);
            }
        }
        _ => {}
    }
}

/// # Errors
/// What the shields left is no such message, or it is of a part from which nothing can be taken.
pub(super) fn replace_beside(
    message: &mut Message,
    left: Map<String, Value>,
) -> Result<(), String> {
    if without_content(message) == left {
        return Ok(());
    }
    // What runs and checks calls was made of these before.
    match message {
        Message::Tool(_) => return Err("something is missing in the definition of a tool".into()),
        Message::Plan(_) => return Err("something is missing in the plan".into()),
        _ => {}
    }
    if let Message::Image(image) = message {
        // All that is screened of it.
        let name = left.get("name").and_then(Value::as_str);
        name.ok_or("nothing is left of its name")?
            .clone_into(&mut image.name);
        return Ok(());
    }
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&*message) else {
        return Ok(());
    };
    for (name, value) in left {
        let place = fields
            .get_mut(&name)
            .ok_or("it has other fields than before")?;
        if name != "passages" {
            let before = std::mem::replace(place, value);
            with_dialects(&before, place);
            continue;
        }
        // Their texts are contents.
        let (Value::Array(passages), Value::Array(left)) = (place, value) else {
            return Err("nothing is left of its passages".into());
        };
        for (passage, left) in passages.iter_mut().zip(left) {
            let (Value::Object(passage), Value::Object(left)) = (passage, left) else {
                return Err("nothing is left of a passage".into());
            };
            passage.extend(left);
        }
    }
    *message = serde_json::from_value(fields.into()).map_err(|error| error.to_string())?;
    Ok(())
}
