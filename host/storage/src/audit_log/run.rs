//! Rows that follow from a run's events.

use super::call::{AuditedCall, audited, kept_arguments};
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
    /// Arguments of the calls that have not ended, by run or sub-run and call id.
    begun: HashMap<(Uuid, String), Value>,
}

impl RunAudit {
    /// For the run of `owner`, before its first event.
    pub fn new(run: Uuid, owner: &str, redaction: Redaction) -> Self {
        Self {
            run,
            owner: logged_owner(owner),
            policy: String::new(),
            redaction,
            begun: HashMap::new(),
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
                let arguments = self.begun.remove(&(within, id.clone()));
                let details = audited(AuditedCall {
                    way: Map::new(),
                    call: id,
                    arguments: arguments.unwrap_or_default(),
                    policy: &self.policy,
                    outcome: match outcome {
                        ToolOutcome::Output(value) => Ok(value),
                        ToolOutcome::Error(failure) => Err(failure),
                    },
                    duration_us: usage.duration_us,
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
        let kept = kept_arguments(&self.redaction, arguments);
        self.begun.insert((within, call.to_owned()), kept);
    }
}
