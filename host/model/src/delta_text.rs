//! The text in a member of a delta: text itself, or a list of parts.

use serde_json::Value;

/// The model's reasoning in a list of content parts.
pub(crate) fn thought(content: &Value) -> Option<String> {
    let parts = content.as_array()?.iter();
    let thoughts = parts.filter_map(|part| part.get("thinking").or_else(|| part.get("reasoning")));
    let text: String = thoughts.map(text_of).collect();
    (!text.is_empty()).then_some(text)
}

/// Text, or the text among a list of content parts. A refusal is a part of its own.
pub(crate) fn text_of(content: &Value) -> String {
    let text = |part: &Value| {
        let said = part.get("text").or_else(|| part.get("refusal"));
        said.and_then(Value::as_str).map(str::to_owned)
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(text).collect(),
        // A part outside of a list.
        part @ Value::Object(_) => text(part).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The text of an answer. Some servers read the JSON that they were asked for, and give an object in place of its text.
pub(crate) fn content_of(content: &Value) -> String {
    const PART: [&str; 5] = ["type", "text", "refusal", "thinking", "reasoning"];
    match content {
        Value::Object(object)
            if !object.is_empty() && !PART.iter().any(|key| object.contains_key(*key)) =>
        {
            content.to_string()
        }
        content => text_of(content),
    }
}
