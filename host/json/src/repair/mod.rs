//! JSON as models write it when nothing constrains them: in a code fence, with prose around it, single
//! quotes, trailing commas, Python's literals, brackets that were never closed.
//!
//! Only punctuation is repaired and no value is made up: text with two readings, or cut off inside a value,
//! is refused. The existing crates that repair these faults also complete missing values, which could produce
//! a call that the model never asked for.

mod kind;
mod reader;
#[cfg(test)]
mod tests;

use crate::bounded;
use crate::rules::ReadingRules;
pub use kind::{NotationChange, Repair, RepairKind};
use reader::RepairReader;
use serde_json::Value;

/// The fence of a Markdown code block.
const FENCE: &str = "```";

/// The value and the repairs that were needed.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    pub value: Value,
    /// Each kind of fault once, in the order of the text.
    pub repairs: Vec<RepairKind>,
}

/// Whether brackets that are missing at the end may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEnd {
    /// The model stopped by itself, so nothing but brackets is missing.
    Own,
    /// It was cut off: what is missing may be anything.
    Cut,
}

/// White space that JSON does not know: a reader of JSON ends there.
fn is_odd_space(text: &str) -> bool {
    text.chars()
        .any(|c| c.is_whitespace() && !matches!(c, ' ' | '\t' | '\r' | '\n'))
}

/// Reads the first object or list in `text`. Nothing if there is none, or if it cannot be read in one
/// way only.
pub fn repair(text: &str, end: TextEnd) -> Option<Repaired> {
    repair_under(ReadingRules::Current, text, end)
}

/// [`repair`], under these rules.
pub fn repair_under(rules: ReadingRules, text: &str, end: TextEnd) -> Option<Repaired> {
    bounded::weigh(text.as_bytes()).ok()?;
    let start = text.find(['{', '['])?;
    let mut reader = RepairReader {
        rest: &text[start..],
        end,
        rules,
        repairs: Vec::new(),
    };
    let before = text[..start].trim_end();
    let last_line = before.rfind('\n').map_or(0, |end| end + 1);
    let (prose, is_fenced) = if before[last_line..].trim_start().starts_with(FENCE) {
        (&before[..last_line], true)
    } else {
        (before, false)
    };
    if !prose.trim().is_empty() {
        reader.note(RepairKind::TextBefore);
    } else if is_odd_space(&text[..start]) {
        reader.note(RepairKind::OddSpace);
    }
    if is_fenced {
        reader.note(RepairKind::CodeFence);
    }
    let value = reader.value(0)?;
    let after = reader.rest.trim();
    let after = if is_fenced {
        after.strip_prefix(FENCE).unwrap_or(after).trim_start()
    } else {
        after
    };
    if !after.is_empty() {
        // A second object would be a second reading.
        if after.contains(['{', '[']) {
            return None;
        }
        reader.note(RepairKind::TextAfter);
    } else if is_odd_space(reader.rest) {
        reader.note(RepairKind::OddSpace);
    }
    Some(Repaired {
        value,
        repairs: reader.repairs,
    })
}
