//! What of a run goes into the audit log, from its events.

use crate::redaction::Redaction;
use crate::storage::audit::digest;
use crate::storage::prune::By;
use crate::storage::sessions::{now_ms, signed};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use toolhold_agent::event::ToolOutcome;
use toolhold_agent::run::approval::Verdict;
use toolhold_agent::run::sub_run;
use toolhold_agent::{Event, EventKind, ToolFailure};
use uuid::Uuid;

/// One row, before it has its place.
#[derive(Debug)]
pub struct Draft {
    pub(super) at_ms: i64,
    pub(super) owner: String,
    pub(super) action: &'static str,
    /// The recorded run, and the event that it follows from.
    pub(super) source: Option<(Uuid, i64)>,
    pub(super) tool: Option<String>,
    /// What else there is to say, each object's members in the order of their names.
    details: BTreeMap<String, Value>,
}

/// Characters of a tool's name that are kept: twice those of any tool that there is.
const MAX_NAME: usize = 128;

/// Characters of arguments that are kept; what is longer is cut.
const MAX_ARGUMENTS: usize = 16_384;

impl Draft {
    /// A person, or whoever has the key `owner`, let a module run as it is.
    pub fn module_approved(owner: &str, module: &str, digest: &str) -> Self {
        Self::now(
            owner,
            "module_approved",
            json!({"module": module, "digest": digest}),
        )
    }

    /// Whoever has the key `owner` brought a component, perhaps in the place of the one with the digest
    /// `replaced`.
    pub fn module_uploaded(
        owner: &str,
        module: &str,
        digest: &str,
        replaced: Option<&str>,
    ) -> Self {
        Self::now(
            owner,
            "module_uploaded",
            json!({"module": module, "digest": digest, "replaced": replaced}),
        )
    }

    /// A person gave a module what the sentences `may` say, for good.
    pub fn module_granted(module: &str, digest: &str, may: Value) -> Self {
        Self::now(
            "",
            "module_granted",
            json!({"module": module, "digest": digest, "may": may}),
        )
    }

    /// A person took back what a module was given, and its approval.
    pub fn module_revoked(module: &str) -> Self {
        Self::now("", "module_revoked", json!({"module": module}))
    }

    /// An MCP server was allowed to be started and called as it is.
    pub fn server_approved(server: &str) -> Self {
        Self::now("", "server_approved", json!({"server": server}))
    }

    pub fn server_revoked(server: &str) -> Self {
        Self::now("", "server_revoked", json!({"server": server}))
    }

    pub fn key_created(key: &str, permits: Value) -> Self {
        Self::now("", "key_created", json!({"key": key, "permits": permits}))
    }

    pub fn key_revoked(key: &str) -> Self {
        Self::now("", "key_revoked", json!({"key": key}))
    }

    /// Somebody deleted a session with its turns.
    pub fn session_deleted(owner: &str, session: Uuid, runs: &[Uuid]) -> Self {
        Self::now(
            owner,
            "session_deleted",
            json!({"session": session, "runs": runs}),
        )
    }

    /// Somebody deleted the record of a run.
    pub fn run_deleted(owner: &str, run: Uuid) -> Self {
        Self::now(owner, "run_deleted", json!({"run": run}))
    }

    /// The records of runs and sessions were deleted that were over before that time, in milliseconds since 1970.
    pub fn pruned(by: By, before_ms: u64, runs: &[Uuid], sessions: &[Uuid]) -> Self {
        let mut details = json!({"before_ms": before_ms, "runs": runs, "sessions": sessions});
        match by {
            By::Person => details["by"] = "person".into(),
            By::Retention { days } => {
                details["by"] = "retention".into();
                details["keep_days"] = days.into();
            }
        }
        Self::now("", "pruned", details)
    }

    fn now(owner: &str, action: &'static str, details: Value) -> Self {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        Self {
            at_ms: signed(now_ms()),
            owner: who(owner),
            action,
            source: None,
            tool: None,
            details: canonical(details),
        }
    }

    /// The row's text as canonical JSON: no spaces, members in the order of their names.
    pub(super) fn entry(&self, number: i64) -> Result<String, serde_json::Error> {
        let details = self.details.iter();
        let mut entry: BTreeMap<&str, Member<'_>> = details
            .map(|(name, value)| (name.as_str(), Member::Value(value)))
            .collect();
        entry.insert("number", Member::Number(number));
        entry.insert("at_ms", Member::Number(self.at_ms));
        entry.insert("owner", Member::Text(&self.owner));
        entry.insert("action", Member::Text(self.action));
        if let Some((run, seq)) = self.source {
            entry.insert("run", Member::Run(run));
            entry.insert("seq", Member::Number(seq));
        }
        if let Some(tool) = &self.tool {
            entry.insert("tool", Member::Text(tool));
        }
        serde_json::to_string(&entry)
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Member<'a> {
    Number(i64),
    Text(&'a str),
    Run(Uuid),
    Value(&'a Value),
}

fn canonical(members: Map<String, Value>) -> BTreeMap<String, Value> {
    let members = members.into_iter().map(|(name, mut value)| {
        value.sort_all_objects();
        (name, value)
    });
    members.collect()
}

/// A key's name; or who has this machine's terminal. Keys' names have no colon.
fn who(owner: &str) -> String {
    if owner.is_empty() {
        format!("uid:{}", rustix::process::getuid().as_raw())
    } else {
        owner.to_owned()
    }
}

/// A tool's name as far as it can be one, whatever a model made up: PostgreSQL has texts without zeros, and
/// indexes short ones.
fn known(tool: &str) -> String {
    tool.chars().filter(|c| *c != '\0').take(MAX_NAME).collect()
}

/// Follows a run, and says what of it is to be in the log.
#[derive(Debug)]
pub struct Drafts {
    run: Uuid,
    owner: String,
    policy: String,
    redaction: Redaction,
    /// What calls are made with that have not ended, by their run.
    begun: HashMap<(Uuid, String), Value>,
}

impl Drafts {
    pub fn new(run: Uuid, owner: &str, redaction: Redaction) -> Self {
        Self {
            run,
            owner: who(owner),
            policy: String::new(),
            redaction,
            begun: HashMap::new(),
        }
    }

    /// The policy is another than when the run began.
    pub fn under(&mut self, policy: &str) {
        policy.clone_into(&mut self.policy);
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) -> Option<Draft> {
        let (mut within, mut kind) = (self.run, &event.kind);
        while let EventKind::Sub { call, what } = kind {
            within = sub_run(within, call);
            kind = what;
        }
        let (action, tool, details) = match kind {
            EventKind::Run { request, .. } => {
                if within == self.run {
                    self.policy.clone_from(&request.policy.hash);
                }
                return None;
            }
            EventKind::Plan { calls, .. } => {
                for call in calls.iter().filter(|call| !call.id.is_empty()) {
                    self.begin(within, &call.id, &call.arguments);
                }
                return None;
            }
            EventKind::Approval { pending, .. } => {
                self.begin(within, &pending.call.id, &pending.arguments);
                return None;
            }
            EventKind::ToolStart { call, filled, .. } => {
                self.begin(within, &call.id, filled.as_ref().unwrap_or(&call.arguments));
                return None;
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                module,
                by_host,
                ..
            } => {
                let outcome = match outcome {
                    ToolOutcome::Output(value) => Ok(value),
                    ToolOutcome::Error(failure) => Err(failure),
                };
                let arguments = self.begun.remove(&(within, id.clone()));
                let details = audited(Audited {
                    way: Map::new(),
                    call: id,
                    arguments: arguments.unwrap_or_default(),
                    policy: &self.policy,
                    outcome,
                    duration_us: usage.duration_us,
                    module: module.as_deref(),
                    by_host: *by_host,
                });
                ("call", Some(known(tool)), details.into())
            }
            EventKind::Decided { id, decision, .. } => {
                let verdict = match &decision.verdict {
                    Verdict::Approve => "approve",
                    Verdict::Edit { .. } => "edit",
                    Verdict::Replace { .. } => "replace",
                    Verdict::Refuse { .. } => "refuse",
                };
                let details = json!({
                    "call": id,
                    "verdict": verdict,
                    "by": decision.by,
                    "digest": decision.digest,
                    "policy": self.policy,
                });
                ("approval_decided", None, details)
            }
            _ => return None,
        };
        let Value::Object(mut details) = details else {
            return None;
        };
        if within != self.run {
            details.insert("within".into(), json!(within));
        }
        Some(Draft {
            at_ms: signed(event.at_ms),
            owner: self.owner.clone(),
            action,
            source: Some((self.run, signed(event.seq))),
            tool,
            details: canonical(details),
        })
    }

    fn begin(&mut self, within: Uuid, call: &str, arguments: &Value) {
        let kept = self.redaction.kept(arguments);
        self.begun.insert((within, call.to_owned()), kept);
    }
}

impl Redaction {
    /// What of a call's arguments is in the log.
    pub fn kept(&self, arguments: &Value) -> Value {
        let masked = self.value(arguments);
        let text = masked.to_string();
        match text.char_indices().nth(MAX_ARGUMENTS) {
            None => masked,
            Some((end, _)) => format!(
                "{}… cut off, of {} bytes",
                text.get(..end).unwrap_or_default(),
                text.len()
            )
            .into(),
        }
    }
}

/// A call that belongs to no run, before it has ended.
#[derive(Debug)]
pub struct CallRecord {
    pub id: String,
    pub tool: String,
    /// As [`Redaction::kept`] leaves them.
    pub arguments: Value,
    /// The policy's hash.
    pub policy: String,
    /// Empty for the user of this machine.
    pub owner: String,
    /// By which way it came, and what whoever made it said of itself.
    pub way: Map<String, Value>,
}

impl CallRecord {
    /// The row that says what came of it.
    pub fn ended(
        self,
        outcome: Result<&Value, &ToolFailure>,
        duration_us: u64,
        module: Option<&str>,
        by_host: bool,
    ) -> Draft {
        let details = audited(Audited {
            way: self.way,
            call: &self.id,
            arguments: self.arguments,
            policy: &self.policy,
            outcome,
            duration_us,
            module,
            by_host,
        });
        Draft {
            at_ms: signed(now_ms()),
            owner: who(&self.owner),
            action: "call",
            source: None,
            tool: Some(known(&self.tool)),
            details: canonical(details),
        }
    }
}

/// A call as the log has it.
struct Audited<'a> {
    way: Map<String, Value>,
    call: &'a str,
    arguments: Value,
    policy: &'a str,
    outcome: Result<&'a Value, &'a ToolFailure>,
    duration_us: u64,
    module: Option<&'a str>,
    by_host: bool,
}

/// What the log says of a call: what came of it, without what it came to.
fn audited(call: Audited<'_>) -> Map<String, Value> {
    let Audited {
        way: mut details,
        outcome,
        module,
        ..
    } = call;
    for (name, value) in [
        ("call", call.call.into()),
        ("arguments", call.arguments),
        ("duration_us", call.duration_us.into()),
        ("policy", call.policy.into()),
        ("by_host", call.by_host.into()),
    ] {
        details.insert(name.into(), value);
    }
    let (status, told) = match outcome {
        Ok(value) => ("ok", digest(value.to_string().as_bytes())),
        Err(failure) => {
            details.insert("error".into(), failure.kind.as_str().into());
            ("error", digest(failure.message.as_bytes()))
        }
    };
    details.insert("status".into(), status.into());
    details.insert("result_digest".into(), told.into());
    if let Some(module) = module {
        details.insert("module_digest".into(), module.into());
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let entry = record
            .ended(Ok(&json!(1)), 7, None, false)
            .entry(3)
            .unwrap();
        assert!(
            entry.contains(r#""arguments":{"a":0,"z":{"a":[{"c":2,"d":1}],"b":1}},"at_ms":"#),
            "{entry}"
        );
        let members: Map<String, Value> = serde_json::from_str(&entry).unwrap();
        assert!(members.keys().is_sorted(), "{entry}");
        assert_eq!(members["number"], 3);
        assert!(!entry.contains(": ") && !entry.contains(", "), "{entry}");
    }
}
