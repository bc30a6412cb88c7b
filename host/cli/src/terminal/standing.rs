//! Decisions for the rest of a run: a person answers `a` once, and calls like that one are not asked about again.
//!
//! Each is bound to the run (a sub-agent's is another), the tool and its instance, the tools that it is called by, and
//! the arguments that were shown, of which a pattern may free some. It is known to the process alone: a resumed run
//! asks again. The record has a decision for each call, as if it had been typed.

use serde_json::{Map, Value};
use std::sync::{Mutex, PoisonError};
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use uuid::Uuid;

/// Most standing decisions of a run; a person does not type more.
const MAX_STANDING: usize = 256;

/// Who decided, for the record.
const BY: &str = "terminal, always";

/// The decisions that stand.
#[derive(Debug, Default)]
pub struct StandingDecisions(Mutex<Vec<StandingDecision>>);

#[derive(Debug)]
struct StandingDecision {
    run: Uuid,
    tool: String,
    instance: Option<String>,
    callers: Vec<String>,
    /// Why that call waited. One that waits for a reason of its own needs an answer that knew the reason.
    why: Option<String>,
    /// The arguments that were shown.
    shown: Value,
    /// Absent: only the same arguments.
    pattern: Option<Value>,
}

impl StandingDecisions {
    /// The decision about a call that an earlier answer covers.
    pub fn decision(&self, run: Uuid, pending: &Pending) -> Option<Decision> {
        let standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_covered = standing.iter().any(|one| one.covers(run, pending));
        is_covered.then(|| approved(pending))
    }

    /// Follows the decision that holds about a call: if it is another than approval, such as an earlier refusal by
    /// another person, calls like it are asked about again.
    pub fn follow(&self, run: Uuid, pending: &Pending, decision: &Decision) {
        if decision.verdict != Verdict::Approve {
            let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            standing.retain(|one| !one.covers(run, pending));
        }
    }

    /// Approves this call and those that the pattern covers: all with the same arguments, if there is none.
    ///
    /// # Errors
    /// The pattern is none, or does not cover the call that was asked about.
    pub fn add(
        &self,
        run: Uuid,
        pending: &Pending,
        pattern: Option<Value>,
    ) -> Result<Decision, String> {
        if pattern.as_ref().is_some_and(|pattern| !pattern.is_object()) {
            return Err("the pattern is no JSON object, such as {\"path\": \"notes/*\"}".into());
        }
        let one = StandingDecision {
            run,
            tool: pending.call.tool.clone(),
            instance: pending.call.instance.clone(),
            callers: pending.callers.clone(),
            why: pending.why.clone(),
            shown: pending.arguments.clone(),
            pattern,
        };
        if !one.covers(run, pending) {
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

impl StandingDecision {
    fn covers(&self, run: Uuid, pending: &Pending) -> bool {
        self.run == run
            && self.tool == pending.call.tool
            && self.instance == pending.call.instance
            && self.callers == pending.callers
            && (pending.why.is_none() || self.why == pending.why)
            && fits(
                self.pattern.as_ref(),
                Some(&self.shown),
                Some(&pending.arguments),
            )
    }
}

fn approved(pending: &Pending) -> Decision {
    Decision {
        digest: pending.digest.clone(),
        verdict: Verdict::Approve,
        by: Some(BY.into()),
    }
}

/// Whether a value is as the pattern wants it: each member of an object, a text with `*` for any characters, and
/// everything else as it is. What the pattern does not name is as it was shown.
fn fits(pattern: Option<&Value>, shown: Option<&Value>, value: Option<&Value>) -> bool {
    match (pattern, value) {
        (None, _) => shown == value,
        (Some(Value::Object(pattern)), Some(Value::Object(members))) => {
            let shown = shown.and_then(Value::as_object);
            let shown_names = shown.into_iter().flat_map(Map::keys);
            let mut names = pattern.keys().chain(members.keys()).chain(shown_names);
            names.all(|name| {
                let shown = shown.and_then(|shown| shown.get(name));
                fits(pattern.get(name), shown, members.get(name))
            })
        }
        (Some(Value::String(pattern)), Some(Value::String(text))) => text_fits(pattern, text),
        (Some(pattern), value) => Some(pattern) == value,
    }
}

/// `*` stands for any characters. It does not stand for a path that leaves a folder: `notes/*` is no `notes/../a`.
fn text_fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    // As a URL may write it, too.
    let is_parent = |part: &str| part.to_ascii_lowercase().replace("%2e", ".") == "..";
    if text.split(['/', '\\']).any(is_parent) {
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
        let standing = StandingDecisions::default();
        let run = Uuid::from_u128(1);
        let write = |path: &str| {
            pending(
                "files.write",
                json!({"path": path, "mode": "new", "content": path}),
            )
        };
        let pattern = json!({"path": "notes/*.md", "content": "*"});
        let decided = standing
            .add(run, &write("notes/a.md"), Some(pattern))
            .unwrap();
        assert_eq!(decided.verdict, Verdict::Approve);
        assert_eq!(decided.digest, write("notes/a.md").digest);
        let other = pending("files.remove", json!({"path": "notes/b.md"}));
        let mut nested = write("notes/b.md");
        nested.callers = vec!["x.y".into()];
        let mut of_instance = write("notes/b.md");
        of_instance.call.instance = Some("bob".into());
        for (call, is_covered) in [
            (write("notes/b.md"), true),
            (write("notes/b/c.md"), true),
            (write("notes/b.txt"), false),
            (write("notes/../b.md"), false),
            (write("notes/%2E%2e/b.md"), false),
            (write("b.md"), false),
            (
                pending("files.write", json!({"content": "notes/b.md"})),
                false,
            ),
            (
                pending(
                    "files.write",
                    json!({"path": "notes/b.md", "mode": "append", "content": ""}),
                ),
                false,
            ),
            (
                pending("files.write", json!({"path": "notes/b.md", "content": ""})),
                false,
            ),
            (other, false),
            (nested, false),
            (of_instance, false),
        ] {
            let decision = standing.decision(run, &call);
            assert_eq!(decision.is_some(), is_covered, "{call:?}");
            assert!(decision.is_none_or(|decision| decision.digest == call.digest));
        }
        let refused = Decision {
            verdict: Verdict::Refuse {
                reason: "another person".into(),
            },
            ..approved(&write("notes/b.md"))
        };
        let other = StandingDecisions::default();
        other.add(run, &write("notes/b.md"), None).unwrap();
        other.follow(run, &write("notes/b.md"), &approved(&write("notes/b.md")));
        assert!(other.decision(run, &write("notes/b.md")).is_some());
        other.follow(run, &write("notes/b.md"), &refused);
        assert!(other.decision(run, &write("notes/b.md")).is_none());

        let of_sub_agent = standing.decision(Uuid::from_u128(2), &write("notes/b.md"));
        assert!(of_sub_agent.is_none());
        standing.add(run, &write("b.md"), None).unwrap();
        assert!(
            standing.decision(run, &write("b.md")).is_some(),
            "the same call"
        );
        assert!(standing.decision(run, &write("c.md")).is_none());
        for (pattern, expect) in [
            (json!("*"), "no JSON object"),
            (json!({"path": "x*"}), "does not fit"),
            (json!({"other": "*"}), "does not fit"),
        ] {
            let error = standing
                .add(run, &write("c.md"), Some(pattern))
                .unwrap_err();
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
