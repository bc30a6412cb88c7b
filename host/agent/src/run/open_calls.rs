//! Calls that have begun in a run and have not ended. All events of a run pass here on their way into its record, so that
//! each begin in it has an end, from which the audit log and the answers follow: also where the run was cancelled or ran
//! out of time, and where a call ended before the calls that it had made. A call is made once its begin is recorded: the
//! end of any other says that it was not made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use toolhold_policy::ErrorClass;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::event::{EventKind, ToolOutcome};
use toolhold_protocol::failure::{NOT_MADE, ToolFailure, UNFINISHED};
use toolhold_protocol::result::ToolUsage;

/// The ids of the calls that something is inside of, the outermost first.
type Within = Vec<String>;

#[derive(Debug, Clone, Default)]
pub(in crate::run) struct OpenCalls {
    /// By the calls that each is inside of, and its own id.
    open: BTreeMap<Within, UnfinishedCall>,
    /// Calls whose end was written here. Their own `tool_result` may come later, and is dropped.
    ended: BTreeSet<Within>,
    /// The places of open calls whose begin is not recorded yet.
    unrecorded: BTreeSet<Within>,
    /// Tools whose calls the run's client makes.
    clients: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct UnfinishedCall {
    step: u32,
    tool: String,
    /// Absent if another process began it: how long it ran is not known.
    begun: Option<Instant>,
}

impl OpenCalls {
    /// The events to record for an event: first the ends of calls that end with it. Empty for the end of a call that
    /// [`OpenCalls`] has ended.
    pub fn with_ends(&mut self, event: EventKind) -> Vec<EventKind> {
        let Some(mut events) = self.take(&event) else {
            return Vec::new();
        };
        events.push(event);
        events
    }

    /// Notes that all events so far are recorded, so that their calls are made.
    pub fn recorded(&mut self) {
        self.unrecorded.clear();
    }

    /// Notes that another process has recorded all events so far, and has ended: how long its calls ran is not known.
    pub fn are_left(&mut self) {
        self.recorded();
        for call in self.open.values_mut() {
            call.begun = None;
        }
    }

    /// Returns the ends of calls that end with this event. `None` for the end of a call that [`OpenCalls`] has ended.
    pub fn take(&mut self, event: &EventKind) -> Option<Vec<EventKind>> {
        let mut within = Within::new();
        let mut what = event;
        while let EventKind::Sub { call, what: inner } = what {
            within.push(call.clone());
            what = inner;
        }
        let mut ends = Vec::new();
        match what {
            EventKind::Run { tools, .. } if within.is_empty() => {
                let clients = tools.iter().filter(|bound| bound.runner == Runner::Client);
                self.clients = clients.map(|bound| bound.tool.name.clone()).collect();
            }
            EventKind::ToolStart { step, call, .. } => {
                let is_clients = within.is_empty() && self.clients.contains(&call.tool);
                if !is_clients {
                    within.push(call.id.clone());
                    // After a resumption the calls of a call that is made again have the ids of those before.
                    self.end_inside(&within, &mut ends);
                    if let Some(open) = self.open.remove(&within) {
                        ends.push(self.end(within.clone(), open));
                    }
                    self.ended.retain(|place| !place.starts_with(&within));
                    let open = UnfinishedCall {
                        step: *step,
                        tool: call.tool.clone(),
                        begun: Some(Instant::now()),
                    };
                    self.unrecorded.insert(within.clone());
                    self.open.insert(within, open);
                }
            }
            EventKind::ToolResult { id, .. } => {
                within.push(id.clone());
                if self.ended.remove(&within) {
                    return None;
                }
                self.open.remove(&within);
                self.unrecorded.remove(&within);
                self.end_inside(&within, &mut ends);
            }
            EventKind::Done { .. } => self.end_inside(&within, &mut ends),
            _ => {}
        }
        Some(ends)
    }

    /// Ends the calls that are inside of this one, the innermost first.
    fn end_inside(&mut self, within: &[String], events: &mut Vec<EventKind>) {
        let inside = self.open.range(within.to_vec()..);
        let inside = inside.take_while(|(place, _)| place.starts_with(within));
        // The call that a sub-agent answers is not over with it.
        let inside = inside.filter(|(place, _)| place.len() > within.len());
        let mut inside: Vec<Within> = inside.map(|(place, _)| place.clone()).collect();
        inside.sort_by_key(|place| std::cmp::Reverse(place.len()));
        for place in inside {
            if let Some(open) = self.open.remove(&place) {
                self.ended.insert(place.clone());
                events.push(self.end(place, open));
            }
        }
    }

    /// The end of the call at this place.
    fn end(&mut self, mut place: Within, call: UnfinishedCall) -> EventKind {
        let is_made = !self.unrecorded.remove(&place);
        let (failure, took) = if is_made {
            let took = call.begun.map(|begun| begun.elapsed());
            (unfinished(), took.unwrap_or_default())
        } else {
            (not_made(), Duration::ZERO)
        };
        let end = EventKind::ToolResult {
            step: call.step,
            id: place.pop().unwrap_or_default(),
            tool: call.tool,
            outcome: ToolOutcome::Error(failure),
            written: Vec::new(),
            usage: ToolUsage {
                duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                ..ToolUsage::default()
            },
            printed: Vec::new(),
            module: None,
            by_host: !is_made,
            cached: None,
        };
        place
            .into_iter()
            .rev()
            .fold(end, |what, call| EventKind::Sub {
                call,
                what: Box::new(what),
            })
    }
}

/// Whether the event is the end of a call that [`OpenCalls`] wrote. No machine comes to it.
pub(in crate::run) fn is_written_end(event: &EventKind) -> bool {
    let EventKind::ToolResult {
        outcome: ToolOutcome::Error(failure),
        by_host,
        ..
    } = event
    else {
        return false;
    };
    let written = if *by_host { NOT_MADE } else { UNFINISHED };
    failure.kind == written
}

fn unfinished() -> ToolFailure {
    ToolFailure {
        kind: UNFINISHED.into(),
        class: ErrorClass::Correctable,
        message: "its run, or the call that made it, was over before it; it is not known whether it took effect".into(),
    }
}

fn not_made() -> ToolFailure {
    let message =
        "its run, or the call that made it, was cancelled or over before it began; it was not made";
    ToolFailure::correctable(NOT_MADE, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolhold_protocol::bound::Bound;
    use toolhold_protocol::tool::Tool;

    fn event(kind: Value) -> EventKind {
        serde_json::from_value(kind).unwrap()
    }

    fn inside(calls: &[&str], kind: Value) -> EventKind {
        let kind = calls.iter().rev().fold(
            kind,
            |what, call| json!({"event": "sub", "call": call, "what": what}),
        );
        event(kind)
    }

    fn begun(calls: &[&str], id: &str) -> EventKind {
        inside(
            calls,
            json!({"event": "tool_start", "step": 3, "id": id, "tool": "m.t", "arguments": {}}),
        )
    }

    fn ended(calls: &[&str], id: &str) -> EventKind {
        inside(
            calls,
            json!({"event": "tool_result", "step": 3, "id": id, "tool": "m.t", "usage": {}, "output": 1}),
        )
    }

    fn done(calls: &[&str]) -> EventKind {
        inside(
            calls,
            json!({"event": "done", "reason": "timeout", "output": null, "steps": 1, "calls": 1, "tokens": 1, "duration_ms": 1}),
        )
    }

    /// Recorded events, each in a write of its own: `+a.b` is a begin, `-a.b` an end, `!a.b` an end that was written, `a.done`
    /// another event.
    fn recorded(events: impl IntoIterator<Item = EventKind>) -> String {
        written(events.into_iter().map(|event| vec![event]))
    }

    /// Events that were recorded in several writes, as [`recorded`] gives them. `?a.b` is the end of a call that was not made.
    fn written(writes: impl IntoIterator<Item = Vec<EventKind>>) -> String {
        let mut open = OpenCalls::default();
        let mut events = Vec::new();
        for write in writes {
            for event in write {
                events.extend(open.with_ends(event));
            }
            open.recorded();
        }
        let short = events.into_iter().map(|event| {
            let (mut place, mut what) = (String::new(), &event);
            while let EventKind::Sub { call, what: inner } = what {
                place = format!("{place}{call}.");
                what = inner;
            }
            match what {
                EventKind::ToolStart { call, .. } => format!("+{place}{}", call.id),
                EventKind::ToolResult { id, by_host, .. } if is_written_end(what) => {
                    format!("{}{place}{id}", if *by_host { '?' } else { '!' })
                }
                EventKind::ToolResult { id, .. } => format!("-{place}{id}"),
                _ => format!("{place}done"),
            }
        });
        short.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_begin_has_one_end() {
        for (events, expected) in [
            (
                vec![begun(&[], "a"), ended(&[], "a"), done(&[])],
                "+a -a done",
            ),
            (
                vec![begun(&[], "a"), begun(&[], "b"), done(&[])],
                "+a +b !a !b done",
            ),
            // What the host refuses has no begin.
            (vec![ended(&[], "a"), done(&[])], "-a done"),
            (
                vec![
                    begun(&[], "a"),
                    begun(&["a"], "n"),
                    begun(&["a", "n"], "m"),
                    ended(&[], "a"),
                    done(&[]),
                ],
                "+a +a.n +a.n.m !a.n.m !a.n -a done",
            ),
            // The end that comes late is none.
            (
                vec![
                    begun(&[], "a"),
                    begun(&["a"], "n"),
                    ended(&[], "a"),
                    ended(&["a"], "n"),
                    done(&[]),
                ],
                "+a +a.n !a.n -a done",
            ),
            // A call that is made again makes its calls again.
            (
                vec![
                    begun(&[], "a"),
                    begun(&["a"], "n"),
                    begun(&["a"], "n"),
                    ended(&["a"], "n"),
                    ended(&[], "a"),
                    done(&[]),
                ],
                "+a +a.n !a.n +a.n -a.n -a done",
            ),
            // A sub-agent is over before the call that it answers.
            (
                vec![
                    begun(&[], "a"),
                    begun(&["a"], "n"),
                    done(&["a"]),
                    begun(&[], "ab"),
                    ended(&[], "a"),
                    done(&[]),
                ],
                "+a +a.n !a.n a.done +ab -a !ab done",
            ),
        ] {
            assert_eq!(recorded(events), expected);
        }
    }

    #[test]
    fn a_call_whose_run_ends_in_the_write_of_its_begin_was_not_made() {
        for (writes, expected) in [
            (
                vec![
                    vec![begun(&[], "a")],
                    vec![begun(&[], "b"), begun(&["a"], "n"), done(&[])],
                ],
                "+a +b +a.n ?a.n !a ?b done",
            ),
            // The call that made it was over before it.
            (
                vec![
                    vec![begun(&[], "a")],
                    vec![begun(&["a"], "n"), ended(&[], "a"), done(&[])],
                ],
                "+a +a.n ?a.n -a done",
            ),
            // Made again after a resumption.
            (
                vec![vec![begun(&[], "a")], vec![begun(&[], "a"), done(&[])]],
                "+a !a +a ?a done",
            ),
        ] {
            assert_eq!(written(writes), expected);
        }
    }

    #[test]
    fn calls_of_the_client_are_left_to_it() {
        let run = event(
            json!({"event": "run", "task": "t", "model": "m", "host": "1",
            "request": toolhold_protocol::settings::RunRequest::new(uuid::Uuid::nil(), "t"),
            "tools": [Bound { tool: Tool::new("m.t").into(), runner: Runner::Client }]}),
        );
        let mut open = OpenCalls::default();
        for event in [run, begun(&[], "a"), done(&[])] {
            assert_eq!(open.with_ends(event).len(), 1);
        }
    }
}
