//! The content of a drawing, independent of its output language.

use super::flow::Flow;
use super::step::Step;
use super::text::printable;
use crate::reference::Path;
use std::collections::BTreeMap;

/// Maximum paths written on one arrow.
const MAX_SHOWN_PATHS: usize = 6;
/// Maximum characters of a label.
const MAX_LABEL_CHARS: usize = 160;

pub(super) struct Diagram {
    pub nodes: Vec<Node>,
    /// By nodes.
    pub arrows: Vec<Arrow>,
}

pub(super) struct Node {
    /// Safe in every language: a letter and digits.
    pub id: String,
    pub label: String,
    /// It comes from outside the plan.
    pub is_input: bool,
}

pub(super) struct Arrow {
    pub from: String,
    pub to: String,
    /// Absent where the node says it already.
    pub label: Option<String>,
    /// The reader can do without it.
    pub is_alternative: bool,
}

/// What passes from one node to another.
#[derive(Default)]
struct PassedPaths<'a> {
    paths: Vec<&'a Path>,
    is_needed: bool,
}

impl Diagram {
    pub fn of(steps: &[Step], flow: &Flow) -> Self {
        let mut inputs: BTreeMap<(&Path, Option<&str>), usize> = BTreeMap::new();
        let mut given: BTreeMap<((&Path, Option<&str>), usize), bool> = BTreeMap::new();
        let mut passed: BTreeMap<(usize, usize), PassedPaths<'_>> = BTreeMap::new();
        for (index, way) in flow.ways.iter().enumerate() {
            let reader = flow.needs[way.need].step;
            let is_needed = !flow.is_alternative(index);
            if way.links.is_empty() {
                let input = (flow.path(way, steps), steps[reader].instance.as_deref());
                inputs.entry(input).or_default();
                *given.entry((input, reader)).or_default() |= is_needed;
            }
            for link in &flow.links[way.links.clone()] {
                let passing = passed.entry((link.writer, reader)).or_default();
                passing.paths.push(flow.passed(link, steps));
                passing.is_needed |= is_needed;
            }
        }
        for (number, input) in inputs.values_mut().enumerate() {
            *input = number;
        }
        let step_nodes = steps.iter().enumerate().map(|(index, step)| Node {
            id: step_id(index),
            label: format!("{index} · {}", step.title()),
            is_input: false,
        });
        let input_nodes = inputs.iter().map(|((path, instance), number)| Node {
            id: format!("i{number}"),
            label: match instance {
                Some(instance) => format!("{} @{}", shown(path), printable(instance, 64)),
                None => shown(path),
            },
            is_input: true,
        });
        let from_inputs = given.iter().map(|((input, reader), is_needed)| Arrow {
            from: format!("i{}", inputs[input]),
            to: step_id(*reader),
            label: None,
            is_alternative: !is_needed,
        });
        let between = passed.into_iter().map(|((writer, reader), passing)| Arrow {
            from: step_id(writer),
            to: step_id(reader),
            label: Some(listed(passing.paths)),
            is_alternative: !passing.is_needed,
        });
        Self {
            nodes: step_nodes.chain(input_nodes).collect(),
            arrows: from_inputs.chain(between).collect(),
        }
    }
}

fn step_id(index: usize) -> String {
    format!("s{index}")
}

fn shown(path: &Path) -> String {
    printable(&path.to_string(), MAX_LABEL_CHARS)
}

fn listed(mut paths: Vec<&Path>) -> String {
    paths.sort();
    paths.dedup();
    let more = paths.len().saturating_sub(MAX_SHOWN_PATHS);
    let mut list: Vec<_> = paths.into_iter().take(MAX_SHOWN_PATHS).map(shown).collect();
    if more > 0 {
        list.push(format!("{more} more"));
    }
    list.join(", ")
}
