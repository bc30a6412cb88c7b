//! References of a schema: where they lead.

use serde_json::Value;

/// True if a part of the schema says which document it is.
pub(super) fn has_ids(schema: &Value, is_root: bool) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(|item| has_ids(item, false)),
        Value::Object(members) => {
            let is_document = members.get("$id").is_some_and(Value::is_string);
            (is_document && !is_root) || members.values().any(|part| has_ids(part, false))
        }
        _ => false,
    }
}

/// The pointer in the fragment of an address.
pub(super) fn decoded(fragment: &str) -> Option<String> {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
