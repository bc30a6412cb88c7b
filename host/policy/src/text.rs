//! Untrusted text (from modules) before a model or a person reads it, and the names that it may choose.

use serde_json::Value;

/// Maximum bytes of a tool's full name: the OpenAI API's limit for function names.
const MAX_TOOL_NAME_BYTES: usize = 64;
/// Maximum bytes of a module's or a tool's own name.
const MAX_NAME_BYTES: usize = 48;

/// `text` without characters that can hide or reorder other text (control, zero-width, bidi, tag
/// characters), cut to `max` characters. `docs/security.md`, promise 10.
pub fn visible(text: &str, max: usize) -> String {
    let mut out: String = text
        .chars()
        .filter(|c| !is_invisible(*c))
        .take(max)
        .collect();
    if text
        .chars()
        .filter(|c| !is_invisible(*c))
        .nth(max)
        .is_some()
    {
        out.push('…');
    }
    out
}

/// `json` with every text in it, keys included, as [`visible`] leaves it: a model reads schemas and
/// examples as it reads descriptions. Not cut: the whole has a limit of its own.
pub fn visible_json(json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(visible(&text, usize::MAX)),
        Value::Array(items) => items.into_iter().map(visible_json).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (visible(&key, usize::MAX), visible_json(value)))
            .collect(),
        other => other,
    }
}

fn is_invisible(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
}

/// The name under which models see a tool.
///
/// # Errors
/// Why it cannot be a tool's name.
pub fn tool_name(module: &str, tool: &str) -> Result<String, String> {
    if !is_name(tool) {
        return Err(
            "its name must be lower case letters, digits and _, at most 48, starting with a letter"
                .into(),
        );
    }
    let name = format!("{module}.{tool}");
    if name.len() > MAX_TOOL_NAME_BYTES {
        return Err(format!(
            "{name} has more than {MAX_TOOL_NAME_BYTES} bytes, the most that endpoints accept; shorten it or the module's name"
        ));
    }
    Ok(name)
}

/// Whether `name` may name a module or a tool: `[a-z][a-z0-9_]*`, at most 48 bytes. ASCII only, so
/// that no two names look alike.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invisible_characters_go_and_length_is_capped() {
        assert_eq!(visible("a\u{202E}b\u{200B}c\x1b[31m\n", 100), "abc[31m\n");
        assert_eq!(visible("abcdef", 3), "abc…");
        assert_eq!(visible("abc", 3), "abc");
    }

    #[test]
    fn json_is_cleaned_to_its_last_leaf() {
        let json = json!({"a\u{200b}": [{"b": "c\u{202e}d", "n": 1.5}, null]});
        assert_eq!(
            visible_json(json),
            json!({"a": [{"b": "cd", "n": 1.5}, null]})
        );
    }

    #[test]
    fn a_tool_name_fits_what_endpoints_accept() {
        assert_eq!(tool_name("files", "read").as_deref(), Ok("files.read"));
        assert!(tool_name("files", "Read").is_err());
        assert!(
            tool_name(&"m".repeat(40), &"t".repeat(40))
                .unwrap_err()
                .contains("64 bytes")
        );
    }

    #[test]
    fn names_are_plain_ascii() {
        assert!(is_name("word_count2"));
        for bad in ["", "Upper", "2x", "a-b", "а", "a.b", &"a".repeat(49)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
