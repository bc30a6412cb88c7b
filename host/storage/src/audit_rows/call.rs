//! Rows for calls: their arguments and outcomes, and calls outside of a run.

use super::digest;
use super::draft::{Draft, canonical, logged_owner, tool_name};
use crate::column::signed;
use crate::time::now_ms;
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::{Cached, ToolUsage};

/// Characters of a call's arguments, and of its result, in the log; longer ones are cut.
const MAX_ARGUMENTS_CHARS: usize = 16_384;

/// Characters of what a model says of the reason for a call, and of an error; longer ones are cut.
const MAX_TEXT_CHARS: usize = 2_000;
/// Characters of a model's name, and of its revision.
const MAX_NAME_CHARS: usize = 200;

/// What the audit log keeps of calls.
#[derive(Debug, Clone, Default)]
pub struct AuditContent {
    /// Applied to all of it.
    pub redaction: Redaction,
    /// Whether results and the texts of errors are kept, beside their digests.
    pub results: bool,
}

impl AuditContent {
    /// A call's arguments, or its result, as the log keeps them: redacted, and cut if they are long.
    pub fn kept(&self, value: &Value) -> Value {
        cut_json(self.redaction.value(value))
    }

    /// A text of a model or of a tool.
    fn text(&self, text: &str) -> Value {
        self.cut(text, MAX_TEXT_CHARS)
    }

    /// A name that an endpoint gives.
    pub(super) fn name(&self, name: &str) -> Value {
        self.cut(name, MAX_NAME_CHARS)
    }

    fn cut(&self, text: &str, most: usize) -> Value {
        let masked = self.redaction.value(&text.into());
        let text = masked.as_str().unwrap_or_default();
        match text.char_indices().nth(most) {
            None => text.into(),
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        }
    }

    /// Why a model made a call, in its own words.
    pub(super) fn reason(&self, reason: Option<&str>) -> Option<Value> {
        reason.map(|reason| self.text(reason))
    }

    /// The member that holds the outcome of a call, if it is kept.
    fn outcome(&self, outcome: Result<&Value, &ToolFailure>) -> Option<(&'static str, Value)> {
        self.results.then(|| match outcome {
            Ok(value) => ("result", self.kept(value)),
            Err(failure) => ("message", self.text(&failure.message)),
        })
    }
}

fn cut_json(masked: Value) -> Value {
    // Most values are short, and need not be printed to see that.
    if most_chars(&masked) <= MAX_ARGUMENTS_CHARS {
        return masked;
    }
    let text = masked.to_string();
    match text.char_indices().nth(MAX_ARGUMENTS_CHARS) {
        None => masked,
        Some((end, _)) => format!(
            "{}… cut off, of {} bytes",
            text.get(..end).unwrap_or_default(),
            text.len()
        )
        .into(),
    }
}

/// Most characters of a number in JSON.
const MAX_NUMBER_CHARS: usize = 32;
/// Most characters of an escaped character in JSON beyond the first: `\u001f`.
const ESCAPE_CHARS: usize = 5;

/// Upper bound of the characters of a value that is printed as JSON.
fn most_chars(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => "false".len(),
        Value::Number(_) => MAX_NUMBER_CHARS,
        Value::String(text) => most_text_chars(text),
        Value::Array(items) => {
            let items = items.iter().map(|item| most_chars(item) + ",".len());
            items.sum::<usize>() + "[]".len()
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| most_text_chars(name) + most_chars(value) + ":,".len());
            members.sum::<usize>() + "{}".len()
        }
    }
}

/// Upper bound of the characters of a text that is printed as JSON.
fn most_text_chars(text: &str) -> usize {
    let is_escaped = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    let escaped = text.bytes().filter(is_escaped).count();
    text.len() + escaped * ESCAPE_CHARS + "\"\"".len()
}

/// The status of a call whose tool was called, and of which it is not known what came of it.
const INTERRUPTED: &str = "interrupted";

/// The member with a model's reason for a call.
pub(super) const REASON: &str = "reason";

/// A call outside of a run, before it has ended.
#[derive(Debug)]
pub struct CallRecord {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// As [`AuditContent::kept`] returns them.
    pub arguments: Value,
    /// Hash of the policy.
    pub policy: String,
    /// Name of the API key; empty for the user of this machine's terminal.
    pub owner: String,
    /// Further members of the entry: how the call arrived, and what the client said about itself.
    pub way: Map<String, Value>,
}

impl CallRecord {
    /// The row that the log gets if the process dies before the call has ended.
    pub(crate) fn begun(&self) -> Draft {
        let (way, arguments) = (self.way.clone(), self.arguments.clone());
        let details = interrupted(way, &self.id, arguments, None, &self.policy);
        draft(&self.owner, &self.tool, details)
    }

    /// The row for the ended call.
    pub fn ended(
        self,
        content: &AuditContent,
        outcome: Result<&Value, &ToolFailure>,
        usage: &ToolUsage,
        module: Option<&str>,
        by_host: bool,
    ) -> Draft {
        let (owner, tool) = (self.owner, self.tool);
        let details = audited(AuditedCall {
            content,
            way: self.way,
            call: &self.id,
            arguments: self.arguments,
            reason: None,
            policy: &self.policy,
            outcome,
            usage,
            module,
            by_host,
            cached: None,
        });
        draft(&owner, &tool, details)
    }
}

fn draft(owner: &str, tool: &str, details: Map<String, Value>) -> Draft {
    let draft = Draft {
        at_ms: signed(now_ms()),
        owner: logged_owner(owner),
        action: "call".into(),
        source: None,
        tool: Some(tool_name(tool)),
        details: canonical(details),
        salt: None,
    };
    draft.without_texts()
}

/// A call that has begun, as `open_calls` of PostgreSQL has it.
#[derive(Debug, Serialize)]
pub struct BegunCall {
    pub call: String,
    /// The process that makes it.
    pub holder: String,
    /// The row that the log gets if that process dies before the call has ended.
    pub draft: String,
}

/// The members of the entry of a call whose process died before it had ended: its tool was called, and what came of
/// it is not known.
pub(super) fn interrupted(
    mut way: Map<String, Value>,
    call: &str,
    arguments: Value,
    reason: Option<Value>,
    policy: &str,
) -> Map<String, Value> {
    for (name, value) in [
        ("call", call.into()),
        ("arguments", arguments),
        ("policy", policy.into()),
        ("by_host", false.into()),
        ("status", INTERRUPTED.into()),
    ] {
        way.insert(name.into(), value);
    }
    way.extend(reason.map(|reason| (REASON.to_owned(), reason)));
    way
}

/// An ended call, of a run or of none, before it is an entry.
pub(super) struct AuditedCall<'a> {
    pub content: &'a AuditContent,
    /// Members beside those of every call.
    pub way: Map<String, Value>,
    pub call: &'a str,
    /// As [`AuditContent::kept`] returns them.
    pub arguments: Value,
    /// Why a model made it.
    pub reason: Option<Value>,
    /// Hash of the policy.
    pub policy: &'a str,
    pub outcome: Result<&'a Value, &'a ToolFailure>,
    pub usage: &'a ToolUsage,
    /// Digest of the module that ran, if one did.
    pub module: Option<&'a str>,
    /// Whether the host answered in the place of the tool.
    pub by_host: bool,
    /// The earlier call whose result it was given.
    pub cached: Option<&'a Cached>,
}

/// The members of a call's entry: its status, the digest of its result, and the result if that is kept.
pub(super) fn audited(call: AuditedCall<'_>) -> Map<String, Value> {
    let AuditedCall {
        way: mut details,
        outcome,
        module,
        ..
    } = call;
    for (name, value) in [
        ("call", call.call.into()),
        ("arguments", call.arguments),
        ("policy", call.policy.into()),
        ("by_host", call.by_host.into()),
    ] {
        details.insert(name.into(), value);
    }
    let is_unknown = outcome.is_err_and(ToolFailure::is_of_unknown_end);
    let duration_us = call.usage.duration_us;
    // The process that began it is gone, and nobody measured the call.
    if !is_unknown || duration_us > 0 {
        details.insert("duration_us".into(), duration_us.into());
    }
    if call.usage.retries > 0 {
        details.insert("retries".into(), call.usage.retries.into());
    }
    let (status, result) = match outcome {
        Ok(value) => ("ok", digest(value.to_string().as_bytes())),
        Err(failure) => {
            details.insert("error".into(), failure.kind.as_str().into());
            let status = if is_unknown { INTERRUPTED } else { "error" };
            (status, digest(failure.message.as_bytes()))
        }
    };
    details.extend(call.reason.map(|reason| (REASON.to_owned(), reason)));
    let kept = call.content.outcome(outcome);
    details.extend(kept.map(|(name, value)| (name.to_owned(), value)));
    details.insert("status".into(), status.into());
    details.insert("result_digest".into(), result.into());
    if let Some(cached) = call.cached {
        details.insert("cached".into(), json!(cached));
    }
    if let Some(module) = module {
        details.insert("module_digest".into(), module.into());
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_by_its_printed_characters() {
        for value in [
            json!(null),
            json!(false),
            json!([u64::MAX, i64::MIN, f64::MIN, f64::MIN_POSITIVE, []]),
            json!({"a\u{1}\"": "\u{0}\u{1f}\\\n\u{7f}\u{2028}", "ü": {"": "𝄞"}}),
        ] {
            let text = value.to_string();
            assert!(text.chars().count() <= most_chars(&value), "{text}");
        }
        let content = AuditContent::default();
        // As long as it may be with its quotes, and one character longer. The bound of either is beyond it.
        let ended = |most: usize| json!("ü".repeat(most - 2));
        let longest = ended(MAX_ARGUMENTS_CHARS);
        assert_eq!(content.kept(&longest), longest);
        let cut = content.kept(&ended(MAX_ARGUMENTS_CHARS + 1));
        assert!(cut.as_str().unwrap().contains("… cut off, of "), "{cut}");
    }

    #[test]
    fn an_entry_is_the_same_text_for_the_same_data() {
        let record = CallRecord {
            id: "1".into(),
            tool: "m.f".into(),
            arguments: json!({"z": {"b": 1, "a": [{"d": 1, "c": 2}]}, "a": 0}),
            policy: "p".into(),
            owner: "key".into(),
            way: Map::from_iter([("via".to_owned(), "mcp".into())]),
        };
        let usage = ToolUsage {
            duration_us: 7,
            retries: 2,
            ..ToolUsage::default()
        };
        let content = AuditContent::default();
        let ended = record.ended(&content, Ok(&json!(1)), &usage, None, false);
        let entry = ended.entry(3).unwrap();
        assert!(
            entry.contains(r#""arguments":{"a":0,"z":{"a":[{"c":2,"d":1}],"b":1}},"at_ms":"#),
            "{entry}"
        );
        let members: Map<String, Value> = serde_json::from_str(&entry).unwrap();
        assert!(members.keys().is_sorted(), "{entry}");
        assert_eq!(members["number"], 3);
        assert_eq!(
            (&members["duration_us"], &members["retries"]),
            (&json!(7), &json!(2))
        );
        assert!(!entry.contains(": ") && !entry.contains(", "), "{entry}");
    }
}
