//! The tools of a run: what runs each, which of them the model is shown, and the checks of their calls.
//!
//! Where there are too many to show them all, the model is shown some, and finds the others with
//! `find_tools`; it reads results that were cut with `read_result` (docs/protocol.md, 7.11). These two are the
//! loop's own: the machine answers them, unless the run has tools of these names.

use crate::calls::CallChecks;
use crate::context::{Toolbook, stored, toolbook};
use serde_json::Value;
use std::sync::Arc;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::error::RunError;
use toolhold_protocol::tool::{Annotations, Execution, Tool};

/// The tools of one run.
#[derive(Debug)]
pub(super) struct ToolTable {
    bound: Vec<Bound>,
    /// The same, as the model is shown them.
    offered: Vec<Tool>,
    /// The same, as calls carry them.
    schemas: Vec<Arc<Value>>,
    pub(super) checks: CallChecks,
    /// The tools that are shown, in the order in which they came to be; all of them if absent.
    shown: Option<Vec<Tool>>,
    book: Toolbook,
}

impl ToolTable {
    /// # Errors
    /// A schema that is none, or two tools of one name.
    pub(super) fn new(bound: Vec<Bound>) -> Result<Self, RunError> {
        let offered: Vec<Tool> = bound.iter().map(|bound| bound.tool.clone()).collect();
        Ok(Self {
            checks: CallChecks::new(&offered)?,
            schemas: offered.iter().map(|tool| Arc::new(tool.schema())).collect(),
            bound,
            offered,
            shown: None,
            book: Toolbook::default(),
        })
    }

    /// Settles which of the tools are shown: all, if there are at most `max` and `fits` says so of the bytes
    /// that they take; otherwise first those that `task` speaks of, as many as fit, and the tool that finds
    /// the others.
    pub(super) fn choose(&mut self, task: &str, max: usize, fits: impl Fn(usize) -> bool) {
        let fits = |tools: &[&Tool]| {
            tools.len() <= max.max(1) && fits(tools.iter().map(|tool| size(tool)).sum())
        };
        let all: Vec<&Tool> = self.offered.iter().collect();
        if fits(&all) || self.find(toolbook::FIND_TOOLS).is_some() {
            return;
        }
        let book = Toolbook::new(&self.offered);
        let found = book.find(task);
        let spoken_of = found
            .iter()
            .filter_map(|name| self.offered.iter().find(|tool| tool.name == *name));
        let others = self
            .offered
            .iter()
            .filter(|tool| !found.contains(&tool.name.as_str()));
        let mut shown: Vec<&Tool> = Vec::new();
        for tool in spoken_of.chain(others) {
            shown.push(tool);
            if !fits(&shown) {
                shown.pop();
                break;
            }
        }
        let mut shown: Vec<Tool> = shown.into_iter().cloned().collect();
        shown.push(find_tools(self.offered.len()));
        self.shown = Some(shown);
        self.book = book;
    }

    pub(super) fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// Every tool of the run, whether it is shown or not.
    pub(super) fn offered(&self) -> &[Tool] {
        &self.offered
    }

    pub(super) fn find(&self, name: &str) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.tool.name == name)
    }

    /// A tool of the run as its calls are told of it.
    pub(super) fn schema(&self, name: &str) -> Arc<Value> {
        let mut schemas = self.offered.iter().zip(&self.schemas);
        let own = schemas.find(|(tool, _)| tool.name == name);
        own.map(|(_, schema)| schema.clone()).unwrap_or_default()
    }

    /// The tools that a reply may call, as they are shown.
    pub(super) fn shown(&self) -> &[Tool] {
        self.shown.as_deref().unwrap_or(&self.offered)
    }

    /// The one tool that a candidate of the fallback is asked to call; nothing if there is no such tool.
    pub(super) fn only(&self, name: &str) -> Option<&[Tool]> {
        let at = self.offered.iter().position(|tool| tool.name == name)?;
        self.offered.get(at..=at)
    }

    /// Whether a tool is one of the loop's own, and is shown.
    pub(super) fn is_own(&self, tool: &str) -> bool {
        [stored::READ_RESULT, toolbook::FIND_TOOLS].contains(&tool)
            && self.find(tool).is_none()
            && self.shown().iter().any(|own| own.name == tool)
    }

    /// Whether a tool is the loop's own `find_tools`, which gives definitions of tools.
    pub(super) fn finds(&self, tool: &str) -> bool {
        tool == toolbook::FIND_TOOLS && self.is_own(tool)
    }

    /// Whether results can be read with the loop's own `read_result`.
    pub(super) fn can_read_results(&self) -> bool {
        self.find(stored::READ_RESULT).is_none()
    }

    /// Answers a call of `find_tools`. What it finds is shown from now on.
    pub(super) fn answer_find(&mut self, arguments: &Value) -> Value {
        let (answer, found) = self.book.answer(arguments, &self.offered);
        let found = found
            .iter()
            .filter_map(|name| self.offered.iter().find(|tool| tool.name == *name));
        for tool in found {
            show(self.shown.as_mut(), tool);
        }
        answer
    }

    /// From now on `read_result` is shown.
    pub(super) fn offer_reading(&mut self) {
        let shown = self.shown.get_or_insert_with(|| self.offered.clone());
        show(Some(shown), &read_result());
    }
}

/// Shows a tool behind the others, so that what was sent before stays a prefix.
fn show(shown: Option<&mut Vec<Tool>>, tool: &Tool) {
    if let Some(shown) = shown
        && !shown.iter().any(|known| known.name == tool.name)
    {
        shown.push(tool.clone());
    }
}

fn size(tool: &Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
}

fn read_result() -> Tool {
    own(
        stored::READ_RESULT,
        "Reads a result that was cut or left out, by its key.".into(),
        stored::parameters(),
    )
}

fn find_tools(all: usize) -> Tool {
    own(
        toolbook::FIND_TOOLS,
        format!(
            "There are {all} tools, and only some are shown here. Finds those that do what you need; call it before you \
             say that something cannot be done."
        ),
        toolbook::parameters(),
    )
}

fn own(name: &str, description: String, parameters: Value) -> Tool {
    Tool {
        description,
        parameters,
        execution: Execution::Activity(name.into()),
        annotations: Annotations {
            read_only: true,
            idempotent: true,
            ..Annotations::default()
        },
        ..Tool::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::bound::Runner;

    fn tools(described: &[(&str, &str)]) -> ToolTable {
        let bound = described.iter().map(|(name, description)| Bound {
            tool: Tool {
                description: (*description).into(),
                ..Tool::new(*name)
            },
            runner: Runner::Activity((*name).into()),
        });
        ToolTable::new(bound.collect()).unwrap()
    }

    fn names(tools: &ToolTable) -> Vec<&str> {
        let shown = tools.shown().iter();
        shown.map(|tool| tool.name.as_str()).collect()
    }

    const THREE: [(&str, &str); 3] = [
        ("files.read", "Reads a file."),
        ("weather.now", "The weather in a city."),
        ("mail.send", "Sends an e-mail."),
    ];

    #[test]
    fn all_are_shown_that_fit() {
        let mut all = tools(&THREE);
        all.choose("mail", 3, |_| true);
        assert_eq!(names(&all), ["files.read", "weather.now", "mail.send"]);
        assert!(!all.is_own(toolbook::FIND_TOOLS));
    }

    #[test]
    fn the_task_says_which_are_shown_first_and_the_others_are_found() {
        let mut few = tools(&THREE);
        few.choose("Send a mail about the weather", 2, |_| true);
        assert_eq!(names(&few).len(), 3);
        assert!(!names(&few).contains(&"files.read"), "{:?}", names(&few));
        assert!(few.is_own(toolbook::FIND_TOOLS));
        for _ in 0..2 {
            let answer = few.answer_find(&json!({"query": "read a file"}));
            assert_eq!(answer["found"][0]["tool"], "files.read");
            assert_eq!(names(&few).last(), Some(&"files.read"), "once, at the end");
            assert_eq!(names(&few).len(), 4);
        }
        let mut little = tools(&THREE);
        little.choose("mail", 64, |bytes| bytes < 80);
        assert_eq!(names(&little), ["mail.send", toolbook::FIND_TOOLS]);
    }

    #[test]
    fn a_tool_of_the_run_takes_the_place_of_the_loop_s_own() {
        let mut tools = tools(&[(toolbook::FIND_TOOLS, "."), (stored::READ_RESULT, ".")]);
        tools.choose("", 1, |_| true);
        assert_eq!(names(&tools).len(), 2);
        assert!(!tools.is_own(toolbook::FIND_TOOLS) && !tools.is_own(stored::READ_RESULT));
        assert!(!tools.can_read_results());
    }

    #[test]
    fn reading_results_is_offered_once() {
        let mut tools = tools(&THREE);
        assert!(tools.can_read_results() && !tools.is_own(stored::READ_RESULT));
        tools.offer_reading();
        tools.offer_reading();
        assert!(tools.is_own(stored::READ_RESULT));
        assert_eq!(names(&tools).len(), 4);
        let only = tools.only("mail.send").unwrap();
        assert_eq!(only[0].name, "mail.send");
        assert!(tools.only("none").is_none());
        assert_eq!(tools.find("mail.send").unwrap().called(), "mail.send");
        assert_eq!(tools.schema("none").as_ref(), &Value::Null);
    }
}
