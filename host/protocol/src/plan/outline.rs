//! The graph as text for a terminal.

use super::flow::{Flow, Need};
use super::graph::Graph;
use super::text::printable;
use crate::data::Method;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum writers named per reference.
const MAX_SHOWN_WRITERS: usize = 8;
const MAX_LINE_CHARS: usize = 200;

pub(super) fn outline(graph: &Graph, flow: &Flow) -> String {
    let mut text = format!(
        "{} in {}, at most {} at the same time\n",
        counted(graph.steps().len(), "step"),
        counted(graph.depth(), "layer"),
        graph.width()
    );
    for (number, layer) in graph.layers().iter().enumerate() {
        let _ = writeln!(text, "layer {}", number + 1);
        for &index in layer {
            step(&mut text, index, graph, flow);
        }
    }
    text
}

fn step(text: &mut String, index: usize, graph: &Graph, flow: &Flow) {
    let step = &graph.steps()[index];
    let _ = writeln!(text, "  {index} {}", step.title());
    let needs = &flow.needs[flow.steps[index].clone()];
    for (number, read) in step.reads.iter().enumerate() {
        let _ = writeln!(
            text,
            "      {} ← {} {}",
            printable(&read.pointer, MAX_LINE_CHARS),
            printable(&read.source.to_string(), MAX_LINE_CHARS),
            origin(needs.iter().filter(|need| need.read == number), flow),
        );
    }
    if let Some(target) = &step.writes {
        let how = match step.method {
            Method::Set => String::new(),
            other => format!(" ({other})"),
        };
        let _ = writeln!(
            text,
            "      → {}{how}",
            printable(&target.to_string(), MAX_LINE_CHARS)
        );
    }
}

/// Where a reference's value comes from.
fn origin<'a>(needs: impl Iterator<Item = &'a Need>, flow: &Flow) -> String {
    let (mut writers, mut is_given) = (BTreeSet::new(), false);
    for way in needs.flat_map(|need| &flow.ways[need.ways.clone()]) {
        is_given |= way.links.is_empty();
        let links = flow.links[way.links.clone()].iter();
        writers.extend(links.filter(|link| !link.is_late).map(|link| link.writer));
    }
    let more = writers.len().saturating_sub(MAX_SHOWN_WRITERS);
    let mut names: Vec<_> = writers
        .iter()
        .take(MAX_SHOWN_WRITERS)
        .map(ToString::to_string)
        .collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    if is_given {
        names.push("outside".into());
    }
    format!("from {}", names.join(", "))
}

fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
