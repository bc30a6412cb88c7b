//! Ends a run with calls of its client's tools, and tells the client which calls the run has made. A client without a
//! session sends that text back with its results, so that the next run knows these calls.

use super::{Effects, Machine};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::event::{EventKind, StopReason, ToolOutcome};

/// Calls of a run with tools of its client, but for those that are the client's to make. Of a run without such tools
/// there are none.
#[derive(Debug, Default)]
pub(super) struct OwnCalls {
    /// The client's tools.
    clients: BTreeSet<String>,
    calls: Vec<OwnCall>,
    /// The client's to make, in the step that is under way.
    theirs: Vec<Value>,
}

#[derive(Debug)]
struct OwnCall {
    id: String,
    tool: String,
    arguments: Value,
    /// Whether its tool was called.
    is_begun: bool,
    outcome: Option<ToolOutcome>,
}

impl OwnCalls {
    pub fn new(tools: &[Bound]) -> Self {
        let clients = tools.iter().filter(|bound| bound.runner == Runner::Client);
        Self {
            clients: clients.map(|bound| bound.tool.name.clone()).collect(),
            calls: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// True if the run has tools of its client.
    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Takes what happened. An event that was taken before changes nothing.
    fn take(&mut self, event: &EventKind) {
        if self.clients.is_empty() {
            return;
        }
        match event {
            EventKind::ToolStart { call, filled, .. } => {
                let arguments = filled.as_ref().unwrap_or(&call.arguments).clone();
                if self.clients.contains(&call.tool) {
                    let call = json!({"id": call.id, "tool": call.tool, "arguments": arguments});
                    if !self.theirs.contains(&call) {
                        self.theirs.push(call);
                    }
                    return;
                }
                if let Some(own) = self.of(&call.id, &call.tool) {
                    own.arguments = arguments;
                    own.is_begun = true;
                }
            }
            // A latent call has no begin.
            EventKind::Plan { calls, .. } => {
                for call in calls {
                    if let Some(own) = self.of(&call.id, &call.tool)
                        && own.arguments.is_null()
                    {
                        own.arguments.clone_from(&call.arguments);
                    }
                }
            }
            EventKind::ToolResult {
                id, tool, outcome, ..
            } => {
                if let Some(own) = self.of(id, tool) {
                    own.outcome = Some(outcome.clone());
                }
            }
            _ => {}
        }
    }

    fn of(&mut self, id: &str, tool: &str) -> Option<&mut OwnCall> {
        if self.clients.contains(tool) {
            return None;
        }
        let known = self.calls.iter().position(|own| own.id == id);
        let at = known.unwrap_or_else(|| {
            self.calls.push(OwnCall {
                id: id.to_owned(),
                tool: tool.to_owned(),
                arguments: Value::Null,
                is_begun: false,
                outcome: None,
            });
            self.calls.len() - 1
        });
        self.calls.get_mut(at)
    }

    /// A line for each call that was made, or may have been.
    fn text(&self) -> String {
        let mut text = String::new();
        for own in &self.calls {
            let (tool, arguments) = (&own.tool, &own.arguments);
            let _ = match &own.outcome {
                Some(ToolOutcome::Output(value)) => {
                    writeln!(text, "{tool} {arguments} returned {value}")
                }
                // A failure of a call that was not begun is a refusal.
                Some(ToolOutcome::Error(failure)) if own.is_begun => {
                    writeln!(text, "{tool} {arguments} failed: {}", failure.message)
                }
                None if own.is_begun => {
                    writeln!(text, "{tool} {arguments} was begun and has no result")
                }
                _ => Ok(()),
            };
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Whether shields that redacted the output of [`Machine::hand_over`] have left each call: its id, its tool and arguments.
pub(super) fn is_hand_over(output: &Value) -> bool {
    let is_call = |call: &Value| {
        call["id"].is_string() && call["tool"].is_string() && call["arguments"].is_object()
    };
    let calls = output["calls"].as_array();
    output["told"].is_string() && calls.is_some_and(|calls| calls.iter().all(is_call))
}

impl Machine {
    pub(super) fn note_own_calls(&mut self, effects: &Effects) {
        for event in &effects.events {
            self.own_calls.take(event);
        }
    }

    /// Ends the run with the calls of the client's tools. The shields on the output screen these calls and the text about
    /// the run's own calls; secrets that the run hides are placeholders in both.
    pub(super) fn hand_over(&mut self, effects: &mut Effects) {
        let reason = StopReason::ToolCalls;
        if self.request.policy.gates.is_none() {
            // The record is of a version whose `done` has none of it.
            return self.finish(reason, Value::Null, None, effects);
        }
        self.note_own_calls(effects);
        let told = json!({"told": self.own_calls.text(), "calls": self.own_calls.theirs});
        self.deliver(reason, told, None, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::tool::Tool;

    fn event(kind: Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn begun(id: &str, tool: &str) -> EventKind {
        event(
            json!({"event": "tool_start", "step": 1, "id": id, "tool": tool, "arguments": {"of": id}}),
        )
    }

    fn failed(id: &str, kind: &str) -> EventKind {
        event(
            json!({"event": "tool_result", "step": 1, "id": id, "tool": "m.write", "usage": {}, "by_host": true,
            "error": {"kind": kind, "class": "correctable", "message": kind}}),
        )
    }

    #[test]
    fn the_client_is_told_of_each_call_that_was_made_or_may_have_been() {
        let client = Bound {
            tool: Tool::new("weather").into(),
            runner: Runner::Client,
        };
        let done = event(
            json!({"event": "tool_result", "step": 1, "id": "done", "tool": "m.write", "usage": {},
            "output": {"n": 7}}),
        );
        let mut own = OwnCalls::new(std::slice::from_ref(&client));
        let events = [
            begun("done", "m.write"),
            begun("interrupted", "m.write"),
            begun("open", "m.write"),
            begun("theirs", "weather"),
            done,
            failed("interrupted", "interrupted"),
            failed("refused", "arguments"),
        ];
        // Taken twice, each counts once.
        for event in events.iter().chain(&events) {
            own.take(event);
        }
        assert_eq!(
            own.text(),
            "m.write {\"of\":\"done\"} returned {\"n\":7}\n\
             m.write {\"of\":\"interrupted\"} failed: interrupted\n\
             m.write {\"of\":\"open\"} was begun and has no result"
        );
        let theirs = json!({"id": "theirs", "tool": "weather", "arguments": {"of": "theirs"}});
        assert_eq!(own.theirs, [theirs]);
        let mut none = OwnCalls::new(&[]);
        none.take(&begun("done", "m.write"));
        assert_eq!(none.text(), "");
    }
}
