//! Places that several steps set although nothing orders the steps.

use super::flow::Flow;
use super::graph::Warning;
use super::place::PlanPlace;
use super::step::Step;
use crate::data::Method;
use crate::reference::Path;
use std::collections::BTreeMap;

/// A warning for every place that two steps set in any order.
pub(super) fn contested(steps: &[Step], flow: &Flow, layers: &[Vec<usize>]) -> Vec<Warning> {
    let order = || layers.iter().flatten().copied();
    let mut places: BTreeMap<(&Path, Option<&str>), Vec<usize>> = BTreeMap::new();
    for step in order().filter(|step| steps[*step].method == Method::Set) {
        for path in steps[step].written() {
            let setters = places
                .entry((path, steps[step].instance.as_deref()))
                .or_default();
            if setters.last() != Some(&step) {
                setters.push(step);
            }
        }
    }
    places.retain(|_, setters| setters.len() > 1);
    let before = StepAncestors::of(places.values().flatten().copied(), order(), flow);
    let mut warnings = Vec::new();
    for ((path, instance), setters) in places {
        // In a topological order, steps are in line exactly if each leads to the next.
        let mut rivals: Vec<_> = setters
            .windows(2)
            .filter(|pair| !before.is(pair[0], pair[1]))
            .flatten()
            .copied()
            .collect();
        rivals.sort_unstable();
        rivals.dedup();
        if !rivals.is_empty() {
            warnings.push(Warning::Contested {
                path: path.clone(),
                instance: instance.map(str::to_owned),
                steps: rivals.into_iter().map(PlanPlace::step).collect(),
            });
        }
    }
    warnings
}

/// Which of some marked steps come before which steps: a row of bits for each step, one for each
/// marked step.
struct StepAncestors {
    /// The bit of each marked step.
    bits: BTreeMap<usize, usize>,
    words: usize,
    rows: Vec<u64>,
}

impl StepAncestors {
    fn of(
        marked: impl Iterator<Item = usize>,
        order: impl Iterator<Item = usize>,
        flow: &Flow,
    ) -> Self {
        let mut bits: BTreeMap<_, _> = marked.map(|step| (step, 0)).collect();
        for (next, bit) in bits.values_mut().enumerate() {
            *bit = next;
        }
        let words = bits.len().div_ceil(64);
        let mut before = Self {
            bits,
            words,
            rows: vec![0; words * flow.steps.len()],
        };
        if words > 0 {
            for step in order {
                before.inherit(step, flow);
            }
        }
        before
    }

    /// Before a step are the steps that it waits for, and what is before them.
    fn inherit(&mut self, step: usize, flow: &Flow) {
        let mut row = vec![0; self.words];
        for link in &flow.links[flow.links_into(step)] {
            if link.is_late {
                continue;
            }
            let theirs = &self.rows[link.writer * self.words..][..self.words];
            for (mine, theirs) in row.iter_mut().zip(theirs) {
                *mine |= theirs;
            }
            if let Some(bit) = self.bits.get(&link.writer) {
                row[bit / 64] |= 1 << (bit % 64);
            }
        }
        self.rows[step * self.words..][..self.words].copy_from_slice(&row);
    }

    /// Whether the marked step `a` comes before `b`, whatever takes how long.
    fn is(&self, a: usize, b: usize) -> bool {
        self.bits
            .get(&a)
            .is_some_and(|bit| self.rows[b * self.words + bit / 64] >> (bit % 64) & 1 == 1)
    }
}
