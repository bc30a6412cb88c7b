//! The modules that a run worked with, as its record tells of them.

use std::collections::BTreeMap;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::event::{Event, EventKind};

/// Returns the digests of the run's modules in hex, by the toolbox's names of the modules: of the last call that was made with
/// the module, or else of the begin of the run. Modules whose digest is not recorded are left out, and so are those of nested
/// calls and sub-agents.
pub(super) fn recorded_modules(tools: &[Bound], events: &[Event]) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    let mut by_tool = BTreeMap::new();
    for bound in tools {
        let Runner::Module(own) = &bound.runner else {
            continue;
        };
        let Some((module, _)) = own.rsplit_once('.') else {
            continue;
        };
        by_tool.insert(bound.tool.name.as_str(), module);
        if let Some(digest) = &bound.tool.module_digest {
            modules.insert(module.to_owned(), digest.clone());
        }
    }
    for event in events {
        let EventKind::ToolResult {
            tool,
            module: Some(digest),
            ..
        } = &event.kind
        else {
            continue;
        };
        if let Some(module) = by_tool.get(tool.as_str()) {
            modules.insert((*module).to_owned(), digest.clone());
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::event::Seal;
    use toolhold_protocol::tool::Tool;
    use uuid::Uuid;

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
        let event = Event {
            run: Uuid::nil(),
            seq: 1,
            at_ms: 0,
            kind: serde_json::from_value(result).unwrap(),
            seal: Seal::default(),
            removed: None,
        };
        let events = [event];
        for (events, digest) in [(&events[..0], "aa"), (&events[..], "cc")] {
            let expected = [("calc", digest), ("text@1.2", "bb")];
            let expected = expected.map(|(module, digest)| (module.to_owned(), digest.to_owned()));
            assert_eq!(recorded_modules(&tools, events), expected.into());
        }
    }
}
