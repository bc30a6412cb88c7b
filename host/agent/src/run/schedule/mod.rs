//! Which calls of a step may run: data flows from the calls that write a place to those that read it
//! (docs/protocol.md, 5 and 7.3).
//!
//! The calls have the effect that they would have one after the other, in the order in which the model wrote them:
//!
//! - A call waits for every earlier call of its step that writes what it reads, even if there is an older value at
//!   that place. What no earlier call writes must exist, or come into being by a later one.
//! - A call that writes a place comes behind the earlier calls that read or write it. A reader that has nothing to read
//!   yet waits for the next call that writes it, and holds up those after that one.
//!
//! Where a tool may append a message, its call says no place, and only its result tells whether it wrote and where. It
//! counts as one that writes all that it may append to.
//!
//! Only the flow of data can be against the order of the reply: a call that waits for what a later call writes stands
//! behind it, and lets it pass.
//!
//! Under the rules of format 3 only the first of these rules holds, and a call comes behind earlier ones that may append
//! where it reads.

mod passing;
#[cfg(test)]
mod random_tests;
mod stuck;
#[cfg(test)]
mod tests;
mod waits;

use crate::run::rules::LoopRules;
use std::collections::HashMap;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};
pub use waits::Appends;
use waits::{CallProgress, Node, PendingRead};

/// The calls of one step, by their index.
#[derive(Debug, Default)]
pub struct Schedule {
    rules: LoopRules,
    nodes: Vec<Node>,
    /// Unfinished writers by kind of data.
    writers: HashMap<String, Vec<usize>>,
    /// Unfinished calls that may append.
    appending: Vec<usize>,
    /// Places that finished calls should have written and did not.
    failed: Vec<(usize, Path)>,
    /// Places that finished calls wrote.
    written: Vec<(usize, Path)>,
}

impl Schedule {
    pub fn under(rules: LoopRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Adds the next call: what it reads, what it is shown of the context, where its result goes, and where it may
    /// append.
    pub fn add(
        &mut self,
        name: String,
        instance: Option<String>,
        reads: Vec<Source>,
        sees: &[Path],
        writes: Vec<Path>,
        appends: Appends,
    ) {
        let index = self.nodes.len();
        let after = sees
            .iter()
            .flat_map(|path| self.writers(path, instance.as_deref()))
            .collect();
        let reads = reads
            .into_iter()
            .map(|source| PendingRead {
                newest: vec![None; source.paths().len()],
                waits: source
                    .paths()
                    .iter()
                    .map(|path| self.writers(path, instance.as_deref()).collect())
                    .collect(),
                spoiled: source
                    .paths()
                    .iter()
                    .map(|path| self.failure_at(path, instance.as_deref()))
                    .collect(),
                source,
            })
            .collect();
        for path in &writes {
            let writers = self.writers.entry(path.kind.clone()).or_default();
            if writers.last() != Some(&index) {
                writers.push(index);
            }
        }
        if appends != Appends::Nowhere {
            self.appending.push(index);
        }
        let mut node = Node {
            name,
            instance,
            reads,
            sees: sees.to_vec(),
            after,
            behind: Vec::new(),
            passed: Vec::new(),
            writes,
            appends,
            state: CallProgress::Blocked,
            held_by: None,
        };
        node.behind = self.before(&node);
        self.nodes.push(node);
    }

    /// The calls that can run now and could not before; they count as running.
    pub fn unblock(&mut self, data: &Data) -> Vec<usize> {
        let calls = 0..self.nodes.len();
        let ready: Vec<usize> = calls.filter(|index| self.is_ready(*index, data)).collect();
        for index in &ready {
            self.begin(*index);
        }
        ready
    }

    fn is_ready(&self, index: usize, data: &Data) -> bool {
        let node = self.nodes.get(index);
        node.is_some_and(|node| {
            node.state == CallProgress::Blocked
                && node.has_what_it_reads(data, self.rules)
                && self.behind(index, data).next().is_none()
        })
    }

    pub fn is_blocked(&self, index: usize) -> bool {
        self.nodes
            .get(index)
            .is_some_and(|node| node.state == CallProgress::Blocked)
    }

    /// A call is over, and wrote these places.
    pub fn done(&mut self, index: usize, written: &[Path]) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        // Those that are behind it are behind what it was behind, too: it may not have been made.
        let behind = std::mem::take(&mut node.behind);
        self.pass(index, behind);
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        node.state = CallProgress::Done;
        self.appending.retain(|appending| *appending != index);
        if !self.rules.are_from_4() {
            let (writer, nodes) = (node.instance.clone(), &self.nodes);
            self.failed.retain(|(failed, path)| {
                let instance = nodes.get(*failed).and_then(|node| node.instance.as_ref());
                let is_replaced = writer.is_none() || writer.as_ref() == instance;
                !is_replaced || !written.iter().any(|place| place.overlaps(path))
            });
        }
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        let unwritten = node.writes.iter().filter(|path| !written.contains(path));
        self.failed
            .extend(unwritten.map(|path| (index, path.clone())));
        for path in &node.writes {
            if let Some(writers) = self.writers.get_mut(&path.kind) {
                writers.retain(|writer| *writer != index);
            }
        }
        self.written
            .extend(written.iter().map(|path| (index, path.clone())));
        let blocked = self
            .nodes
            .iter_mut()
            .filter(|node| node.state == CallProgress::Blocked);
        for node in blocked {
            node.after.retain(|writer| *writer != index);
            node.behind.retain(|earlier| *earlier != index);
            for read in &mut node.reads {
                read.done(index, written, self.rules);
            }
        }
    }

    /// Whether a call runs, so that something may still be written.
    pub fn is_running(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| node.state == CallProgress::Running)
    }

    /// Unfinished calls that write at `path`, above or below it.
    fn writers<'a>(
        &'a self,
        path: &'a Path,
        reader: Option<&'a str>,
    ) -> impl Iterator<Item = usize> + 'a {
        let writers = self.writers.get(&path.kind).into_iter().flatten();
        writers.copied().filter(move |writer| {
            self.nodes.get(*writer).is_some_and(|node| {
                node.is_seen_by(reader) && node.writes.iter().any(|place| place.overlaps(path))
            })
        })
    }

    /// The last call that should have written at `path` and did not, unless a later one wrote there.
    fn failure_at(&self, path: &Path, reader: Option<&str>) -> Option<usize> {
        let failed = self.failed.iter().filter(|(failed, place)| {
            let node = self.nodes.get(*failed);
            place.overlaps(path) && node.is_some_and(|node| node.is_seen_by(reader))
        });
        if !self.rules.are_from_4() {
            return failed.map(|(failed, _)| *failed).next_back();
        }
        let failed = failed.filter(|(failed, place)| !self.is_replaced(*failed, place));
        failed.map(|(failed, _)| *failed).max()
    }

    /// Whether a call after the failed one wrote at its place. A value written by one instance does not replace a value
    /// that another should have written.
    fn is_replaced(&self, failed: usize, place: &Path) -> bool {
        let instance = self.nodes.get(failed);
        let instance = instance.and_then(|node| node.instance.as_deref());
        let mut written = self.written.iter();
        written.any(|(writer, path)| {
            let node = self.nodes.get(*writer);
            *writer > failed
                && path.overlaps(place)
                && node.is_some_and(|node| node.is_seen_by(instance))
        })
    }
}
