//! Rows that follow from a run's events.

use super::call::{AuditedCall, audited, interrupted, kept_arguments};
use super::draft::{Draft, canonical, logged_owner, tool_name};
use crate::column::signed;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{Event, EventKind};
use uuid::Uuid;

/// Follows a run's events and makes its rows of the audit log.
#[derive(Debug)]
pub struct RunAudit {
    run: Uuid,
    owner: String,
    /// Hash of the policy that the run is under.
    policy: String,
    redaction: Redaction,
    /// The calls that have not ended, by run or sub-run and call id.
    open: HashMap<(Uuid, String), OpenCall>,
}

/// A call of a run that has not ended.
#[derive(Debug)]
struct OpenCall {
    /// As the log keeps them.
    arguments: Value,
    /// Its begin, if its tool was called.
    begun: Option<CallBegin>,
}

/// The event with which a tool is called.
#[derive(Debug)]
struct CallBegin {
    tool: String,
    seq: i64,
    at_ms: i64,
}

impl RunAudit {
    /// For the run of `owner`, before its first event.
    pub fn new(run: Uuid, owner: &str, redaction: Redaction) -> Self {
        Self {
            run,
            owner: logged_owner(owner),
            policy: String::new(),
            redaction,
            open: HashMap::new(),
        }
    }

    /// Sets the hash of the policy: a resumed run may have another one than at its begin.
    pub fn under(&mut self, policy: &str) {
        policy.clone_into(&mut self.policy);
    }

    /// Takes the run's next event, and returns the row that follows from it, if any.
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
                    self.keep(within, &call.id, &call.arguments, None);
                }
                return None;
            }
            EventKind::Approval { pending, .. } => {
                self.keep(within, &pending.call.id, &pending.arguments, None);
                return None;
            }
            EventKind::ToolStart { call, filled, .. } => {
                let begin = CallBegin {
                    tool: call.tool.clone(),
                    seq: signed(event.seq),
                    at_ms: signed(event.at_ms),
                };
                let arguments = filled.as_ref().unwrap_or(&call.arguments);
                self.keep(within, &call.id, arguments, Some(begin));
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
                let arguments = self.open.remove(&(within, id.clone()));
                let arguments = arguments.map(|open| open.arguments);
                let details = audited(AuditedCall {
                    way: Map::new(),
                    call: id,
                    arguments: arguments.unwrap_or_default(),
                    policy: &self.policy,
                    outcome: match outcome {
                        ToolOutcome::Output(value) => Ok(value),
                        ToolOutcome::Error(failure) => Err(failure),
                    },
                    usage,
                    module: module.as_deref(),
                    by_host: *by_host,
                });
                ("call", Some(tool_name(tool)), details.into())
            }
            EventKind::Decided { id, decision, .. } => {
                let verdict: &str = (&decision.verdict).into();
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
        let Value::Object(details) = details else {
            return None;
        };
        let source = (signed(event.seq), signed(event.at_ms));
        Some(self.draft(within, source, action, tool, details))
    }

    /// Rows for the calls that have begun and not ended, in their order: for a run whose process is dead.
    pub fn interrupted(self) -> Vec<Draft> {
        let open = self.open.iter().filter_map(|((within, id), open)| {
            let begun = open.begun.as_ref()?;
            let details = interrupted(Map::new(), id, open.arguments.clone(), &self.policy);
            let tool = Some(tool_name(&begun.tool));
            let source = (begun.seq, begun.at_ms);
            Some((
                begun.seq,
                self.draft(*within, source, "call", tool, details),
            ))
        });
        let mut drafts: Vec<(i64, Draft)> = open.collect();
        drafts.sort_by_key(|(seq, _)| *seq);
        drafts.into_iter().map(|(_, draft)| draft).collect()
    }

    fn draft(
        &self,
        within: Uuid,
        (seq, at_ms): (i64, i64),
        action: &'static str,
        tool: Option<String>,
        mut details: Map<String, Value>,
    ) -> Draft {
        if within != self.run {
            details.insert("within".into(), json!(within));
        }
        Draft {
            at_ms,
            owner: self.owner.clone(),
            action: action.into(),
            source: Some((self.run, seq)),
            tool,
            details: canonical(details),
        }
    }

    fn keep(&mut self, within: Uuid, call: &str, arguments: &Value, begun: Option<CallBegin>) {
        let arguments = kept_arguments(&self.redaction, arguments);
        let open = OpenCall { arguments, begun };
        self.open.insert((within, call.to_owned()), open);
    }
}
