//! Calls that come behind others because they read or write the same place, and which calls may pass others.

use super::Schedule;
use super::waits::{Appends, CallProgress, Node, PendingRead};
use std::collections::BTreeSet;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};

impl Schedule {
    /// The unfinished calls that a new one comes behind: those that read or write where it writes, and those that may
    /// append where it reads. Calls that one of these comes behind itself are left out, where they are behind it for the
    /// same place.
    pub(super) fn before(&self, new: &Node) -> Vec<usize> {
        let appending = self.appending.iter().copied();
        let appends_for = |index: &usize| {
            let node = self.nodes.get(*index);
            node.is_some_and(|node| node.appends_for(new))
        };
        let mut before: BTreeSet<usize> = appending.filter(appends_for).collect();
        if !self.rules.are_from_4() {
            return before.into_iter().collect();
        }
        let mut places = new.writes.clone();
        if let Appends::InKind(kind) = &new.appends {
            places.push(Path::root(kind.clone()));
        }
        let mut is_anywhere = new.appends == Appends::Anywhere;
        for (index, earlier) in self.nodes.iter().enumerate().rev() {
            if places.is_empty() && !is_anywhere {
                break;
            }
            if earlier.state == CallProgress::Done {
                continue;
            }
            let is_touched = (is_anywhere && earlier.touches_any(new))
                || places.iter().any(|path| earlier.touches(path, new));
            if !is_touched {
                continue;
            }
            before.insert(index);
            if earlier.instance == new.instance {
                // It is behind the calls before it that touch these places, but for those that it has passed.
                places.retain(|path| !earlier.covers(path));
                is_anywhere &= earlier.appends != Appends::Anywhere;
                let passed = earlier.passed.iter().copied();
                before.extend(passed.filter(|passed| self.is_before(*passed, new)));
            }
        }
        before.into_iter().collect()
    }

    /// The calls behind which a blocked call waits, as things stand.
    pub(super) fn behind(&self, index: usize, data: &Data) -> impl Iterator<Item = usize> {
        let behind = self.nodes.get(index).map(|node| node.behind.iter());
        behind
            .into_iter()
            .flatten()
            .copied()
            .filter(move |earlier| !self.lets_pass(*earlier, index, data))
    }

    /// A call is made.
    pub(super) fn begin(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        node.state = CallProgress::Running;
        let passed = std::mem::take(&mut node.behind);
        self.pass(index, passed);
    }

    /// The client makes the call: it has what it reads.
    pub(in crate::run) fn has_read(&mut self, index: usize) {
        let is_read = |node: &Node| {
            let earlier = self.nodes.get(index);
            node.behind.contains(&index)
                && earlier.is_some_and(|earlier| !earlier.is_written_before(node))
        };
        let calls = self.nodes.iter().enumerate();
        let free: Vec<usize> = calls
            .filter(|(_, node)| is_read(node))
            .map(|(later, _)| later)
            .collect();
        for call in free {
            if let Some(node) = self.nodes.get_mut(call) {
                node.behind.retain(|behind| *behind != index);
            }
        }
    }

    /// A call goes before some that it was behind. Those that are behind it are behind these as well, where they touch
    /// the same places.
    pub(super) fn pass(&mut self, index: usize, passed: Vec<usize>) {
        if passed.is_empty() || !self.rules.are_from_4() {
            return;
        }
        let mut behind: Vec<(usize, Vec<usize>)> = Vec::new();
        for (later, node) in self.nodes.iter().enumerate() {
            if node.state != CallProgress::Blocked || !node.behind.contains(&index) {
                continue;
            }
            let new = passed.iter().copied();
            let new = new.filter(|passed| !node.behind.contains(passed));
            behind.push((later, new.filter(|it| self.is_before(*it, node)).collect()));
        }
        for (later, new) in behind {
            if let Some(node) = self.nodes.get_mut(later) {
                node.behind.extend(new);
            }
        }
        if let Some(node) = self.nodes.get_mut(index) {
            node.passed.extend(passed);
        }
    }

    /// Whether an unfinished call touches the places of a later one.
    fn is_before(&self, earlier: usize, later: &Node) -> bool {
        let earlier = self.nodes.get(earlier);
        let earlier = earlier.filter(|earlier| earlier.state != CallProgress::Done);
        earlier.is_some_and(|earlier| {
            let mut writes = later.writes.iter();
            earlier.is_written_before(later)
                || writes.any(|path| earlier.touches(path, later))
                || (later.appends != Appends::Nowhere && earlier.is_read_before(later))
        })
    }

    /// Whether a blocked call does not hold up a later one: what it would read of the places that the later one writes is
    /// not there, and the later one is the next to write it.
    fn lets_pass(&self, earlier: usize, later: usize, data: &Data) -> bool {
        let (Some(reader), Some(writer)) = (self.nodes.get(earlier), self.nodes.get(later)) else {
            return true;
        };
        if reader.state != CallProgress::Blocked
            || reader.is_written_before(writer)
            || reader.sees.iter().any(|path| writer.may_write_at(path))
        {
            return false;
        }
        let instance = reader.instance.as_deref();
        reader.reads.iter().all(|read| {
            let paths = || read.source.paths().iter();
            let is_appended = |index: &usize| {
                let node = self.nodes.get(*index);
                node.is_some_and(|node| paths().any(|path| node.appends.may_be_at(path)))
            };
            let is_next = |paths: &[Path]| self.is_next_writer(earlier, later, paths);
            !paths().any(|path| writer.may_write_at(path))
                || (!reader.behind.iter().any(is_appended)
                    && read.lacks(writer, data, instance, is_next))
        })
    }

    /// Whether no unfinished call between the two writes what the first reads.
    fn is_next_writer(&self, reader: usize, writer: usize, paths: &[Path]) -> bool {
        let instance = self.nodes.get(reader);
        let instance = instance.and_then(|node| node.instance.as_deref());
        let between = self.nodes.get(reader + 1..writer).unwrap_or_default();
        !between.iter().any(|node| {
            node.state != CallProgress::Done
                && node.is_seen_by(instance)
                && paths.iter().any(|path| node.may_write_at(path))
        })
    }
}

impl Node {
    /// Whether it may append where `later` reads.
    fn appends_for(&self, later: &Self) -> bool {
        self.is_seen_by(later.instance.as_deref())
            && later.looks_at().any(|path| self.appends.may_be_at(path))
    }

    /// Whether it reads or writes at a place that `later` may write to.
    fn touches(&self, path: &Path, later: &Self) -> bool {
        (self.instance == later.instance && self.may_write_at(path))
            || (later.is_seen_by(self.instance.as_deref())
                && self.looks_at().any(|place| place.overlaps(path)))
    }

    /// Whether `later`, a later call that may write anywhere, touches what this call reads or writes.
    fn touches_any(&self, later: &Self) -> bool {
        let writes = !self.writes.is_empty() || self.appends != Appends::Nowhere;
        (self.instance == later.instance && writes)
            || (later.is_seen_by(self.instance.as_deref()) && self.looks_at().next().is_some())
    }

    /// Whether `later` is to find what this one writes: it writes there, or reads what this one may append.
    fn is_written_before(&self, later: &Self) -> bool {
        let both_append = match (&self.appends, &later.appends) {
            (Appends::Nowhere, _) | (_, Appends::Nowhere) => false,
            (Appends::InKind(mine), Appends::InKind(theirs)) => mine == theirs,
            (Appends::Anywhere, _) | (_, Appends::Anywhere) => true,
        };
        let mut mine = self.writes.iter();
        let writes_same = both_append
            || mine.any(|path| later.may_write_at(path))
            || later.writes.iter().any(|path| self.may_write_at(path));
        (self.instance == later.instance && writes_same) || self.appends_for(later)
    }

    /// Whether it reads what `later` may append.
    fn is_read_before(&self, later: &Self) -> bool {
        later.is_seen_by(self.instance.as_deref())
            && self.looks_at().any(|path| later.appends.may_be_at(path))
    }
}

impl PendingRead {
    /// Whether what `writer` writes of it is not there to be read, also not by a call before the reader, and `writer` is
    /// the next to write it, as `is_next` says of paths.
    fn lacks(
        &self,
        writer: &Node,
        data: &Data,
        instance: Option<&str>,
        is_next: impl Fn(&[Path]) -> bool,
    ) -> bool {
        let paths = self.source.paths();
        match self.source {
            Source::First(_) => {
                self.waits.iter().all(Vec::is_empty)
                    && !self.could_be(data, instance)
                    && is_next(paths)
            }
            Source::All(_) => {
                let mut states = paths.iter().zip(&self.waits).zip(&self.spoiled);
                states.all(|((path, waits), spoiled)| {
                    let is_absent = || !data.contains(path, instance);
                    !writer.may_write_at(path)
                        || (waits.is_empty()
                            && (spoiled.is_some()
                                || (is_absent() && is_next(std::slice::from_ref(path)))))
                })
            }
        }
    }
}
