//! The order of steps that no data flow between them says: a step that writes a place comes after the earlier steps
//! that read or write it. Without that a step reads what a later one wrote, and of two values the first one stays.

use super::flow::{Flow, MAX_LINKS};
use super::graph::GraphError;
use super::order::components;
use super::place::PlanPlace;
use super::place_map::PlaceMap;
use super::step::Step;
use std::collections::{BTreeSet, HashMap};

/// Steps that the steps after them have to know, by place.
type Touched<'a> = PlaceMap<'a, Vec<usize>>;

/// Places that the steps so far have read and written.
#[derive(Default)]
struct Before<'a> {
    /// The last writer of each place, by instance.
    writers: HashMap<Option<&'a str>, PlaceMap<'a, usize>>,
    /// Readers since then: those that a writer of an instance has to know, by instance.
    readers: HashMap<&'a str, Touched<'a>>,
    /// Readers that a writer for everybody has to know: of all instances.
    all_readers: Touched<'a>,
}

/// Pairs of steps of which the second comes after the first because it writes where the first reads or writes. A pair
/// that follows from others is left out, and so is one that the data flow contradicts.
///
/// # Errors
/// There are too many.
pub(super) fn orders(steps: &[Step], flow: &Flow) -> Result<Vec<(usize, usize)>, GraphError> {
    let (mut before, mut orders) = (Before::default(), Vec::new());
    for (index, step) in steps.iter().enumerate() {
        let earlier = before.touching(step);
        if let (true, Some(path)) = (
            orders.len() + earlier.len() > MAX_LINKS,
            step.written().first(),
        ) {
            return Err(GraphError::TooManyLinks {
                place: PlanPlace::step(index),
                path: path.clone(),
            });
        }
        orders.extend(earlier.into_iter().map(|earlier| (earlier, index)));
        before.add(index, step, flow);
    }
    let mut edges = vec![Vec::new(); steps.len()];
    for (index, link) in flow.links.iter().enumerate() {
        edges[link.writer].push(flow.reader(index));
    }
    for (first, second) in &orders {
        edges[*first].push(*second);
    }
    let component = components(&edges, |step| step);
    orders.retain(|(first, second)| component[*first] != component[*second]);
    Ok(orders)
}

impl<'a> Before<'a> {
    /// The earlier steps that read or write where `step` writes.
    fn touching(&self, step: &'a Step) -> BTreeSet<usize> {
        let instance = step.instance.as_deref();
        let mut earlier = BTreeSet::new();
        for path in step.written() {
            if let Some(writers) = self.writers.get(&instance) {
                earlier.extend(writers.overlapping(path));
            }
            let readers = match instance {
                Some(instance) => self.readers.get(instance),
                None => Some(&self.all_readers),
            };
            if let Some(readers) = readers {
                earlier.extend(readers.overlapping(path).flatten());
            }
        }
        earlier
    }

    fn add(&mut self, index: usize, step: &'a Step, flow: &Flow) {
        let instance = step.instance.as_deref();
        for path in step.written() {
            let readers = match instance {
                Some(instance) => self.readers.entry(instance).or_default(),
                None => &mut self.all_readers,
            };
            // Who comes after this step comes after those.
            readers.remove_inside(path);
            let writers = self.writers.entry(instance).or_default();
            writers.remove_inside(path);
            writers.insert(path, index);
        }
        for need in &flow.needs[flow.steps[index].clone()] {
            // It comes after those that write what it lacks.
            if need.waits_for_later {
                continue;
            }
            for way in &flow.ways[need.ways.clone()] {
                let path = &step.reads[need.read].source.paths()[way.path];
                if let Some(instance) = instance {
                    self.readers.entry(instance).or_default().push(path, index);
                }
                self.all_readers.push(path, index);
            }
        }
    }
}
