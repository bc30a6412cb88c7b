//! A call that the run's client demands: no reply answers before it was made (docs/protocol.md, 7.14).

use super::{Effects, Machine};
use std::sync::Arc;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, ToolOutcome};
use toolhold_protocol::tool::Tool;

impl Machine {
    /// Notes whether the demanded call was made. A call that was refused was not; one of a tool that failed was.
    pub(super) fn note_demanded_call(&mut self, effects: &Effects) {
        if !self.is_call_due {
            return;
        }
        let is_made = effects.events.iter().any(|event| match event {
            EventKind::ToolStart { call, .. } => self.meets_demand(&call.tool),
            // A latent call has no begin.
            EventKind::ToolResult {
                tool,
                outcome: ToolOutcome::Output(_),
                ..
            } => self.meets_demand(tool),
            _ => false,
        });
        self.is_call_due = !is_made;
    }

    /// Names of the tools of which the next reply has to call one, as they go out. Empty where it need not call any.
    pub(super) fn demanded(&self) -> Vec<String> {
        // A candidate for one call is asked for nothing else, and a plan and votes are not made of calls.
        if !self.is_call_due || self.forced().is_some() || self.is_lazy() || self.step.is_vote {
            return Vec::new();
        }
        let offered = self.offered().iter();
        let demanded = offered.filter(|tool| self.meets_demand(&tool.name));
        demanded.map(|tool| self.outward_name(tool)).collect()
    }

    /// Why a reply without a call is not used, where it had to call a tool.
    pub(super) fn lacks_demanded_call(&self) -> Option<String> {
        let demanded = match self.step.demanded.as_slice() {
            [] => return None,
            [only] => format!("has to call {only}"),
            several => format!("has to call a tool, such as {}", several.first()?),
        };
        Some(format!(
            "it calls no tool, and this reply {demanded}: the answer comes after that"
        ))
    }

    /// True if a call of this tool is one that the client waits for: of its own tools, if it brought some.
    fn meets_demand(&self, tool: &str) -> bool {
        let is_met = |runner: &Runner| !self.own_calls.has_clients() || *runner == Runner::Client;
        self.tools
            .find(tool)
            .is_some_and(|bound| is_met(&bound.runner))
    }

    /// The name by which the reply calls a tool.
    fn outward_name(&self, tool: &Arc<Tool>) -> String {
        match self.names() {
            Some(names) if self.contract() == Contract::Tools => {
                names.map().outward(&tool.name).into_owned()
            }
            _ => tool.name.clone(),
        }
    }
}
