//! Approvals for the rest of a run: a person answers `a` once, and calls like that one are not asked about again.
//!
//! Each is bound to the tool, to the tools that it is called by, and to a pattern of its arguments. It is known to
//! the process alone: a resumed run asks again. The record has a decision for each call, as if it had been typed.

use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use toolhold_protocol::approval::{Decision, Pending, Verdict};

/// Most approvals of a run; a person does not type more.
const MAX_STANDING: usize = 256;

/// Who decided, for the record.
const BY: &str = "terminal, always";

/// The approvals that stand.
#[derive(Debug, Default)]
pub struct StandingApprovals(Mutex<Vec<StandingApproval>>);

#[derive(Debug)]
struct StandingApproval {
    tool: String,
    callers: Vec<String>,
    arguments: ArgumentPattern,
}

#[derive(Debug)]
enum ArgumentPattern {
    Same(Value),
    Fits(Value),
}

impl StandingApprovals {
    /// The decision about a call that an earlier answer covers.
    pub fn decision(&self, pending: &Pending) -> Option<Decision> {
        let standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_covered = standing.iter().any(|one| one.covers(pending));
        is_covered.then(|| approved(pending))
    }

    /// Approves this call and those that the pattern covers: all with the same arguments, if there is none.
    ///
    /// # Errors
    /// The pattern is none, or does not cover the call that was asked about.
    pub fn add(&self, pending: &Pending, pattern: Option<Value>) -> Result<Decision, String> {
        let arguments = match pattern {
            None => ArgumentPattern::Same(pending.arguments.clone()),
            Some(pattern @ Value::Object(_)) => ArgumentPattern::Fits(pattern),
            Some(_) => {
                return Err(
                    "the pattern is no JSON object, such as {\"path\": \"notes/*\"}".into(),
                );
            }
        };
        let one = StandingApproval {
            tool: pending.call.tool.clone(),
            callers: pending.callers.clone(),
            arguments,
        };
        if !one.covers(pending) {
            return Err("the pattern does not fit the arguments of this call".into());
        }
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if standing.len() >= MAX_STANDING {
            return Err(format!(
                "there are {MAX_STANDING} such answers already; say y"
            ));
        }
        standing.push(one);
        Ok(approved(pending))
    }
}

impl StandingApproval {
    fn covers(&self, pending: &Pending) -> bool {
        self.tool == pending.call.tool
            && self.callers == pending.callers
            && match &self.arguments {
                ArgumentPattern::Same(arguments) => *arguments == pending.arguments,
                ArgumentPattern::Fits(pattern) => fits(pattern, &pending.arguments),
            }
    }
}

fn approved(pending: &Pending) -> Decision {
    Decision {
        digest: pending.digest.clone(),
        verdict: Verdict::Approve,
        by: Some(BY.into()),
    }
}

/// Whether a value has what the pattern names: each member of an object, a text with `*` for any characters, and
/// everything else as it is. Members that the pattern does not name are free.
fn fits(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (Value::Object(pattern), Value::Object(value)) => pattern
            .iter()
            .all(|(name, pattern)| value.get(name).is_some_and(|value| fits(pattern, value))),
        (Value::String(pattern), Value::String(text)) => text_fits(pattern, text),
        _ => pattern == value,
    }
}

/// `*` stands for any characters. It does not stand for a path that leaves a folder: `notes/*` is no `notes/../a`.
fn text_fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    if text.split(['/', '\\']).any(|part| part == "..") {
        return false;
    }
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::tool::Annotations;

    fn pending(tool: &str, arguments: Value) -> Pending {
        let call = Call {
            id: "1".into(),
            tool: tool.into(),
            ..Call::default()
        };
        Pending::new(call, arguments, Annotations::default())
    }

    #[test]
    fn an_answer_for_the_run_is_bound_to_the_tool_and_the_pattern() {
        let standing = StandingApprovals::default();
        let write = |path: &str| pending("files.write", json!({"path": path, "content": path}));
        let pattern = json!({"path": "notes/*.md"});
        let decided = standing.add(&write("notes/a.md"), Some(pattern)).unwrap();
        assert_eq!(decided.verdict, Verdict::Approve);
        assert_eq!(decided.digest, write("notes/a.md").digest);
        let other = pending("files.remove", json!({"path": "notes/b.md"}));
        let mut nested = write("notes/b.md");
        nested.callers = vec!["x.y".into()];
        for (call, is_covered) in [
            (write("notes/b.md"), true),
            (write("notes/b/c.md"), true),
            (write("notes/b.txt"), false),
            (write("notes/../b.md"), false),
            (write("b.md"), false),
            (
                pending("files.write", json!({"content": "notes/b.md"})),
                false,
            ),
            (other, false),
            (nested, false),
        ] {
            let decision = standing.decision(&call);
            assert_eq!(decision.is_some(), is_covered, "{call:?}");
            assert!(decision.is_none_or(|decision| decision.digest == call.digest));
        }
        standing.add(&write("b.md"), None).unwrap();
        assert!(standing.decision(&write("b.md")).is_some(), "the same call");
        assert!(standing.decision(&write("c.md")).is_none());
        for (pattern, expect) in [
            (json!("*"), "no JSON object"),
            (json!({"path": "x*"}), "does not fit"),
            (json!({"mode": "*"}), "does not fit"),
        ] {
            let error = standing.add(&write("c.md"), Some(pattern)).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, is_fit) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("*.md", "a.md.txt", false),
            ("a", "ab", false),
        ] {
            assert_eq!(text_fits(pattern, text), is_fit, "{pattern} {text}");
        }
    }
}
