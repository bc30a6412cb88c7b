//! Calls as one line each: printed when the call has ended, because calls run at the same time.

use super::words::{beginning, cut};
use crate::terminal::style::{bad, bold, dim, good, line};
use serde_json::Value;
use std::collections::BTreeMap;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::reference::Path;
use toolhold_protocol::solution::Call;

/// Calls that have begun and not ended, by id. The run bounds their number.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(BTreeMap<String, OpenCall>);

#[derive(Debug)]
struct OpenCall {
    /// The tool, its instance and its arguments.
    text: String,
    /// Why the model makes it.
    reason: String,
    /// Whether the screen says that it runs.
    is_told: bool,
}

impl OpenCalls {
    pub fn begin(&mut self, call: &Call, filled: Option<&Value>) {
        let instance = call.instance.as_deref();
        let instance = instance.map_or(String::new(), |it| format!(" for {}", line(it)));
        let arguments = line(&filled.unwrap_or(&call.arguments).to_string());
        let reason = call.reason.as_deref();
        let open = OpenCall {
            text: format!(
                "{}{instance} {}",
                bold(&line(&call.tool)),
                beginning(&arguments)
            ),
            reason: reason.map_or(String::new(), |it| dim(&format!("  {}", line(it)))),
            is_told: false,
        };
        self.0.insert(call.id.clone(), open);
    }

    /// The line of an ended call.
    pub fn end(
        &mut self,
        id: &str,
        tool: &str,
        outcome: &ToolOutcome,
        written: &[Path],
        took: &str,
    ) -> String {
        let open = self.0.remove(id);
        let (call, reason) = open.map_or_else(
            || (bold(&line(tool)), String::new()),
            |open| (open.text, open.reason),
        );
        let places: Vec<_> = written.iter().map(|path| line(&path.to_string())).collect();
        let place = match places.as_slice() {
            [] => String::new(),
            places => format!(" → {}", places.join(", ")),
        };
        let took = match took {
            "" => String::new(),
            took => dim(&format!("  {took}")),
        };
        let (mark, result) = match outcome {
            ToolOutcome::Output(output) => (
                good("→"),
                format!("= {}", beginning(&line(&output.to_string()))),
            ),
            // What went wrong is worth more room than a result.
            ToolOutcome::Error(failure) => (
                bad("✗"),
                cut(&line(&format!("{}: {}", failure.kind, failure.message))),
            ),
        };
        format!("{mark} {call} {result}{place}{took}{reason}")
    }

    /// Lines about calls that run and were not told of yet.
    pub fn slow(&mut self) -> Vec<String> {
        let quiet = self.0.values_mut().filter(|call| !call.is_told);
        quiet
            .map(|call| {
                call.is_told = true;
                format!("… {} runs", call.text)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_one_line_and_a_slow_one_is_told_of_once() {
        let call = Call {
            id: "1".into(),
            tool: "t.a".into(),
            arguments: json!({"text": "x".repeat(1_000)}),
            ..Call::default()
        };
        let mut calls = OpenCalls::default();
        calls.begin(&call, None);
        assert_eq!(calls.slow().len(), 1);
        assert_eq!(calls.slow().len(), 0, "it is not told of again");
        let line = calls.end(
            "1",
            "t.a",
            &ToolOutcome::Output(json!("a\nb")),
            &[],
            "1.5 ms",
        );
        assert!(
            line.contains("t.a {\"text\":\"xxx") && line.contains("…"),
            "{line}"
        );
        assert!(line.ends_with("= \"a\\nb\"  1.5 ms"), "{line}");
        assert!(!line.contains('\n') && line.chars().count() < 500, "{line}");
        assert!(calls.slow().is_empty(), "nothing is kept of it");
    }
}
