//! Which calls of a step may run: data flows from the calls that write a place to those that read it
//! (docs/protocol.md, 5 and 7.3).
//!
//! A call waits for every earlier call of its step that writes what it reads, even if there is an
//! older value at that place: the model wrote them in this order. What no earlier call writes must
//! exist, or come into being by a later one.
//!
//! Where a tool may append a message, its call says no place, and only its result tells whether it wrote and where.
//! Such a call goes before every later one that may read what it appends, but for those that it waits for itself.

mod stuck;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::HashMap;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};
pub use waits::Appends;
use waits::{CallProgress, Node, PendingRead};

/// The calls of one step, by their index.
#[derive(Debug, Default)]
pub struct Schedule {
    nodes: Vec<Node>,
    /// Unfinished writers by kind of data.
    writers: HashMap<String, Vec<usize>>,
    /// Unfinished calls that may append.
    appending: Vec<usize>,
    /// Places that finished calls should have written and did not.
    failed: Vec<(usize, Path)>,
}

impl Schedule {
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
        let after_appending = self.appending_before(&reads, sees, instance.as_deref());
        let after = sees
            .iter()
            .flat_map(|path| self.writers(path, instance.as_deref()))
            .collect();
        let reads = reads
            .into_iter()
            .map(|source| PendingRead {
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
        self.nodes.push(Node {
            name,
            instance,
            reads,
            after,
            after_appending,
            writes,
            appends,
            state: CallProgress::Blocked,
            held_by: None,
        });
    }

    /// The calls that can run now and could not before; they count as running.
    pub fn unblock(&mut self, data: &Data) -> Vec<usize> {
        let nodes = self.nodes.iter_mut().enumerate();
        nodes
            .filter(|(_, node)| node.state == CallProgress::Blocked && node.is_ready(data))
            .map(|(index, node)| {
                node.state = CallProgress::Running;
                index
            })
            .collect()
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
        node.state = CallProgress::Done;
        self.appending.retain(|appending| *appending != index);
        let unwritten = node
            .writes
            .iter()
            .filter(|path| !written.contains(path))
            .cloned();
        let failed: Vec<_> = unwritten.map(|path| (index, path)).collect();
        for path in &node.writes {
            if let Some(writers) = self.writers.get_mut(&path.kind) {
                writers.retain(|writer| *writer != index);
            }
        }
        // A value written by one instance does not replace a value that another should have
        // written.
        let (writer, nodes) = (node.instance.clone(), &self.nodes);
        self.failed.retain(|(failed, path)| {
            let instance = nodes.get(*failed).and_then(|node| node.instance.as_ref());
            let is_replaced = writer.is_none() || writer.as_ref() == instance;
            !is_replaced || !written.iter().any(|place| place.overlaps(path))
        });
        self.failed.extend(failed);
        let blocked = self
            .nodes
            .iter_mut()
            .filter(|node| node.state == CallProgress::Blocked);
        for node in blocked {
            node.after.retain(|writer| *writer != index);
            node.after_appending.retain(|appending| *appending != index);
            for read in &mut node.reads {
                read.done(index, written);
            }
        }
    }

    /// Whether a call runs, so that something may still be written.
    pub fn is_running(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| node.state == CallProgress::Running)
    }

    /// Unfinished calls that may append where a call reads or is shown the context.
    fn appending_before(
        &self,
        reads: &[Source],
        sees: &[Path],
        reader: Option<&str>,
    ) -> Vec<usize> {
        let read = || reads.iter().flat_map(Source::paths).chain(sees);
        let appending = self.appending.iter().copied();
        let goes_before = |index: &usize| {
            self.nodes.get(*index).is_some_and(|node| {
                node.is_seen_by(reader) && read().any(|path| node.appends.may_be_at(path))
            })
        };
        appending.filter(goes_before).collect()
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

    fn failure_at(&self, path: &Path, reader: Option<&str>) -> Option<usize> {
        let mut failed = self.failed.iter().rev();
        let (writer, _) = failed.find(|(writer, place)| {
            place.overlaps(path)
                && self
                    .nodes
                    .get(*writer)
                    .is_some_and(|node| node.is_seen_by(reader))
        })?;
        Some(*writer)
    }
}
