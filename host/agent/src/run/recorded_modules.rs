//! The modules that a run worked with, as its record tells of them.

use std::collections::BTreeMap;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::event::EventKind;

/// The digests of a run's modules: of the last call that was made with the module, or else of the begin of the run. Takes the
/// events of the run one by one.
#[derive(Debug)]
pub struct RecordedModules {
    /// The toolbox's names of the modules, by the run's names of their tools.
    by_tool: BTreeMap<String, String>,
    digests: BTreeMap<String, String>,
}

impl RecordedModules {
    /// The digests at the begin of a run with these `tools`.
    pub fn at_the_begin(tools: &[Bound]) -> Self {
        let (mut by_tool, mut digests) = (BTreeMap::new(), BTreeMap::new());
        for bound in tools {
            let Runner::Module(own) = &bound.runner else {
                continue;
            };
            let Some((module, _)) = own.rsplit_once('.') else {
                continue;
            };
            by_tool.insert(bound.tool.name.clone(), module.to_owned());
            if let Some(digest) = &bound.tool.module_digest {
                digests.insert(module.to_owned(), digest.clone());
            }
        }
        Self { by_tool, digests }
    }

    /// Takes the next event of the run.
    pub fn take(&mut self, event: &EventKind) {
        let EventKind::ToolResult {
            tool,
            module: Some(digest),
            ..
        } = event
        else {
            return;
        };
        if let Some(module) = self.by_tool.get(tool) {
            self.digests.insert(module.clone(), digest.clone());
        }
    }

    /// Returns the digests in hex, by the toolbox's names of the modules. Modules whose digest is not recorded are left out,
    /// and so are those of nested calls and sub-agents.
    pub fn digests(self) -> BTreeMap<String, String> {
        self.digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::tool::Tool;

    fn bound(name: &str, own: &str, digest: Option<&str>) -> Bound {
        Bound {
            tool: Tool {
                module_digest: digest.map(str::to_owned),
                ..Tool::new(name)
            }
            .into(),
            runner: Runner::Module(own.into()),
        }
    }

    #[test]
    fn the_last_call_decides_which_module_a_run_worked_with() {
        let tools = [
            bound("calc.add", "calc.add", Some("aa")),
            bound("mine", "text@1.2.count", Some("bb")),
            bound("old.tool", "old.tool", None),
        ];
        let result = json!({
            "event": "tool_result", "step": 1, "id": "c1", "tool": "calc.add", "output": 3, "usage": {}, "module": "cc",
        });
        let event: EventKind = serde_json::from_value(result).unwrap();
        let events = [event];
        for (events, digest) in [(&events[..0], "aa"), (&events[..], "cc")] {
            let mut modules = RecordedModules::at_the_begin(&tools);
            for event in events {
                modules.take(event);
            }
            let expected = [("calc", digest), ("text@1.2", "bb")];
            let expected = expected.map(|(module, digest)| (module.to_owned(), digest.to_owned()));
            assert_eq!(modules.digests(), expected.into());
        }
    }
}
