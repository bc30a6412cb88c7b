//! Calls with what they were given and what came of them: the view of `-v` and of records.

use super::words::{cut, shown, took};
use super::{EventPrinter, MAX_GUEST_LINES};
use crate::terminal::style::{bad, bold, dim, good, line};
use serde_json::Value;
use toolhold_protocol::event::{EventKind, ToolOutcome};
use toolhold_protocol::reference::Path;
use toolhold_protocol::result::is_denial;
use toolhold_protocol::solution::Call;

impl EventPrinter {
    pub(super) fn started(&mut self, call: &Call, filled: Option<&Value>) {
        let instance = call.instance.as_deref();
        let instance = instance.map_or(String::new(), |it| format!(" for {}", line(it)));
        let reason = call.reason.as_deref();
        let reason = reason.map_or(String::new(), |it| dim(&format!("  {}", line(it))));
        let tool = bold(&line(&call.tool));
        let arguments = shown(filled.unwrap_or(&call.arguments));
        self.line(&format!("  → {tool}{instance} {arguments}{reason}"));
    }

    /// Events of a sub-agent, or of a nested call, one level further in.
    pub(super) fn sub(&mut self, event: &EventKind) {
        match event {
            EventKind::ToolStart { call, filled, .. } if !self.has_detail => {
                self.calls.begin(call, filled.as_ref());
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                cached,
                ..
            } if !self.has_detail => {
                self.decided(id);
                let took = took(usage, true, cached.as_ref());
                let text = self.calls.end(id, tool, outcome, &[], &took);
                self.dim(&format!("    {text}"));
            }
            EventKind::ToolStart { call, filled, .. } => {
                let arguments = shown(filled.as_ref().unwrap_or(&call.arguments));
                self.dim(&format!("    → {} {arguments}", line(&call.tool)));
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                cached,
                ..
            } => {
                self.decided(id);
                let text = match outcome {
                    ToolOutcome::Output(output) => shown(output),
                    ToolOutcome::Error(failure) => line(&failure.message),
                };
                let took = took(usage, true, cached.as_ref());
                self.dim(format!("    ← {} {text}  {took}", line(tool)).trim_end());
            }
            EventKind::Approval { .. }
            | EventKind::RequestFetched(_)
            | EventKind::Shield(_)
            | EventKind::Job { .. }
            | EventKind::ToolRetry { .. } => {
                self.show_kind(event);
            }
            EventKind::Decided { id, .. } => self.decided(id),
            EventKind::Sub { what, .. } => self.sub(what),
            _ => {}
        }
    }

    pub(super) fn result(
        &mut self,
        tool: &str,
        outcome: &ToolOutcome,
        written: &[Path],
        cost: &str,
    ) {
        let places: Vec<_> = written.iter().map(|path| line(&path.to_string())).collect();
        let place = if places.is_empty() {
            String::new()
        } else {
            format!(" → {}", places.join(", "))
        };
        let (mark, text) = match outcome {
            ToolOutcome::Output(output) => (good("←"), shown(output)),
            ToolOutcome::Error(failure) => (
                bad("✗"),
                cut(&line(&format!("{}: {}", failure.kind, failure.message))),
            ),
        };
        self.line(format!("  {mark} {} {text}{place}  {}", line(tool), dim(cost)).trim_end());
    }

    pub(super) fn printed(&mut self, printed: &[String]) {
        let (denials, said): (Vec<_>, Vec<_>) = printed.iter().partition(|text| is_denial(text));
        // They are bounded where they are made, and a rule that is cut would allow another thing.
        for text in denials {
            self.dim(&format!("    {}", line(text)));
        }
        for text in said.iter().take(MAX_GUEST_LINES) {
            self.dim(&format!("    {}", cut(&line(text))));
        }
        if let more @ 1.. = said.len().saturating_sub(MAX_GUEST_LINES) {
            self.dim(&format!("    … {more} more lines"));
        }
    }
}
