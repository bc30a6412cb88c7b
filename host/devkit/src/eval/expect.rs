//! The expectations of a task. All given ones must hold.

use crate::eval::numbers::numbers;
use crate::eval::seen::{AttemptCall, RunSummary};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use toolhold_files::Links;
use toolhold_policy::names;
use toolhold_protocol::event::StopReason;
use toolhold_schema::{SchemaFault, Validator};

/// Most bytes of a checked file; a task's files are small.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most characters of an unexpected call in a message.
const MAX_CALL_CHARS: usize = 120;

/// What must hold after a run that gave an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectations {
    #[serde(skip_serializing_if = "Check::is_empty")]
    pub answer: Check,
    /// Calls that were made, in any order, beside others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ExpectedCall>,
    /// Tools that were not called, not even in vain: a tool, a module, or `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_calls: Vec<String>,
    /// Files of the task's folder, as they are afterwards.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Check>,
    /// Files that are not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_files: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u32>,
}

/// What a text must be like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// All of these occur, in capitals or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<String>,
    /// One of these occurs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<String>,
    /// None of these occurs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
    /// The whole text, but for white space around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
    /// A regular expression that matches somewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// A number in it is this one, give or take `tolerance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// It is this JSON: key by key, numbers by value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// It is JSON that satisfies this schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// A call that must have been made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    pub tool: String,
    /// Arguments that it has, beside others.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub with: Map<String, Value>,
    /// Regular expressions that its arguments match, each as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matching: BTreeMap<String, String>,
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub at_least: usize,
    /// Whether a call counts that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_fail: bool,
}

fn once() -> usize {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_once(n: &usize) -> bool {
    *n == 1
}

impl Expectations {
    /// The unmet expectations; `folder` is the task's.
    pub fn faults(&self, seen: &RunSummary, folder: &Path) -> Vec<String> {
        match seen.reason {
            Some(StopReason::Output) => {}
            reason => {
                let name = reason.map_or(Value::Null, |reason| json!(reason));
                let name = name.as_str().unwrap_or("nothing").replace('_', " ");
                let why = seen.error.as_deref().unwrap_or("there is no answer");
                return vec![format!("the run ended with {name}: {why}")];
            }
        }
        let mut faults = self.answer.faults("the answer", &seen.answer());
        for call in &self.calls {
            faults.extend(call.fault(&seen.calls));
        }
        for name in &self.no_calls {
            if let Some(made) = seen.calls.iter().find(|made| is_of(name, &made.tool)) {
                faults.push(format!("{} was called", made.tool));
            }
        }
        for (path, check) in &self.files {
            match read(&folder.join(path)) {
                Ok(text) => faults.extend(check.faults(path, &text)),
                Err(error) => faults.push(format!("{path} cannot be read: {error}")),
            }
        }
        for path in &self.no_files {
            if folder.join(path).exists() {
                faults.push(format!("there is a file {path}"));
            }
        }
        for (what, most, is) in [
            ("steps", self.max_steps, seen.counts.steps),
            ("calls", self.max_calls, seen.counts.calls),
        ] {
            if let Some(most) = most.filter(|most| is > *most) {
                faults.push(format!("it took {is} {what} and may take {most}"));
            }
        }
        faults
    }

    /// Checks the expectation itself.
    ///
    /// # Errors
    /// A pattern or schema is invalid, or the expectation cannot fail.
    pub fn check(&self) -> Result<(), String> {
        if *self == Self::default() {
            return Err("`expect` is empty, so nothing could fail".into());
        }
        let named = self
            .files
            .iter()
            .map(|(path, check)| (path.as_str(), check));
        for (name, check) in named.chain([("answer", &self.answer)]) {
            check
                .check()
                .map_err(|reason| format!("{name}: {reason}"))?;
        }
        for call in &self.calls {
            for pattern in call.matching.values() {
                compiled(pattern).map_err(|reason| format!("calls: {reason}"))?;
            }
            if call.at_least == 0 {
                return Err(
                    "calls: at_least is 0; use no_calls for a tool that is not called".into(),
                );
            }
        }
        Ok(())
    }
}

impl Check {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(pattern) = &self.matches {
            compiled(pattern)?;
        }
        if let Some(schema) = &self.schema {
            Validator::new(schema)
                .map_err(|fault| format!("its schema cannot be used: {fault}"))?;
        }
        if self.tolerance.is_some() && self.number.is_none() {
            return Err("`tolerance` needs a `number`".into());
        }
        Ok(())
    }

    /// The faults of `text`, which messages call `name`.
    fn faults(&self, name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let lower = text.to_lowercase();
        let has = |piece: &String| lower.contains(&piece.to_lowercase());
        for piece in self.contains.iter().filter(|piece| !has(piece)) {
            faults.push(format!("{name} lacks {piece:?}"));
        }
        if !self.any_of.is_empty() && !self.any_of.iter().any(has) {
            let shown = self.any_of.iter().take(3);
            let mut list: Vec<_> = shown.map(|piece| format!("{piece:?}")).collect();
            if self.any_of.len() > list.len() {
                list.push(format!("{} more", self.any_of.len() - list.len()));
            }
            faults.push(format!("{name} has none of {}", list.join(", ")));
        }
        for piece in self.excludes.iter().filter(|piece| has(piece)) {
            faults.push(format!("{name} has {piece:?}"));
        }
        if let Some(expected) = &self.equals
            && text.trim() != expected.trim()
        {
            faults.push(format!("{name} is not {expected:?}"));
        }
        if let Some(pattern) = &self.matches
            && !is_match(pattern, text)
        {
            faults.push(format!("{name} does not match {pattern}"));
        }
        if let Some(expected) = self.number {
            let tolerance = self.tolerance.unwrap_or(0.0);
            let is_it = |number: &f64| (number - expected).abs() <= tolerance;
            if !numbers(text).iter().any(is_it) {
                faults.push(format!("{name} holds no {expected}"));
            }
        }
        if self.json.is_some() || self.schema.is_some() {
            match parsed(text) {
                None => faults.push(format!("{name} is not JSON")),
                Some(value) => {
                    if let Some(expected) =
                        self.json.as_ref().filter(|json| !same_json(json, &value))
                    {
                        faults.push(format!("{name} is not {expected}"));
                    }
                    let schema = self.schema.as_ref().map(Validator::new);
                    if let Some(Ok(Err(reason))) = schema.map(|s| s.map(|s| s.check(&value))) {
                        faults.push(format!("{name} does not fit its schema: {reason}"));
                    }
                }
            }
        }
        faults
    }
}

impl ExpectedCall {
    fn fault(&self, calls: &[AttemptCall]) -> Option<String> {
        let of_tool: Vec<&AttemptCall> =
            calls.iter().filter(|made| made.tool == self.tool).collect();
        let fitting = of_tool.iter().filter(|made| self.fits(made)).count();
        if fitting >= self.at_least {
            return None;
        }
        let mut wanted = self.tool.clone();
        if !self.with.is_empty() {
            let _ = write!(wanted, " with {}", json!(self.with));
        }
        for (name, pattern) in &self.matching {
            let _ = write!(wanted, " with {name} like {pattern}");
        }
        Some(match (of_tool.len(), self.at_least) {
            (0, _) => format!("{} was not called", self.tool),
            (_, 1) => {
                let last = of_tool.last().map(|made| made.told()).unwrap_or_default();
                format!("there was no call of {wanted} that succeeded; the last {last}")
            }
            (_, least) => format!("{fitting} of {least} calls were of {wanted} and succeeded"),
        })
    }

    fn fits(&self, made: &AttemptCall) -> bool {
        let argument = |name: &str| made.arguments.get(name);
        (self.may_fail || made.succeeded == Some(true))
            && self
                .with
                .iter()
                .all(|(name, value)| argument(name).is_some_and(|own| same_json(value, own)))
            && self.matching.iter().all(|(name, pattern)| {
                argument(name).is_some_and(|own| match own {
                    Value::String(text) => is_match(pattern, text),
                    other => is_match(pattern, &other.to_string()),
                })
            })
    }
}

impl AttemptCall {
    /// A short description of the call's outcome.
    fn told(&self) -> String {
        let cut = |text: String| text.chars().take(MAX_CALL_CHARS).collect::<String>();
        match self.succeeded {
            Some(true) => cut(format!("was with {}", self.arguments)),
            Some(false) => cut(format!("failed: {}", self.result)),
            None => "did not end".into(),
        }
    }
}

/// Whether `name` means `tool`: its name, its module's name, or `*`.
fn is_of(name: &str, tool: &str) -> bool {
    name == "*" || names::means(name, tool)
}

fn read(path: &Path) -> std::io::Result<String> {
    toolhold_files::read_text(path, MAX_FILE_BYTES, Links::Refuse)
}

/// A pattern as in JSON Schema, with the engine that validates tools' parameters.
fn compiled(pattern: &str) -> Result<Validator, String> {
    Validator::new(&json!({"pattern": pattern})).map_err(|fault| match fault {
        SchemaFault::Invalid(_) => format!("{pattern:?} is no regular expression"),
        SchemaFault::TooCostly(fault) => format!("{pattern:?} cannot be used: {fault}"),
    })
}

fn is_match(pattern: &str, text: &str) -> bool {
    compiled(pattern).is_ok_and(|pattern| pattern.check(&json!(text)).is_ok())
}

/// Parses JSON in a text; models often put it in a fence.
fn parsed(text: &str) -> Option<Value> {
    let text = text.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|rest| rest.strip_suffix("```"))
        .unwrap_or(text);
    serde_json::from_str(inner).ok()
}

/// Equality of JSON Schema: 1 equals 1.0, and the order of keys does not matter.
pub(crate) fn same_json(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || l.as_f64() == r.as_f64(),
        (Value::Array(l), Value::Array(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same_json(l, r))
        }
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len()
                && l.iter()
                    .all(|(key, l)| r.get(key).is_some_and(|r| same_json(l, r)))
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(value: Value) -> Expectations {
        serde_json::from_value(value).unwrap()
    }

    fn seen(output: Value) -> RunSummary {
        let made = |tool: &str, arguments: Value, succeeded| AttemptCall {
            id: tool.into(),
            tool: tool.into(),
            arguments,
            succeeded: Some(succeeded),
            result: String::new(),
        };
        RunSummary {
            reason: Some(StopReason::Output),
            output,
            calls: vec![
                made(
                    "text.count",
                    json!({"text": "abc", "of": "a", "limit": 3}),
                    true,
                ),
                made("files.read", json!({"path": "x"}), false),
            ],
            ..RunSummary::default()
        }
    }

    #[test]
    fn every_kind_of_expectation_can_hold_and_can_fail() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("out.txt"), "Done: 7\n").unwrap();
        let seen = seen(json!("It is 1,234.5 (Ada)."));
        for (holds, fails, why) in [
            (
                json!({"answer": {"contains": ["ada", "1,234"]}}),
                json!({"answer": {"contains": ["ada", "Bob"]}}),
                "the answer lacks \"Bob\"",
            ),
            (
                json!({"answer": {"any_of": ["Bob", "Ada"]}}),
                json!({"answer": {"any_of": ["Bob"]}}),
                "has none of",
            ),
            (
                json!({"answer": {"excludes": ["Bob"]}}),
                json!({"answer": {"excludes": ["ADA"]}}),
                "the answer has \"ADA\"",
            ),
            (
                json!({"answer": {"equals": " It is 1,234.5 (Ada). "}}),
                json!({"answer": {"equals": "It is"}}),
                "is not \"It is\"",
            ),
            (
                json!({"answer": {"matches": "^It .*\\(A[a-z]+\\)"}}),
                json!({"answer": {"matches": "^It$"}}),
                "does not match ^It$",
            ),
            (
                json!({"answer": {"number": 1234, "tolerance": 0.5}}),
                json!({"answer": {"number": 1234, "tolerance": 0.4}}),
                "holds no 1234",
            ),
            (
                json!({"calls": [{"tool": "text.count", "with": {"of": "a", "limit": 3.0}}]}),
                json!({"calls": [{"tool": "text.count", "with": {"of": "b"}}]}),
                "with {\"of\":\"b\"} that succeeded; the last was with {\"text\":\"abc\"",
            ),
            (
                json!({"calls": [{"tool": "text.count", "matching": {"text": "^a", "limit": "3"}}]}),
                json!({"calls": [{"tool": "text.count", "matching": {"text": "^b"}}]}),
                "with text like ^b",
            ),
            (
                json!({"calls": [{"tool": "files.read", "may_fail": true}]}),
                json!({"calls": [{"tool": "files.read"}]}),
                "files.read that succeeded; the last failed",
            ),
            (
                json!({"calls": [{"tool": "text.count", "at_least": 1}]}),
                json!({"calls": [{"tool": "text.count", "at_least": 2}]}),
                "1 of 2 calls",
            ),
            (
                json!({"no_calls": ["files.write", "jq"]}),
                json!({"no_calls": ["files"]}),
                "files.read was called",
            ),
            (
                json!({"no_calls": ["sqlite"]}),
                json!({"no_calls": ["*"]}),
                "text.count was called",
            ),
            (
                json!({"files": {"out.txt": {"equals": "Done: 7"}}}),
                json!({"files": {"other.txt": {}}}),
                "other.txt cannot be read",
            ),
            (
                json!({"no_files": ["other.txt"]}),
                json!({"no_files": ["out.txt"]}),
                "there is a file out.txt",
            ),
        ] {
            let faults = expect(holds.clone()).faults(&seen, folder.path());
            assert_eq!(faults, Vec::<String>::new(), "{holds}");
            let faults = expect(fails.clone()).faults(&seen, folder.path());
            assert_eq!(faults.len(), 1, "{fails}: {faults:?}");
            assert!(faults[0].contains(why), "{fails}: {faults:?}");
        }
    }

    #[test]
    fn json_is_compared_by_value_and_judged_by_schema() {
        let folder = Path::new("/nowhere");
        for answer in [
            json!({"b": [1.0], "a": "x"}),
            json!("```json\n{\"a\": \"x\", \"b\": [1]}\n```"),
        ] {
            let seen = seen(answer);
            let right = expect(json!({"answer": {"json": {"a": "x", "b": [1]}}}));
            assert_eq!(right.faults(&seen, folder), Vec::<String>::new());
            for wrong in [
                json!({"json": {"a": "x"}}),
                json!({"json": {"a": "x", "b": [2]}}),
                json!({"schema": {"required": ["c"]}}),
            ] {
                let faults = expect(json!({"answer": wrong})).faults(&seen, folder);
                assert_eq!(faults.len(), 1, "{wrong}: {faults:?}");
            }
        }
    }

    #[test]
    fn a_run_without_an_answer_meets_nothing() {
        let seen = RunSummary {
            reason: Some(StopReason::MaxSteps),
            ..seen(Value::Null)
        };
        let faults = expect(json!({"max_steps": 9})).faults(&seen, Path::new("/nowhere"));
        assert_eq!(faults, ["the run ended with max steps: there is no answer"]);
    }

    #[test]
    fn an_expectation_that_cannot_be_judged_is_refused() {
        for (value, why) in [
            (json!({}), "nothing could fail"),
            (json!({"answer": {"matches": "("}}), "no regular expression"),
            (json!({"answer": {"tolerance": 1}}), "needs a `number`"),
            (json!({"answer": {"schema": {"type": 7}}}), "answer: "),
            (
                json!({"calls": [{"tool": "a.b", "matching": {"x": "["}}]}),
                "no regular",
            ),
            (
                json!({"calls": [{"tool": "a.b", "at_least": 0}]}),
                "no_calls",
            ),
        ] {
            let error = expect(value.clone()).check().unwrap_err();
            assert!(error.contains(why), "{value}: {error}");
        }
    }
}
