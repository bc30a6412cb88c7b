//! The tools of a run with all that is derived from them: compiled checks, schemas, sizes, the index that searches them.
//!
//! It is made once when tools change, and shared by all runs that offer the same tools: a run of 250 tools would
//! otherwise print and compile their schemas anew. A toolbox that shares its tools behind [`Arc`]s is known by
//! the addresses of these ([`ToolCatalogue::shared`]), so there is nothing to be told when they change.

mod check;
mod compiled;
mod forms;
mod place;
mod tool;

pub use check::{SchemaError, ToolCheck};
pub use compiled::validator;
pub(crate) use forms::{FunctionForm, PlainText, ToolForms};
pub use tool::CallableTool;

use crate::context::{Toolbook, stored, toolbook};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use toolhold_policy::text;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::error::RunError;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::tool::Tool;

/// Lists that the process keeps for later runs. Agents and keys that may call different tools have a list each; the
/// lists share the tools that they have in common.
const MAX_CATALOGUES: usize = 16;
/// Most bytes that the tools of all these lists take, by an estimate.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// Bytes of definitions whose schemas are compiled within about 10 ms.
const BRIEF_BYTES: usize = 64 << 10;

/// The tools of a run, by name and in the order in which they are offered. Their names are unique.
#[derive(Debug, Default)]
pub struct ToolCatalogue {
    tools: Vec<Arc<CallableTool>>,
    bound: BoundTools,
    offered: Vec<Arc<Tool>>,
    /// Places in the lists.
    by_name: HashMap<String, usize>,
    /// The [price](ToolCheck::price) of the dearest tool.
    price: u64,
    book: OnceLock<Arc<Toolbook>>,
    names: OnceLock<Arc<ToolNames>>,
    /// Why the tools cannot be offered, if a model cannot be shown a name in their schemas: the tool and the reason.
    unseen: OnceLock<Option<(String, String)>>,
}

impl ToolCatalogue {
    /// The catalogue of these tools alone.
    ///
    /// # Errors
    /// A schema that is none, or two tools of one name.
    pub fn new(bound: impl Into<BoundTools>) -> Result<Arc<Self>, RunError> {
        Self::with_parts_of(&[], bound.into())
    }

    /// The catalogue of a toolbox's tools. It is kept for the next run where the toolbox keeps its tools, too, and lists
    /// the same ones again.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn shared(tools: Vec<Arc<Tool>>) -> Result<Arc<Self>, RunError> {
        // A list with a tool that nobody else holds would not be found again.
        let is_lasting = |tool: &&Arc<Tool>| Arc::strong_count(tool) > 1;
        let lasting: Vec<Arc<Tool>> = tools.iter().filter(is_lasting).cloned().collect();
        let is_whole = lasting.len() == tools.len();
        let kept = Self::kept_or_made(lasting)?;
        if is_whole {
            return Ok(kept);
        }
        Self::with_parts_of(&[kept], of_toolbox(tools))
    }

    fn kept_or_made(tools: Vec<Arc<Tool>>) -> Result<Arc<Self>, RunError> {
        if tools.is_empty() {
            return Ok(Arc::default());
        }
        if let Some(known) = kept().find(&tools) {
            return Ok(known);
        }
        // Without the lock: schemas are compiled.
        let others: Vec<Arc<Self>> = kept().lists.iter().cloned().collect();
        let made = Self::with_parts_of(&others, of_toolbox(tools))?;
        let Keeping { list, evicted } = kept().keep(made);
        // Without the lock, too: compiled schemas are freed.
        drop(evicted);
        Ok(list)
    }

    /// True if [`Self::shared`] would be brief: it has the list of these tools, or they are few.
    pub fn is_brief(tools: &[Arc<Tool>]) -> bool {
        let mut bytes = tools.iter().map(|tool| tool::definition_bytes(tool));
        kept().find(tools).is_some()
            || bytes
                .try_fold(0_usize, |all, own| {
                    (all + own <= BRIEF_BYTES).then_some(all + own)
                })
                .is_some()
    }

    /// Returns an estimate of the bytes that its tools take in memory.
    fn kept_bytes(&self) -> u64 {
        self.tools.iter().map(|tool| tool.kept_bytes()).sum()
    }

    /// The catalogue of these tools, some of which are those of this one.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn extended(self: &Arc<Self>, bound: &BoundTools) -> Result<Arc<Self>, RunError> {
        if self.bound.is_same(bound) {
            return Ok(self.clone());
        }
        Self::with_parts_of(std::slice::from_ref(self), bound.clone())
    }

    fn with_parts_of(others: &[Arc<Self>], bound: BoundTools) -> Result<Arc<Self>, RunError> {
        let mut by_name = HashMap::with_capacity(bound.len());
        for (at, own) in bound.iter().enumerate() {
            let name = &own.tool.name;
            if by_name.insert(name.clone(), at).is_some() {
                return Err(RunError::DuplicateTool { name: name.clone() });
            }
        }
        let mut tools = Vec::with_capacity(bound.len());
        for own in bound.iter() {
            let name = &own.tool.name;
            let known = others.iter().rev().find_map(|other| other.same(own));
            let tool = match known {
                Some(known) => known.clone(),
                None => Arc::new(CallableTool::of(own.clone()).map_err(|error| {
                    RunError::ToolSchema {
                        tool: name.clone(),
                        reason: error.reason,
                    }
                })?),
            };
            tools.push(tool);
        }
        let prices = tools.iter().map(|tool| tool.check.price());
        Ok(Arc::new(Self {
            price: prices.max().unwrap_or_default(),
            offered: bound.iter().map(|own| own.tool.clone()).collect(),
            tools,
            bound,
            by_name,
            book: OnceLock::new(),
            names: OnceLock::new(),
            unseen: OnceLock::new(),
        }))
    }

    /// Returns the tool if it is the same in memory.
    pub(crate) fn same(&self, bound: &Bound) -> Option<&Arc<CallableTool>> {
        let known = self.find(&bound.tool.name);
        known.filter(|known| known.shares(bound))
    }

    /// Returns the tools and who runs them, as a run's record has them. All runs that share the catalogue write one text.
    pub fn bound(&self) -> &BoundTools {
        &self.bound
    }

    /// Returns the tools without their runners.
    pub fn offered(&self) -> &[Arc<Tool>] {
        &self.offered
    }

    /// Returns the tools with what their calls need.
    pub fn tools(&self) -> &[Arc<CallableTool>] {
        &self.tools
    }

    /// Returns the tool of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Arc<CallableTool>> {
        self.tools.get(self.place(name)?)
    }

    /// Returns the forms that are kept of a tool, if it is this one in memory.
    pub(crate) fn forms(&self, tool: &Arc<Tool>) -> Option<&ToolForms> {
        let known = self.find(&tool.name)?;
        Arc::ptr_eq(&known.bound.tool, tool).then_some(&known.forms)
    }

    /// Returns the place of a tool in the lists.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the [price](ToolCheck::price) of the dearest tool.
    pub fn price(&self) -> u64 {
        self.price
    }

    /// Returns the index that searches the tools by their purpose.
    pub fn book(&self) -> &Arc<Toolbook> {
        let book = || Arc::new(Toolbook::new(&self.offered));
        self.book.get_or_init(book)
    }

    /// Returns the names under which the tools and their parameters go out, and come in.
    pub fn names(&self) -> &Arc<ToolNames> {
        // The loop's own tools stand beside them.
        let own = [stored::READ_RESULT, toolbook::FIND_TOOLS];
        let names = || Arc::new(ToolNames::new(&self.offered, &own));
        self.names.get_or_init(names)
    }

    /// Checks that a model can be shown the names in the tools' schemas.
    ///
    /// # Errors
    /// The first tool that has another name in its schemas, and which.
    pub fn check_names(&self) -> Result<(), RunError> {
        let unseen = self.unseen.get_or_init(|| {
            let mut tools = self.offered.iter();
            tools.find_map(|tool| Some((tool.name.clone(), unseen_name(tool)?)))
        });
        match unseen {
            None => Ok(()),
            Some((tool, reason)) => Err(RunError::Binding {
                tool: tool.clone(),
                reason: reason.clone(),
            }),
        }
    }
}

/// Returns the tools with the toolbox as their runner, under their own names.
fn of_toolbox(tools: Vec<Arc<Tool>>) -> BoundTools {
    let bound = tools.into_iter().map(|tool| Bound {
        runner: Runner::Module(tool.name.clone()),
        tool,
    });
    bound.collect()
}

/// Returns why a model cannot be shown a name in a schema of the tool; `None` if it can be shown all of them.
pub(crate) fn unseen_name(tool: &Tool) -> Option<String> {
    let schemas = [Some(&tool.parameters), tool.output.as_ref()];
    let mut schemas = schemas.into_iter().flatten();
    let unseen = schemas.find_map(|schema| text::check_names(schema).err())?;
    Some(format!("its schema cannot be shown to a model: {unseen}"))
}

fn kept() -> MutexGuard<'static, KeptCatalogues> {
    static KEPT: LazyLock<Mutex<KeptCatalogues>> = LazyLock::new(Mutex::default);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The catalogues that runs asked for last, the latest at the end.
#[derive(Debug, Default)]
struct KeptCatalogues {
    lists: VecDeque<Arc<ToolCatalogue>>,
}

impl KeptCatalogues {
    fn find(&mut self, tools: &[Arc<Tool>]) -> Option<Arc<ToolCatalogue>> {
        let is_same = |list: &Arc<ToolCatalogue>| {
            let mut pairs = list.offered.iter().zip(tools);
            list.offered.len() == tools.len() && pairs.all(|(own, other)| Arc::ptr_eq(own, other))
        };
        let at = self.lists.iter().rposition(is_same)?;
        let list = self.lists.remove(at)?;
        self.lists.push_back(list.clone());
        Some(list)
    }

    /// Keeps the list, unless it is too large or another caller has kept it meanwhile.
    fn keep(&mut self, list: Arc<ToolCatalogue>) -> Keeping {
        let mut evicted = Vec::new();
        if let Some(known) = self.find(&list.offered) {
            evicted.push(list);
            return Keeping {
                list: known,
                evicted,
            };
        }
        if list.kept_bytes() <= MAX_KEPT_BYTES {
            self.lists.push_back(list.clone());
            while self.lists.len() > MAX_CATALOGUES || self.bytes() > MAX_KEPT_BYTES {
                evicted.extend(self.lists.pop_front());
            }
        }
        Keeping { list, evicted }
    }

    /// The bytes of all tools, each counted once.
    fn bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        let tools = self.lists.iter().flat_map(|list| &list.tools);
        let distinct = tools.filter(|tool| seen.insert(Arc::as_ptr(tool)));
        distinct.map(|tool| tool.kept_bytes()).sum()
    }
}

/// A list that was to be kept, and the lists that go, to be dropped without the lock.
#[derive(Debug)]
struct Keeping {
    list: Arc<ToolCatalogue>,
    evicted: Vec<Arc<ToolCatalogue>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tool(name: &str) -> Arc<Tool> {
        Arc::new(Tool {
            // Schemas with patterns are compiled for each tool.
            parameters: json!({"type": "object", "properties": {"a": {"pattern": "^[a-z]+$"}}}),
            ..Tool::new(name)
        })
    }

    #[test]
    fn a_toolbox_that_keeps_its_tools_has_one_catalogue() {
        let tools = ["shelf.a", "shelf.b", "shelf.c"].map(tool).to_vec();
        let first = ToolCatalogue::shared(tools.clone()).unwrap();
        let again = ToolCatalogue::shared(tools.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        // Another agent's view has the same tools, but a list of its own.
        let view = ToolCatalogue::shared(tools[1..].to_vec()).unwrap();
        assert_eq!(view.offered().len(), 2);
        for tool in view.tools() {
            let name = &tool.bound.tool.name;
            assert!(Arc::ptr_eq(tool, first.find(name).unwrap()), "{name}");
        }
        // A module was replaced: its tool is another one, and the others are as they were.
        let mut changed = tools.clone();
        changed[0] = tool("shelf.a");
        let later = ToolCatalogue::shared(changed.clone()).unwrap();
        let is_shared = |name: &str| {
            let (one, other) = (first.find(name).unwrap(), later.find(name).unwrap());
            Arc::ptr_eq(one, other)
        };
        assert!(!is_shared("shelf.a") && is_shared("shelf.b"));
    }

    #[test]
    fn tools_that_nobody_else_holds_are_not_kept() {
        let lasting = tool("lone.b");
        let list = || ToolCatalogue::shared(vec![tool("lone.a"), lasting.clone()]).unwrap();
        let (first, again) = (list(), list());
        let is_kept = |name: &str| {
            let lists = kept().lists.clone();
            lists.iter().any(|kept| kept.find(name).is_some())
        };
        assert!(!is_kept("lone.a") && is_kept("lone.b"));
        let is_shared = |name: &str| {
            let (one, other) = (first.find(name).unwrap(), again.find(name).unwrap());
            Arc::ptr_eq(one, other)
        };
        assert!(!is_shared("lone.a") && is_shared("lone.b"));
    }

    #[test]
    fn kept_catalogues_are_bounded_and_the_latest_stay() {
        let mut kept = KeptCatalogues::default();
        let lists: Vec<Vec<Arc<Tool>>> = (0..2 * MAX_CATALOGUES)
            .map(|number| vec![tool(&format!("m.t{number}"))])
            .collect();
        for list in &lists {
            let bound: Vec<Bound> = list
                .iter()
                .map(|tool| Bound {
                    tool: tool.clone(),
                    runner: Runner::Module(tool.name.clone()),
                })
                .collect();
            kept.keep(ToolCatalogue::new(bound).unwrap());
            assert!(kept.find(&lists[0]).is_some(), "it was asked for");
        }
        assert_eq!(kept.lists.len(), MAX_CATALOGUES);
        assert!(kept.find(&lists[1]).is_none());
        assert!(kept.find(&lists[2 * MAX_CATALOGUES - 1]).is_some());
    }

    #[test]
    fn kept_catalogues_are_bounded_by_what_their_schemas_take() {
        let mut kept = KeptCatalogues::default();
        let dear = |number: usize| {
            let parameters = json!({"type": "object", "properties": {"a": {"pattern": format!("^[a-z]{{{number},2000}}$")}}});
            let tool = Arc::new(Tool {
                parameters,
                ..Tool::new(format!("dear{number}.t"))
            });
            ToolCatalogue::new(of_toolbox(vec![tool])).unwrap()
        };
        let one = dear(1).kept_bytes();
        assert!(one > MAX_KEPT_BYTES >> 12, "{one}");
        let many: Vec<Arc<Tool>> = (0..200)
            .map(|number| {
                let properties: serde_json::Map<String, Value> = (0..10)
                    .map(|own| (format!("p{own}"), json!({"description": "x".repeat(500)})))
                    .collect();
                Arc::new(Tool {
                    parameters: json!({"type": "object", "properties": properties}),
                    ..Tool::new(format!("large.t{number}"))
                })
            })
            .collect();
        let large = ToolCatalogue::new(of_toolbox(many)).unwrap();
        assert!(large.kept_bytes() > MAX_KEPT_BYTES);
        let small = kept.keep(dear(2)).list;
        // One that is too large is not kept, and makes nobody go.
        assert!(kept.keep(large).evicted.is_empty());
        assert!(kept.find(&small.offered).is_some() && kept.lists.len() == 1);
        // The list of another caller takes the place of an equal one.
        let again = ToolCatalogue::new(small.bound().clone()).unwrap();
        assert!(Arc::ptr_eq(&kept.keep(again).list, &small));
        assert_eq!(kept.bytes(), small.kept_bytes());
    }

    #[test]
    fn a_run_s_own_tools_stand_beside_those_of_the_toolbox() {
        let base = ToolCatalogue::shared(vec![tool("base.a"), tool("base.b")]).unwrap();
        let same = base.extended(&base.bound().clone()).unwrap();
        assert!(Arc::ptr_eq(&base, &same));
        let mut bound = base.bound().to_vec();
        bound[1] = Bound {
            tool: tool("base.b"),
            runner: Runner::Client,
        };
        bound.push(Bound {
            tool: tool("own"),
            runner: Runner::Client,
        });
        let run = base.extended(&bound.into()).unwrap();
        let names: Vec<&str> = run
            .offered()
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(names, ["base.a", "base.b", "own"]);
        let is_shared = |name: &str| base.same(&run.find(name).unwrap().bound).is_some();
        assert!(is_shared("base.a") && !is_shared("base.b") && !is_shared("own"));
        assert_eq!(run.place("own"), Some(2));
    }

    #[test]
    fn faults_of_tools_are_told_by_their_names() {
        let twice = ToolCatalogue::shared(vec![tool("m.a"), tool("m.a")]).unwrap_err();
        assert!(matches!(twice, RunError::DuplicateTool { name } if name == "m.a"));
        let none = Arc::new(Tool {
            parameters: json!({"type": 5}),
            ..Tool::new("m.none")
        });
        let none = ToolCatalogue::shared(vec![none]).unwrap_err();
        assert!(matches!(none, RunError::ToolSchema { tool, .. } if tool == "m.none"));
        let hidden = Arc::new(Tool {
            parameters: json!({"type": "object", "properties": {"a\nb": {}}}),
            ..Tool::new("m.hidden")
        });
        let list = ToolCatalogue::shared(vec![tool("m.a"), hidden]).unwrap();
        for _ in 0..2 {
            let error = list.check_names().unwrap_err();
            assert!(matches!(error, RunError::Binding { tool, .. } if tool == "m.hidden"));
        }
    }
}
