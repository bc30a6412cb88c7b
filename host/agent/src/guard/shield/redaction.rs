//! Whether a redacted value is the value with something taken out of it.

use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// What stands where something was taken away.
static MARK: LazyLock<Regex> = LazyLock::new(mark);

#[expect(
    clippy::expect_used,
    reason = "the pattern is a constant, and tests use it"
)]
fn mark() -> Regex {
    Regex::new(r"\[redacted(?:: [A-Za-z0-9 _.-]{1,40})?\]").expect("a pattern")
}

/// Whether `after` is `before` but for marks in the place of pieces of texts, or of whole values.
/// Recursion goes as deep as JSON text can be read.
pub(super) fn only_takes_away(before: &Value, after: &Value) -> bool {
    if before == after {
        return true;
    }
    match (before, after) {
        (Value::String(before), Value::String(after)) => is_left_of(before, after),
        (_, Value::String(after)) => is_mark(after),
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(before, after)| only_takes_away(before, after))
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before.iter().all(|(key, before)| {
                    let after = after.get(key);
                    after.is_some_and(|after| only_takes_away(before, after))
                })
        }
        _ => false,
    }
}

fn is_mark(text: &str) -> bool {
    let found = MARK.find(text);
    found.is_some_and(|found| found.start() == 0 && found.end() == text.len())
}

/// Whether the pieces between the marks of `after` are pieces of `before`, in their order, from its
/// beginning to its end.
fn is_left_of(before: &str, after: &str) -> bool {
    let mut pieces = MARK.split(after);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = before.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        if let Some(middle) = last.replace(piece) {
            let Some((_, behind)) = rest.split_once(middle) else {
                return false;
            };
            rest = behind;
        }
    }
    match last {
        Some(last) => rest.ends_with(last),
        None => rest.is_empty(),
    }
}
