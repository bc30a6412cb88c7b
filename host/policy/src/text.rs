//! Untrusted text before a model or a person reads it, and the names that a module may choose.
//!
//! What a person reads is escaped, so that nothing is lost and nothing acts: [`line()`] where a line is expected,
//! [`block`] where several are, [`json`] for programs. [`UntrustedText`] is text whose `Display` and `Debug` escape it; its `raw` is for what compares, stores or sends.
//! What a model reads has such characters left out, by [`visible`]. The characters are those of
//! [`toolhold_text::hidden`]. An answer, which no person decides about, is shown by [`readable`] and [`readable_line`];
//! so are texts of others within a prompt ([`crate::prompt`]), and JSON by [`readable_json`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::{self, Write as _};
use thiserror::Error;
use toolhold_json::descriptions::{self, SchemaText};
use toolhold_text::hidden;

/// Maximum bytes of a tool's full name: the OpenAI API's limit for function names.
const MAX_TOOL_NAME_BYTES: usize = 64;
/// Maximum bytes of a module's or a tool's own name.
const MAX_NAME_BYTES: usize = 48;

/// `text` without [`hidden`] characters, but with its lines and tabs and with those that its
/// language or its emoji call for, cut to `max` characters. `docs/security.md`, promise 10.
pub fn visible(text: &str, max: usize) -> String {
    if text.len() <= max && hidden::is_printable_ascii(text) {
        return text.to_owned();
    }
    let mut kept = hidden::characters(text)
        .filter(|(c, is_hidden)| !is_hidden || matches!(*c, '\n' | '\t'))
        .map(|(c, _)| c);
    let mut out: String = kept.by_ref().take(max).collect();
    if kept.next().is_some() {
        out.push('…');
    }
    out
}

/// A description as [`visible`] leaves it. Where tags or variation selectors were left out, which can spell a text that
/// no person sees, a line at its end says so to the model and to the person who approves it.
pub fn description(text: &str, max: usize) -> String {
    let mut out = visible(text, max);
    let count = hidden::characters(text)
        .filter(|(c, is_hidden)| *is_hidden && hidden::can_spell(*c))
        .count();
    if count > 0 {
        let _ = write!(
            out,
            "\n[Invisible characters that the host left out, which can spell a hidden text: {count}]"
        );
    }
    out
}

/// `json` with every text in it, keys included, as [`visible`] leaves it: a model reads examples as it reads
/// descriptions. Not cut: the whole has a limit of its own.
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

/// The schema of a tool that others wrote, as it is pinned, checked and shown: its texts as [`visible`] leaves them. Values
/// that a call must have, and patterns, stay as they are, with line breaks and controls, which JSON writes as escapes.
///
/// # Errors
/// A name that no model can be shown, or such a value or pattern with a hidden character that is no control.
pub fn visible_schema(schema: Value) -> Result<Value, UnseenText> {
    check_names(&schema)?;
    let mut refused = None;
    let schema = descriptions::map_texts(schema, &mut |kind, text| match kind {
        SchemaText::Told => visible(&text, usize::MAX),
        SchemaText::Demanded => {
            let mut characters = hidden::characters(&text);
            if characters.any(|(c, is_hidden)| is_hidden && !c.is_control()) {
                refused.get_or_insert_with(|| UnseenText::Value { shown: line(&text) });
            }
            text
        }
    });
    refused.map_or(Ok(schema), Err)
}

/// Checks the names that a model would have to write in a call: those of properties and definitions of a schema. Shown
/// with an escape, a name would be another one.
///
/// # Errors
/// The first name that cannot be shown as it is.
pub fn check_names(schema: &Value) -> Result<(), UnseenText> {
    match descriptions::find_name(schema, &|name| !is_plain_line(name)) {
        None => Ok(()),
        Some(name) => Err(UnseenText::Name { shown: line(name) }),
    }
}

/// A text in a tool's schema that no model can be shown as it is, and that it would have to write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnseenText {
    #[error(
        "the name \"{shown}\" in it has a line break or a character that cannot be seen, and no model could write it; \
         rename it"
    )]
    Name { shown: String },
    #[error(
        "the value or pattern \"{shown}\" in it has a character that cannot be seen, and no model could write it; take the \
         character out"
    )]
    Value { shown: String },
}

/// True if `text` stands on one line as it is: without line breaks, controls and hidden characters, but for those that its
/// language or its emoji call for.
pub fn is_plain_line(text: &str) -> bool {
    let mut characters = hidden::characters(text);
    hidden::is_printable_ascii(text)
        || characters.all(|(c, is_hidden)| !is_hidden && !c.is_control())
}

/// True if every text in the JSON, keys included, [`is_plain_line`].
pub fn is_plain_json(json: &Value) -> bool {
    match json {
        Value::String(text) => is_plain_line(text),
        Value::Array(items) => items.iter().all(is_plain_json),
        Value::Object(members) => {
            let mut members = members.iter();
            members.all(|(key, value)| is_plain_line(key) && is_plain_json(value))
        }
        _ => true,
    }
}

/// True if `now` has the text of `before`, a description of a pin. Older versions left out all joiners, marks of direction
/// and selectors of emoji, this one those that do not belong to the text, so these alone are no difference. Tags, other
/// selectors and the host's note of [`description`] are a difference: a hidden text may have come with them.
pub fn is_same_description(before: &str, now: &str) -> bool {
    let is_ignored = |c: &char| {
        matches!(
            *c,
            '\u{34F}' | '\u{61C}' | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{FE0E}' | '\u{FE0F}'
        )
    };
    let before_visible = visible(before, usize::MAX);
    let kept = before_visible.chars().filter(|c| !is_ignored(c));
    before == now || kept.eq(now.chars().filter(|c| !is_ignored(c)))
}

/// True if `c` could control a terminal, begin a line, or hide or reorder other text. Where a person decides, every such
/// character is an escape, also where a language or an emoji calls for it.
pub fn is_escaped(c: char) -> bool {
    hidden::is_hidden(c)
}

/// `text` on one line, with every character that [`is_escaped`] names as its escape.
pub fn line(text: &str) -> String {
    one_line(text, |text| text.chars().map(|c| (c, is_escaped(c))))
}

/// `text` on one line for reading, where no person decides about it: joiners and selectors that its language or its emoji
/// call for stay as they are.
pub fn readable_line(text: &str) -> String {
    one_line(text, hidden::characters)
}

fn one_line<'t, C>(text: &'t str, characters: impl FnOnce(&'t str) -> C) -> String
where
    C: Iterator<Item = (char, bool)>,
{
    if hidden::is_printable_ascii(text) {
        return text.to_owned();
    }
    let characters = characters(text);
    let mut out = String::with_capacity(characters.size_hint().0);
    for each in characters {
        match each {
            ('\n', _) => out.push_str("\\n"),
            ('\t', _) => out.push_str("\\t"),
            ('\r', _) => out.push_str("\\r"),
            (c, true) => out.extend(c.escape_unicode()),
            (c, false) => out.push(c),
        }
    }
    out
}

/// `text` with escapes in place of hidden characters, and with its lines and tabs: for answers and other texts that are
/// read and not decided about.
pub fn readable(text: &str) -> String {
    if hidden::is_printable_ascii(text) {
        return text.to_owned();
    }
    escaped(hidden::characters(text))
}

/// [`readable`] of a text that arrives in pieces.
#[derive(Debug, Default)]
pub struct ReadablePieces(hidden::PieceReader);

impl ReadablePieces {
    /// Characters that can be shown now. Those at the end that the next piece may call for wait for it.
    pub fn push(&mut self, piece: &str) -> String {
        escaped(self.0.push(piece).into_iter())
    }

    /// Characters that still wait, at the end of the text.
    pub fn end(&mut self) -> String {
        escaped(self.0.end().into_iter())
    }
}

fn escaped(characters: impl Iterator<Item = (char, bool)>) -> String {
    let mut out = String::with_capacity(characters.size_hint().0);
    for (c, is_hidden) in characters {
        if is_hidden && !matches!(c, '\n' | '\t') {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// `text` on lines of its own: all but the first begin with `indent` and a bar, so that none of them looks like a line
/// of the host.
pub fn block(text: &str, indent: &str) -> String {
    barred(text, indent, line)
}

/// [`block`] for reading, each line as [`readable_line`] shows it.
pub fn readable_block(text: &str, indent: &str) -> String {
    barred(text, indent, readable_line)
}

fn barred(text: &str, indent: &str, shown: fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, each) in text.trim_end_matches('\n').split('\n').enumerate() {
        if at > 0 {
            let _ = write!(out, "\n{indent}│ ");
        }
        out.push_str(&shown(each.strip_suffix('\r').unwrap_or(each)));
    }
    out
}

/// JSON in which every character that [`is_escaped`] names is written as `\uXXXX`. Its meaning is the same.
/// `json` is JSON as `serde_json` writes it.
pub fn json(json: &str) -> String {
    escaped_json(json, |json| json.chars().map(|c| (c, is_escaped(c))))
}

/// [`json`] for a model: joiners and selectors that a language or an emoji calls for stay as they are.
pub fn readable_json(json: &str) -> String {
    escaped_json(json, hidden::characters)
}

fn escaped_json<'t, C>(json: &'t str, characters: impl FnOnce(&'t str) -> C) -> String
where
    C: Iterator<Item = (char, bool)>,
{
    if hidden::is_printable_ascii(json) {
        return json.to_owned();
    }
    let characters = characters(json);
    let mut out = String::with_capacity(characters.size_hint().0);
    for (c, is_hidden) in characters {
        // Between values JSON has line breaks; inside of texts it has none that are not escaped.
        if !is_hidden || c == '\n' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// `text` as a shell takes it for one word: as it is if that is plain, or else in quotes.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:+,=%".contains(c);
    // An empty word has to be seen, and one that begins with a dash would be a flag.
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Text that a module, a server or a file brings. `Display` and `Debug` escape it and keep it on one line; a
/// [`block`](Self::block) escapes it in several. Only [`raw`](Self::raw) gives the text as it came.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UntrustedText(String);

impl UntrustedText {
    /// The text as it came: to be compared, stored, or given to a program. Never to be shown.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Several lines, as [`block`] shows them.
    pub fn block(&self, indent: &str) -> String {
        block(&self.0, indent)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for UntrustedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&line(&self.0))
    }
}

impl fmt::Debug for UntrustedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<String> for UntrustedText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for UntrustedText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
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

    /// Terminal codes of one and of two bytes, reordering, hiding, line ends of all kinds, tags.
    const HOSTILE: &str =
        "a\x1b[2J\u{9b}31m\x7f\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{85}\r\t\n\u{e0041}\u{ad}z";

    #[test]
    fn untrusted_text_is_shown_escaped() {
        let text = UntrustedText::from(HOSTILE);
        let shown = "a\\u{1b}[2J\\u{9b}31m\\u{7f}\\u{202e}\\u{2066}\\u{200b}\\u{feff}\\u{2028}\\u{85}\\r\\t\\n\\u{e0041}\\u{ad}z";
        assert_eq!(text.to_string(), shown);
        assert_eq!(format!("{text:?}"), format!("\"{shown}\""));
        assert_eq!(text.raw(), HOSTILE);
        for ordinary in ["größer", "日本語", "e\u{301}", "🦀", "שלום", ""] {
            assert_eq!(line(ordinary), ordinary);
            assert_eq!(super::json(ordinary), ordinary);
        }
    }

    #[test]
    fn joiners_and_selectors_are_escaped_where_a_person_decides_and_stay_in_answers() {
        for (text, exact) in [
            ("❤\u{fe0f}", "❤\\u{fe0f}"),
            ("👩\u{200d}🚀", "👩\\u{200d}🚀"),
            ("می\u{200c}خواهم", "می\\u{200c}خواهم"),
            ("葛\u{e0100}", "葛\\u{e0100}"),
        ] {
            assert_eq!(UntrustedText::from(text).to_string(), exact);
            assert_eq!(block(text, ""), exact);
            assert_eq!(readable_line(text), text);
            assert_eq!(readable_block(text, ""), text);
            assert_eq!(readable(text), text);
            let written = json!({ text: text }).to_string();
            assert_eq!(readable_json(&written), written);
            assert_ne!(super::json(&written), written);
            assert_eq!(visible(text, 100), text, "a model reads the language");
        }
        let mut pieces = ReadablePieces::default();
        let mut shown: String = ["👩", "\u{200d}", "🚀 a", "\u{200d}"]
            .iter()
            .map(|piece| pieces.push(piece))
            .collect();
        shown.push_str(&pieces.end());
        assert_eq!(shown, "👩\u{200d}🚀 a\\u{200d}");
        let smuggled = "a\u{fe01}b\u{e0041}c\u{2800}\u{3164}\u{1d173}";
        let escaped = "a\\u{fe01}b\\u{e0041}c\\u{2800}\\u{3164}\\u{1d173}";
        assert_eq!(readable_line(smuggled), escaped);
        assert_eq!(line(smuggled), escaped);
        assert_eq!(visible(smuggled, 100), "abc");
        let written = json!(smuggled).to_string();
        assert_eq!(readable_json(&written), super::json(&written));
        assert_eq!(readable_line("a\nb"), "a\\nb");
        assert_eq!(readable("a\n\tb\r"), "a\n\tb\\u{d}");
    }

    #[test]
    fn a_description_says_that_a_hidden_text_was_left_out() {
        let tags = "Reads.\u{e0068}\u{e0069}\u{fe01}";
        assert_eq!(
            description(tags, 100),
            "Reads.\n[Invisible characters that the host left out, which can spell a hidden text: 3]"
        );
        for plain in ["Reads.\u{200b}\u{202e}", "Reads."] {
            assert_eq!(description(plain, 100), "Reads.");
        }
        assert_eq!(description("❤\u{fe0f}", 100), "❤\u{fe0f}");
    }

    #[test]
    fn characters_that_an_older_version_left_out_of_a_description_are_no_difference() {
        for (before, now, is_same) in [
            ("⚠", "⚠\u{fe0f}", true),
            ("👩🚀", "👩\u{200d}🚀", true),
            ("میخواهم", "می\u{200c}خواهم", true),
            ("a\u{1d173}b", "ab", true),
            ("\u{e000} ⚠", "\u{e000} ⚠\u{fe0f}", true),
            ("Reads.", "Reads!", false),
            ("a\nb", "ab", false),
            ("葛", "葛\u{e0100}", false),
            ("⚠", "⚠\u{e0041}", false),
            ("\u{e000}", "\u{e001}", false),
        ] {
            assert_eq!(
                is_same_description(before, now),
                is_same,
                "{before:?} {now:?}"
            );
        }
        let noted = description("Reads.\u{e0068}\u{e0069}", 100);
        assert!(!is_same_description("Reads.", &noted));
    }

    #[test]
    fn no_line_of_a_block_looks_like_one_of_the_host() {
        assert_eq!(
            block("one\n\npin\r\n\x1b[2J\n", "  "),
            "one\n  │ \n  │ pin\n  │ \\u{1b}[2J"
        );
        assert_eq!(block("one", "  "), "one");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = json!({HOSTILE: [HOSTILE, 1]});
        for written in [value.to_string(), format!("{value:#}")] {
            let escaped = super::json(&written);
            assert!(
                !escaped.chars().any(|c| is_escaped(c) && c != '\n'),
                "{escaped:?}"
            );
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
        }
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
    fn a_schema_keeps_its_values_and_has_no_name_that_cannot_be_seen() {
        let of = |name: &str| json!({"title": "t\u{202e}", "properties": {name: {"enum": ["a\r\n", "\u{1b}"], "pattern": "^\t$"}}});
        let mut kept = of("line end");
        kept["title"] = "t".into();
        assert_eq!(visible_schema(of("line end")), Ok(kept));
        assert!(
            visible_schema(of("نام\u{200c}ها")).is_ok(),
            "it belongs to the word"
        );
        for demanded in ["enum", "const", "pattern"] {
            let hides = json!({"properties": {"a": {demanded: "b\u{200b}"}}});
            let refused = visible_schema(hides).unwrap_err().to_string();
            assert!(refused.contains("\"b\\u{200b}\""), "{refused}");
        }
        for (name, shown) in [
            ("a\n# Task", "\"a\\n# Task\""),
            ("a\u{2028}b", "\"a\\u{2028}b\""),
            ("a\u{200b}", "\"a\\u{200b}\""),
            ("a\tb", "\"a\\tb\""),
            ("\u{1b}[2J", "\"\\u{1b}[2J\""),
        ] {
            let refused = visible_schema(of(name)).unwrap_err().to_string();
            assert!(refused.contains(shown), "{refused}");
        }
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
    fn a_shell_takes_a_word_as_one() {
        for (text, word) in [
            ("modules/a.b-c@1.2", "modules/a.b-c@1.2"),
            ("https://a.example/x=1,2", "https://a.example/x=1,2"),
            ("", "''"),
            ("-x", "'-x'"),
            ("a b", "'a b'"),
            ("a;rm -rf ~", "'a;rm -rf ~'"),
            ("it's $(x)", "'it'\\''s $(x)'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn names_are_plain_ascii() {
        assert!(is_name("word_count2"));
        for bad in ["", "Upper", "2x", "a-b", "а", "a.b", &"a".repeat(49)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
