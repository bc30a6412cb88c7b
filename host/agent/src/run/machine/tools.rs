//! The tools of a run: what runs each, which of them the model is shown, and the checks of their calls.
//!
//! Where there are too many to show them all, the model is shown some, and finds the others with
//! `find_tools`; it reads results that were cut with `read_result` (docs/protocol.md, 7.11). These two are the
//! loop's own: the machine answers them, unless the run has tools of these names.

use crate::calls::CallChecks;
use crate::catalogue::{CallableTool, ToolCatalogue};
use crate::context::{TokenMeter, Toolbook, stored, toolbook};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::tool::{Annotations, Execution, Tool};

/// The tools of one run.
#[derive(Debug)]
pub(super) struct ToolTable {
    catalogue: Arc<ToolCatalogue>,
    pub(super) checks: CallChecks,
    /// Absent once the choice is made, or where all tools are shown.
    limits: Option<ShowingLimits>,
    /// Chosen when a model is first asked. A plan that asks no model never chooses.
    chosen: OnceLock<ShownTools>,
    /// True where `read_result` is to be shown behind the tools that will be chosen.
    offers_reading: bool,
}

/// Everything that the choice of the shown tools depends on, as it is when the run begins: shields may change the
/// task before a model is asked.
#[derive(Debug, Clone)]
pub(super) struct ShowingLimits {
    /// The texts of the task, by which tools are ranked.
    pub task: String,
    /// Maximum number of tools; at least one is shown.
    pub max: usize,
    /// Maximum tokens of their definitions, as estimated from bytes. Absent: the window is not known.
    pub max_tokens: Option<u64>,
    /// True if the client's tools come before all others, because it waits for a call of one of them.
    pub clients_first: bool,
}

impl ShowingLimits {
    /// True if all tools are shown: the limits allow it, or one of them has the name of the tool that finds the others.
    fn allow_all(&self, catalogue: &ToolCatalogue) -> bool {
        let tools = catalogue.tools();
        let bytes = || tools.iter().map(|tool| tool.bytes()).sum();
        catalogue.find(toolbook::FIND_TOOLS).is_some() || self.allow(tools.len(), bytes())
    }

    fn allow(&self, tools: usize, bytes: usize) -> bool {
        let fits = |most: u64| TokenMeter::default().tokens(bytes) <= most;
        tools <= self.max.max(1) && self.max_tokens.is_none_or(fits)
    }
}

/// The tools that a model is shown.
#[derive(Debug, Default)]
struct ShownTools {
    /// In the order in which they came to be shown; all tools of the run if absent.
    some: Option<Vec<Arc<Tool>>>,
    /// Absent where all tools are shown.
    book: Option<Arc<Toolbook>>,
}

impl ShownTools {
    /// Chooses all tools if the limits allow it. Otherwise first those that the task speaks of, as many as the limits
    /// allow, and the tool that finds the others.
    fn choose(catalogue: &ToolCatalogue, limits: &ShowingLimits) -> Self {
        let tools = catalogue.tools();
        if limits.allow_all(catalogue) {
            return Self::default();
        }
        let book = catalogue.book();
        let found: Vec<usize> = book
            .find(&limits.task)
            .into_iter()
            .filter_map(|name| catalogue.place(name))
            .collect();
        let spoken_of: HashSet<usize> = found.iter().copied().collect();
        let others = (0..tools.len()).filter(|at| !spoken_of.contains(at));
        let mut ranked: Vec<&Arc<CallableTool>> = found
            .into_iter()
            .chain(others)
            .filter_map(|at| tools.get(at))
            .collect();
        if limits.clients_first {
            ranked.sort_by_key(|tool| tool.bound.runner != Runner::Client);
        }
        let mut some = Vec::new();
        let mut bytes = 0_usize;
        for tool in ranked {
            bytes += tool.bytes();
            if !limits.allow(some.len() + 1, bytes) {
                break;
            }
            some.push(tool.bound.tool.clone());
        }
        some.push(Arc::new(find_tools(tools.len())));
        Self {
            some: Some(some),
            book: Some(book.clone()),
        }
    }

    /// Shows `read_result`, too.
    fn offer_reading(&mut self, offered: &[Arc<Tool>]) {
        let shown = self.some.get_or_insert_with(|| offered.to_vec());
        show(Some(shown), &Arc::new(read_result()));
    }
}

impl ToolTable {
    /// All tools are shown. Arguments of calls are repaired by these rules.
    pub(super) fn under(rules: ReadingRules, catalogue: Arc<ToolCatalogue>) -> Self {
        Self {
            checks: CallChecks::under(rules, catalogue.clone()),
            catalogue,
            limits: None,
            chosen: OnceLock::new(),
            offers_reading: false,
        }
    }

    /// From now on no more tools are shown than the limits allow. To be called before a model is asked.
    pub(super) fn limit(&mut self, limits: ShowingLimits) {
        debug_assert!(
            self.chosen.get().is_none(),
            "the choice was made without limits"
        );
        // A run that shows all tools does not keep the texts of its task for the choice.
        self.limits = (!limits.allow_all(&self.catalogue)).then_some(limits);
    }

    /// Makes the choice, which keeps its limits no longer than until then.
    pub(super) fn choose(&mut self) {
        self.chosen();
        self.limits = None;
    }

    fn chosen(&self) -> &ShownTools {
        self.chosen.get_or_init(|| {
            let limits = self.limits.as_ref();
            let mut chosen = limits.map_or_else(ShownTools::default, |limits| {
                ShownTools::choose(&self.catalogue, limits)
            });
            if self.offers_reading {
                chosen.offer_reading(self.catalogue.offered());
            }
            chosen
        })
    }

    /// Every tool of the run with what is derived from it.
    pub(super) fn catalogue(&self) -> &Arc<ToolCatalogue> {
        &self.catalogue
    }

    pub(super) fn bound(&self) -> &BoundTools {
        self.catalogue.bound()
    }

    /// Every tool of the run, whether it is shown or not.
    pub(super) fn offered(&self) -> &[Arc<Tool>] {
        self.catalogue.offered()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Bound> {
        self.callable(name).map(|tool| &tool.bound)
    }

    pub(super) fn callable(&self, name: &str) -> Option<&CallableTool> {
        self.catalogue.find(name).map(AsRef::as_ref)
    }

    /// The tools that a reply may call, as they are shown.
    pub(super) fn shown(&self) -> &[Arc<Tool>] {
        self.chosen().some.as_deref().unwrap_or(self.offered())
    }

    /// The one tool that a candidate of the fallback is asked to call; nothing if there is no such tool.
    pub(super) fn only(&self, name: &str) -> Option<&[Arc<Tool>]> {
        let at = self.catalogue.place(name)?;
        self.offered().get(at..=at)
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
        self.choose();
        let Some(ShownTools {
            some,
            book: Some(book),
        }) = self.chosen.get_mut()
        else {
            return Value::Null;
        };
        let (answer, found) = book.answer(arguments, self.catalogue.offered());
        for tool in found.iter().filter_map(|name| self.catalogue.find(name)) {
            show(some.as_mut(), &tool.bound.tool);
        }
        answer
    }

    /// From now on `read_result` is shown.
    pub(super) fn offer_reading(&mut self) {
        self.offers_reading = true;
        if let Some(chosen) = self.chosen.get_mut() {
            chosen.offer_reading(self.catalogue.offered());
        }
    }
}

/// Shows a tool behind the others, so that what was sent before stays a prefix.
fn show(shown: Option<&mut Vec<Arc<Tool>>>, tool: &Arc<Tool>) {
    if let Some(shown) = shown
        && !shown.iter().any(|known| known.name == tool.name)
    {
        shown.push(tool.clone());
    }
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
    use proptest::prelude::*;
    use serde_json::json;

    fn tools(described: &[(&str, &str)]) -> ToolTable {
        let bound = described.iter().map(|(name, description)| Bound {
            tool: Arc::new(Tool {
                description: (*description).into(),
                ..Tool::new(*name)
            }),
            runner: Runner::Activity((*name).into()),
        });
        let catalogue = ToolCatalogue::new(bound.collect::<Vec<_>>()).unwrap();
        ToolTable::under(ReadingRules::Current, catalogue)
    }

    fn limits(task: &str, max: usize, max_tokens: Option<u64>) -> ShowingLimits {
        ShowingLimits {
            task: task.into(),
            max,
            max_tokens,
            clients_first: false,
        }
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
        all.limit(limits("mail", 3, None));
        assert_eq!(names(&all), ["files.read", "weather.now", "mail.send"]);
        assert!(!all.is_own(toolbook::FIND_TOOLS));
    }

    #[test]
    fn the_task_says_which_are_shown_first_and_the_others_are_found() {
        let mut few = tools(&THREE);
        few.limit(limits("Send a mail about the weather", 2, None));
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
        little.limit(limits("mail", 64, Some(26)));
        assert_eq!(names(&little), ["mail.send", toolbook::FIND_TOOLS]);
    }

    #[test]
    fn tools_of_a_client_that_demands_a_call_are_shown_before_others() {
        let tool = |name: &str, runner: Runner| Bound {
            tool: Arc::new(Tool::new(name)),
            runner,
        };
        let bound = vec![
            tool("mail.send", Runner::Activity("mail.send".into())),
            tool("mail.read", Runner::Activity("mail.read".into())),
            tool("final_result", Runner::Client),
        ];
        for (clients_first, shown) in [(false, "mail.send"), (true, "final_result")] {
            let catalogue = ToolCatalogue::new(bound.clone()).unwrap();
            let mut few = ToolTable::under(ReadingRules::Current, catalogue);
            few.limit(ShowingLimits {
                clients_first,
                ..limits("Send a mail", 1, None)
            });
            assert_eq!(names(&few), [shown, toolbook::FIND_TOOLS]);
        }
    }

    #[test]
    fn a_tool_of_the_run_takes_the_place_of_the_loop_s_own() {
        let mut tools = tools(&[(toolbook::FIND_TOOLS, "."), (stored::READ_RESULT, ".")]);
        tools.limit(limits("", 1, None));
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
        assert!(tools.callable("none").is_none());
    }

    #[test]
    fn nothing_is_chosen_before_a_model_is_asked() {
        let mut tools = tools(&THREE);
        tools.limit(limits("mail", 1, None));
        assert!(!tools.is_own("mail.send") && tools.find("mail.send").is_some());
        tools.offer_reading();
        assert!(tools.chosen.get().is_none());
        tools.choose();
        let expected = ["mail.send", toolbook::FIND_TOOLS, stored::READ_RESULT];
        assert_eq!(names(&tools), expected);
        assert!(tools.limits.is_none(), "the task is not kept");
        assert_eq!(names(&tools), expected);
    }

    /// The choice by its definition, which weighs all that would be shown for each tool anew.
    fn by_definition(offered: &[Arc<Tool>], limits: &ShowingLimits) -> Option<Vec<String>> {
        let size = |tool: &Tool| {
            tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
        };
        let fits =
            |tools: &[&Tool]| limits.allow(tools.len(), tools.iter().map(|tool| size(tool)).sum());
        let all: Vec<&Tool> = offered.iter().map(Arc::as_ref).collect();
        if fits(&all) || offered.iter().any(|tool| tool.name == toolbook::FIND_TOOLS) {
            return None;
        }
        let book = Toolbook::new(offered);
        let found = book.find(&limits.task);
        let spoken_of = found
            .iter()
            .filter_map(|name| offered.iter().find(|tool| tool.name == *name));
        let others = offered
            .iter()
            .filter(|tool| !found.contains(&tool.name.as_str()));
        let mut shown: Vec<&Tool> = Vec::new();
        for tool in spoken_of.chain(others).map(Arc::as_ref) {
            shown.push(tool);
            if !fits(&shown) {
                shown.pop();
                break;
            }
        }
        let mut names: Vec<String> = shown.iter().map(|tool| tool.name.clone()).collect();
        names.push(toolbook::FIND_TOOLS.into());
        Some(names)
    }

    proptest! {
        #[test]
        fn the_choice_in_one_pass_is_that_of_the_definition(
            described in prop::collection::vec("(mail|file|read|city|send|x){1,6}", 0..12),
            task in "((mail|file|read|city) ){0,4}",
            max in 0_usize..14,
            max_tokens in prop::option::of(0_u64..250),
            has_own_finder in prop::bool::weighted(0.1),
        ) {
            let mut offered: Vec<Arc<Tool>> = (0..)
                .zip(&described)
                .map(|(number, description): (usize, &String)| Tool {
                    description: description.clone(),
                    ..Tool::new(format!("m{number}.{}", description.get(..4).unwrap_or("t")))
                })
                .map(Arc::new)
                .collect();
            if has_own_finder {
                offered.push(Arc::new(Tool::new(toolbook::FIND_TOOLS)));
            }
            let limits = limits(&task, max, max_tokens);
            let bound = offered.iter().map(|tool| Bound {
                tool: tool.clone(),
                runner: Runner::Module(tool.name.clone()),
            });
            let catalogue = ToolCatalogue::new(bound.collect::<Vec<_>>()).unwrap();
            let chosen = ShownTools::choose(&catalogue, &limits).some.map(|some| {
                some.iter().map(|tool| tool.name.clone()).collect::<Vec<String>>()
            });
            prop_assert_eq!(chosen, by_definition(&offered, &limits));
        }
    }
}
