//! The data flow: every reference of every step, linked to the steps that write its place.

use super::graph::GraphError;
use super::hazards;
use super::place::PlanPlace;
use super::place_map::PlaceMap;
use super::step::Step;
use crate::reference::{Path, Source};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// Maximum pairs of a writer and a reader. Writers and readers of one place multiply, so the number
/// of steps alone does not bound the work.
pub(super) const MAX_LINKS: usize = 200_000;

/// Says whether the data of an instance, or of everybody, holds a path.
pub(super) type Exists<'a> = &'a dyn Fn(&Path, Option<&str>) -> bool;

/// The data flow, as lists that refer to each other by index.
#[derive(Debug)]
pub(super) struct Flow {
    /// The needs of each step.
    pub steps: Vec<Range<usize>>,
    pub needs: Vec<Need>,
    pub ways: Vec<Way>,
    /// By reader.
    pub links: Vec<Link>,
    /// Pairs of steps of which the second writes where the first reads or writes, so that it comes after it.
    pub orders: Vec<(usize, usize)>,
}

/// Something that a step waits for. It is met by any one of its ways.
#[derive(Debug)]
pub(super) struct Need {
    pub step: usize,
    /// Which of the step's reads.
    pub read: usize,
    pub ways: Range<usize>,
    /// True if neither the data nor an earlier step has it, so that the step comes after all later ones that write it.
    pub waits_for_later: bool,
}

/// One path that meets a need.
#[derive(Debug)]
pub(super) struct Way {
    pub need: usize,
    /// Which path of the read's source.
    pub path: usize,
    /// The steps that write there. None: it has to come from outside the plan.
    pub links: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub writer: usize,
    /// Which path of the writer's target.
    pub target: usize,
    pub way: usize,
    /// The reader does not wait for it, because the writer comes after the reader.
    pub is_late: bool,
}

/// A reference that neither the data nor any step provides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingReference {
    pub place: PlanPlace,
    pub tool: String,
    pub instance: Option<String>,
    /// Any one of them would do.
    pub paths: Vec<Path>,
}

/// References that neither the data nor any of `steps` provides, also where the steps have a cycle.
/// `exists` says whether the data of an instance, or of everybody, holds a path.
///
/// # Errors
/// The steps are beyond the bounds of a graph.
pub fn missing(
    steps: &[Step],
    exists: impl Fn(&Path, Option<&str>) -> bool,
) -> Result<Vec<MissingReference>, GraphError> {
    Ok(Flow::new(steps, Some(&exists))?.missing(steps, exists))
}

impl Flow {
    /// Links `steps` over data in which `exists` says which places hold values before they begin. Without it only links give an
    /// order, and each step waits for all that write what it reads.
    pub fn new(steps: &[Step], exists: Option<Exists<'_>>) -> Result<Self, GraphError> {
        let mut writers = StepWriters {
            earlier: Writers::default(),
            all: Writers::of(steps),
        };
        let mut flow = Self {
            steps: Vec::with_capacity(steps.len()),
            needs: Vec::new(),
            ways: Vec::new(),
            links: Vec::new(),
            orders: Vec::new(),
        };
        for (index, step) in steps.iter().enumerate() {
            let first = flow.needs.len();
            for (read, source) in step.reads.iter().map(|read| &read.source).enumerate() {
                let paths = 0..source.paths().len();
                match source {
                    Source::First(_) => flow.need(index, read, paths, steps, &writers, exists)?,
                    Source::All(_) => {
                        for path in paths {
                            let paths = path..path + 1;
                            flow.need(index, read, paths, steps, &writers, exists)?;
                        }
                    }
                }
            }
            flow.steps.push(first..flow.needs.len());
            writers.earlier.add(index, step);
        }
        if exists.is_some() {
            flow.orders = hazards::orders(steps, &flow)?;
        }
        Ok(flow)
    }

    fn need(
        &mut self,
        step: usize,
        read: usize,
        paths: Range<usize>,
        steps: &[Step],
        writers: &StepWriters<'_>,
        exists: Option<Exists<'_>>,
    ) -> Result<(), GraphError> {
        let (need, first_way) = (self.needs.len(), self.ways.len());
        let instance = steps[step].instance.as_deref();
        let places = &steps[step].reads[read].source.paths()[paths.clone()];
        // What there is, and what an earlier step writes, is not replaced by what later steps write. Only where there
        // is neither, the step waits for those.
        let waits_for_later = exists.is_none_or(|exists| {
            places.iter().all(|place| {
                let mut earlier = writers.earlier.of_place(place, instance);
                earlier.next().is_none() && !exists(place, instance)
            })
        });
        let writers = if waits_for_later {
            &writers.all
        } else {
            &writers.earlier
        };
        for path in paths {
            let (way, first_link) = (self.ways.len(), self.links.len());
            let place = &steps[step].reads[read].source.paths()[path];
            let mut found: Vec<_> = writers
                .of_place(place, instance)
                .take(MAX_LINKS + 1 - first_link)
                .collect();
            if first_link + found.len() > MAX_LINKS {
                return Err(GraphError::TooManyLinks {
                    place: PlanPlace::new(step, &*steps[step].reads[read].pointer),
                    path: place.clone(),
                });
            }
            // A step that writes several overlapping places passes the deepest on.
            let depth = |written: &TargetOfStep| {
                steps[written.step].written()[written.target].segments.len()
            };
            found.sort_by_key(|written| (written.step, std::cmp::Reverse(depth(written))));
            found.dedup_by_key(|written| written.step);
            self.links.extend(found.into_iter().map(|written| Link {
                writer: written.step,
                target: written.target,
                way,
                is_late: false,
            }));
            self.ways.push(Way {
                need,
                path,
                links: first_link..self.links.len(),
            });
        }
        self.needs.push(Need {
            step,
            read,
            ways: first_way..self.ways.len(),
            waits_for_later,
        });
        Ok(())
    }

    /// The links into `step`.
    pub fn links_into(&self, step: usize) -> Range<usize> {
        let needs = &self.needs[self.steps[step].clone()];
        match (needs.first(), needs.last()) {
            (Some(first), Some(last)) => {
                self.ways[first.ways.start].links.start..self.ways[last.ways.end - 1].links.end
            }
            _ => 0..0,
        }
    }

    pub fn reader(&self, link: usize) -> usize {
        self.needs[self.ways[self.links[link].way].need].step
    }

    /// Whether the reader of `way` could do without it.
    pub fn is_alternative(&self, way: usize) -> bool {
        self.needs[self.ways[way].need].ways.len() > 1
    }

    pub fn missing(
        &self,
        steps: &[Step],
        exists: impl Fn(&Path, Option<&str>) -> bool,
    ) -> Vec<MissingReference> {
        let is_missing = |need: &&Need| {
            let instance = steps[need.step].instance.as_deref();
            self.ways[need.ways.clone()].iter().all(|way| {
                let mut links = self.links[way.links.clone()].iter();
                links.all(|link| link.is_late) && !exists(self.path(way, steps), instance)
            })
        };
        let missing = self.needs.iter().filter(is_missing).map(|need| {
            let step = &steps[need.step];
            let ways = self.ways[need.ways.clone()].iter();
            MissingReference {
                place: PlanPlace::new(need.step, &*step.reads[need.read].pointer),
                tool: step.tool.clone(),
                instance: step.instance.clone(),
                paths: ways.map(|way| self.path(way, steps).clone()).collect(),
            }
        });
        missing.collect()
    }

    /// The path that `way` reads.
    pub fn path<'a>(&self, way: &Way, steps: &'a [Step]) -> &'a Path {
        let need = &self.needs[way.need];
        &steps[need.step].reads[need.read].source.paths()[way.path]
    }

    /// What passes over `link`: of the places written and read, the one inside the other.
    pub fn passed<'a>(&self, link: &Link, steps: &'a [Step]) -> &'a Path {
        let written = &steps[link.writer].written()[link.target];
        let read = self.path(&self.ways[link.way], steps);
        if written.segments.len() > read.segments.len() {
            written
        } else {
            read
        }
    }
}

/// Writers as a step in its place sees them.
struct StepWriters<'a> {
    /// Writers in front of the step. They are a map of their own, so that no step looks through all that come after it.
    earlier: Writers<'a>,
    all: Writers<'a>,
}

/// Written places, by instance.
#[derive(Default)]
struct Writers<'a>(HashMap<Option<&'a str>, PlaceMap<'a, Vec<TargetOfStep>>>);

#[derive(Debug, Clone, Copy)]
struct TargetOfStep {
    step: usize,
    target: usize,
}

impl<'a> Writers<'a> {
    fn of(steps: &'a [Step]) -> Self {
        let mut writers = Self::default();
        for (index, step) in steps.iter().enumerate() {
            writers.add(index, step);
        }
        writers
    }

    fn add(&mut self, index: usize, step: &'a Step) {
        for (target, path) in step.written().iter().enumerate() {
            let places = self.0.entry(step.instance.as_deref()).or_default();
            let written = TargetOfStep {
                step: index,
                target,
            };
            places.push(path, written);
        }
    }

    /// Everything written that overlaps `path`, as a step of `instance` sees it.
    fn of_place(
        &self,
        path: &'a Path,
        instance: Option<&'a str>,
    ) -> impl Iterator<Item = TargetOfStep> {
        // What is written for everybody feeds every instance, and never the other way round.
        let views = [instance.map(Some), Some(None)].into_iter().flatten();
        views
            .filter_map(|view| self.0.get(&view))
            .flat_map(move |places| places.overlapping(path))
            .flatten()
            .copied()
    }
}

impl Display for MissingReference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut paths = String::new();
        for path in &self.paths {
            if !paths.is_empty() {
                paths.push_str(" nor ");
            }
            paths.push_str(&path.to_string());
        }
        write!(f, "{}: nothing provides {paths}", self.place)?;
        if let Some(instance) = &self.instance {
            let instance = super::text::printable(instance, 64);
            write!(f, " for instance {instance}")?;
        }
        if self.paths.iter().any(|path| path.kind == "input") {
            f.write_str("; give it as input, or add a step that writes it")
        } else {
            f.write_str("; add a step that writes it, or read something that is there")
        }
    }
}
