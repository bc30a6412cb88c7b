//! Reads what came of a run.

use serde_json::Value;
use toolhold_protocol::event::{Event, EventKind};

pub fn lines(events: &[Event]) -> String {
    let lines: Vec<_> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    lines.join("\n")
}

/// Events as JSON, and where each is.
pub fn json_of(event: &Event) -> Value {
    serde_json::to_value(event).expect("JSON")
}

/// The place of the first event of which this is true.
pub fn place(events: &[Event], is_it: impl Fn(&EventKind) -> bool) -> usize {
    events
        .iter()
        .position(|event| is_it(&event.kind))
        .unwrap_or_else(|| panic!("no such event:\n{}", lines(events)))
}

pub fn starts(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolStart { call, .. } => Some(call.tool.clone()),
            _ => None,
        })
        .collect()
}

/// The results: tool and output, or tool and the failure's kind, class and message.
pub fn results(events: &[Event]) -> Vec<(String, Value)> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolResult { tool, outcome, .. } => {
                Some((tool.clone(), serde_json::to_value(outcome).expect("JSON")))
            }
            _ => None,
        })
        .collect()
}

/// Reason and output of the end.
pub fn end(events: &[Event]) -> (String, Value) {
    let last = json_of(events.last().expect("events"));
    assert_eq!(last["event"], "done", "`done` is last: {last}");
    (
        last["reason"].as_str().unwrap_or_default().to_owned(),
        last["output"].clone(),
    )
}

/// As a journal would give them back.
pub fn kept(events: &[Event]) -> Vec<Event> {
    let kept = serde_json::to_string(events).expect("JSON");
    serde_json::from_str(&kept).expect("events")
}
