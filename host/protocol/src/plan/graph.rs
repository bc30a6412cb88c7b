//! A plan in order.

use super::flow::{Exists, Flow, MissingReference};
use super::order;
use super::place::PlanPlace;
use super::step::Step;
use super::text::printable;
use super::{MAX_STEPS, draw, outline};
use crate::reference::Path;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use thiserror::Error;

/// Maximum hops of a cycle that are written out.
const MAX_SHOWN_HOPS: usize = 12;

/// Steps, what passes between them, and their order. There is no cycle in it.
#[derive(Debug)]
pub struct Graph {
    steps: Vec<Step>,
    flow: Flow,
    layers: Vec<Vec<usize>>,
}

/// Data that passes from one step to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge<'a> {
    pub from: usize,
    pub to: usize,
    /// Of the places written and read, the one inside the other.
    pub path: &'a Path,
    /// JSON pointer of the reference in the reader's call.
    pub pointer: &'a str,
    /// The reader has another way: `†a || †b`.
    pub is_alternative: bool,
    /// The reader does not wait for it, because the writer needs the reader first.
    pub is_late: bool,
}

/// Why steps have no order.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GraphError {
    #[error("the plan has {count} steps; {MAX_STEPS} are the most, so split it")]
    TooManySteps { count: usize },
    #[error(
        "{place}: too many steps write to {path} for all that read it; let one step gather what they write, or split the plan"
    )]
    TooManyLinks { place: PlanPlace, path: Path },
    #[error(
        "the plan has a cycle, so none of its steps can be the first: {0}; let one of them read something that is there already, or write to another place"
    )]
    Cycle(Cycle),
}

/// Steps of which each needs the one before, and the first the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cycle {
    pub hops: Vec<CycleStep>,
}

/// A step of a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CycleStep {
    pub place: PlanPlace,
    pub tool: String,
    /// What it writes and the next one reads.
    pub path: Path,
    /// Where the next one reads it.
    pub read_at: PlanPlace,
}

/// Warnings about a plan that can run, but perhaps not as intended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// An alternative that can never be there in time.
    Late {
        place: PlanPlace,
        path: Path,
        writer: PlanPlace,
    },
}

impl Graph {
    /// The order of steps of whose data nothing is known.
    ///
    /// # Errors
    /// As [`Graph::over`].
    pub fn new(steps: Vec<Step>) -> Result<Self, GraphError> {
        Self::over(steps, |_, _| false)
    }

    /// The order of steps over data. `exists` says whether the data of an instance, or of everybody, holds a path: a step
    /// reads this value, and not one that a later step writes.
    ///
    /// # Errors
    /// A cycle, or bounds that are exceeded.
    pub fn over(
        steps: Vec<Step>,
        exists: impl Fn(&Path, Option<&str>) -> bool,
    ) -> Result<Self, GraphError> {
        Self::of(steps, Some(&exists))
    }

    /// The order of steps by what they read alone, each after all that write it: that of runs whose records have the
    /// format 3.
    ///
    /// # Errors
    /// As [`Graph::over`].
    pub fn by_reads(steps: Vec<Step>) -> Result<Self, GraphError> {
        Self::of(steps, None)
    }

    fn of(steps: Vec<Step>, exists: Option<Exists<'_>>) -> Result<Self, GraphError> {
        if steps.len() > MAX_STEPS {
            return Err(GraphError::TooManySteps { count: steps.len() });
        }
        let mut flow = Flow::new(&steps, exists)?;
        match order::layers(&mut flow) {
            Ok(layers) => Ok(Self {
                steps,
                flow,
                layers,
            }),
            Err(links) => Err(GraphError::Cycle(Cycle::of(&links, &flow, &steps))),
        }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Steps that can run at the same time, in order. Every edge that is not late leads to a later
    /// layer, and a step that writes a place is in a later layer than the steps before it that read or write it.
    pub fn layers(&self) -> &[Vec<usize>] {
        &self.layers
    }

    /// The steps in an order in which each comes after what it needs.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        self.layers.iter().flatten().copied()
    }

    /// The number of layers.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// The most steps in one layer.
    pub fn width(&self) -> usize {
        self.layers.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// What passes between steps, by reader.
    pub fn edges(&self) -> impl Iterator<Item = Edge<'_>> {
        self.flow.links.iter().map(|link| {
            let need = &self.flow.needs[self.flow.ways[link.way].need];
            Edge {
                from: link.writer,
                to: need.step,
                path: self.flow.passed(link, &self.steps),
                pointer: &self.steps[need.step].reads[need.read].pointer,
                is_alternative: self.flow.is_alternative(link.way),
                is_late: link.is_late,
            }
        })
    }

    /// References that neither the data nor any step provides. `exists` says whether the data of an
    /// instance, or of everybody, holds a path.
    pub fn missing(&self, exists: impl Fn(&Path, Option<&str>) -> bool) -> Vec<MissingReference> {
        self.flow.missing(&self.steps, exists)
    }

    /// Everything about the order that its author may not have meant.
    pub fn warnings(&self) -> Vec<Warning> {
        let late = self.edges().filter(|edge| edge.is_late).map(|edge| {
            let place = PlanPlace::new(edge.to, edge.pointer);
            let (path, writer) = (edge.path.clone(), PlanPlace::step(edge.from));
            Warning::Late {
                place,
                path,
                writer,
            }
        });
        late.collect()
    }

    /// The graph in Mermaid's language.
    pub fn mermaid(&self) -> String {
        draw::mermaid(&self.steps, &self.flow)
    }

    /// The graph in Graphviz's language.
    pub fn dot(&self) -> String {
        draw::dot(&self.steps, &self.flow)
    }

    /// The graph for a terminal, layer by layer.
    pub fn outline(&self) -> String {
        outline::outline(self, &self.flow)
    }
}

impl Cycle {
    fn of(links: &[usize], flow: &Flow, steps: &[Step]) -> Self {
        let hops = links.iter().map(|&index| {
            let link = &flow.links[index];
            let need = &flow.needs[flow.ways[link.way].need];
            let pointer = &steps[need.step].reads[need.read].pointer;
            CycleStep {
                place: PlanPlace::step(link.writer),
                tool: steps[link.writer].tool.clone(),
                path: flow.passed(link, steps).clone(),
                read_at: PlanPlace::new(need.step, &**pointer),
            }
        });
        Self {
            hops: hops.collect(),
        }
    }
}

impl Display for Cycle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tool = |hop: &CycleStep| printable(&hop.tool, 64);
        for hop in self.hops.iter().take(MAX_SHOWN_HOPS) {
            write!(f, "{} → {} → ", tool(hop), hop.path)?;
        }
        if self.hops.len() > MAX_SHOWN_HOPS {
            write!(f, "{} more steps → ", self.hops.len() - MAX_SHOWN_HOPS)?;
        }
        if let Some(first) = self.hops.first() {
            write!(f, "{}", tool(first))?;
        }
        for (index, hop) in self.hops.iter().take(MAX_SHOWN_HOPS).enumerate() {
            let before = if index == 0 { " (" } else { ", " };
            write!(f, "{before}{}", hop.place)?;
        }
        f.write_str(if self.hops.len() > MAX_SHOWN_HOPS {
            ", …)"
        } else {
            ")"
        })
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self::Late {
            place,
            path,
            writer,
        } = self;
        write!(
            f,
            "{place} does not wait for {path}: {writer} writes it only later, because it needs this step first"
        )
    }
}
