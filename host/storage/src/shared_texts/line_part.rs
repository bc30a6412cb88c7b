//! Parts of an event's line that may be those of many events, and the key that a stored line lacks.

use toolhold_protocol::settings::Settings;
use uuid::Uuid;

/// The text behind the tools in an event's line. In a string its quotes would be escaped, so the last one in a line is
/// that of the event.
const BEHIND: &str = r#","host":""#;
/// The text between the begin of a Request's body and the content of a system message.
const SYSTEM: &str = r#""messages":[{"role":"system","content":""#;

/// A part of an event's line that may be that of many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePart {
    /// The tools with which a run begins.
    Tools,
    /// All from the settings of a run that begins to its tools.
    Settings,
    /// The body of a Request up to its first message.
    Request,
}

impl LinePart {
    pub const ALL: [Self; 3] = [Self::Tools, Self::Settings, Self::Request];

    /// The text that stands in a line before the part.
    fn before(self) -> &'static str {
        match self {
            Self::Tools => r#""tools":"#,
            Self::Settings => r#""settings":"#,
            Self::Request => r#""body":"#,
        }
    }

    /// The text that stands in a line for the part. With it the line is still JSON.
    pub fn name(self, digest: &str) -> String {
        let end = match self {
            Self::Tools => "}",
            // Of the Request that the settings are of.
            Self::Settings => "}}",
            Self::Request => r#","messages":["#,
        };
        format!(r#"{{"catalogue":"{digest}"{end}"#)
    }

    /// Returns a line with `new` in the place of the part `old`; `None` if the line has another one.
    pub fn exchanged(self, line: &str, old: &str, new: &str) -> Option<String> {
        let (before, behind) = match self {
            Self::Tools | Self::Settings => {
                let (before, behind) = line.split_at_checked(line.rfind(BEHIND)?)?;
                let before = before.strip_suffix(old)?;
                (before.ends_with(self.before()).then_some(before)?, behind)
            }
            // In a string its quotes would be escaped, so the first one in a line is that of the event.
            Self::Request => {
                let begin = line.find(self.before())? + self.before().len();
                let (before, rest) = line.split_at_checked(begin)?;
                (before, rest.strip_prefix(old)?)
            }
        };
        Some([before, new, behind].concat())
    }
}

/// The part of the line of a run that begins from its settings on. `tools` is the list at its end.
pub fn settings_and_tools<'l>(line: &'l str, settings: &Settings, tools: &str) -> Option<&'l str> {
    let settings = serde_json::to_string(settings).ok()?;
    let (before, _) = line.split_at_checked(line.rfind(BEHIND)?)?;
    // A client's schema, which stands before the settings, and that of a tool may have the same text.
    let begin = before.strip_suffix(tools)?.rfind(&settings)?;
    before.get(begin..)
}

/// The body of a Request up to its first message, if that is a system message and others follow.
pub fn begin_of_body(line: &str) -> Option<&str> {
    let body = LinePart::Request.before();
    let body = line.get(line.find(body)? + body.len()..)?;
    let content = body.find(SYSTEM)? + SYSTEM.len();
    let end = content + length_in_string(body.get(content..)?)?;
    body.get(end..)?.strip_prefix("\"},")?;
    body.get(..end + 3)
}

/// The length of the text of a JSON string, up to the quote at its end.
fn length_in_string(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    loop {
        match bytes.next()? {
            (length, b'"') => return Some(length),
            (_, b'\\') => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// The text in an event's line that says what the key of its row says.
pub fn key(run: Uuid, seq: i64) -> String {
    format!(r#""run":"{run}","seq":{seq},"#)
}

/// Takes the key out of a line.
pub fn without_key(mut line: String, key: &str) -> String {
    if line.strip_prefix('{').is_some_and(|it| it.starts_with(key)) {
        line.replace_range(1..=key.len(), "");
    }
    line
}

/// Puts the key into a line, unless the line has one, as those of older versions do.
pub fn with_key(mut line: String, key: &str) -> String {
    let has_one = line.starts_with(r#"{"run":"#);
    if line.starts_with('{') && !has_one {
        line.insert_str(1, key);
    }
    line
}
