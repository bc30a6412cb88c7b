//! One call of a step: what it reads, what it writes, and which earlier calls it waits for.

use crate::run::rules::LoopRules;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};

#[derive(Debug)]
pub(super) struct Node {
    /// How people and models know it.
    pub(super) name: String,
    pub(super) instance: Option<String>,
    pub(super) reads: Vec<PendingRead>,
    /// Parts of the context that it is shown.
    pub(super) sees: Vec<Path>,
    /// Earlier calls that write what it is shown. They are to be over, with a result or a failure.
    pub(super) after: Vec<usize>,
    /// Earlier calls that read or write where it writes, or may append where it reads. They go first, unless one of
    /// them waits for this one.
    pub(super) behind: Vec<usize>,
    /// Earlier calls that this one was made before, although it was behind them.
    pub(super) passed: Vec<usize>,
    pub(super) writes: Vec<Path>,
    pub(super) appends: Appends,
    pub(super) state: CallProgress,
    /// The blocked call that it was last found to wait for: looking for it takes as long as there are
    /// writers.
    pub(super) held_by: Option<usize>,
}

/// Where a call may write besides the places that it says, as its result tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Appends {
    #[default]
    Nowhere,
    /// Somewhere in this kind of data.
    InKind(String),
    Anywhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallProgress {
    Blocked,
    Running,
    Done,
}

#[derive(Debug)]
pub(super) struct PendingRead {
    pub(super) source: Source,
    /// For each path of the source: earlier calls that have yet to write it.
    pub(super) waits: Vec<Vec<usize>>,
    /// For each path of the source: an earlier call that should have written it and did not.
    pub(super) spoiled: Vec<Option<usize>>,
    /// For each path of the source: the last of the calls that were waited for which wrote it.
    pub(super) newest: Vec<Option<usize>>,
}

impl Node {
    /// Whether all that it reads is there as the earlier calls leave it.
    pub(super) fn has_what_it_reads(&self, data: &Data, rules: LoopRules) -> bool {
        let (mut reads, instance) = (self.reads.iter(), self.instance.as_deref());
        self.after.is_empty() && reads.all(|read| read.is_ready(data, instance, rules))
    }

    /// Whether all that it reads is there, as alternatives of which others may follow.
    pub(super) fn could_read(&self, data: &Data) -> bool {
        let mut reads = self.reads.iter();
        self.after.is_empty() && reads.all(|read| read.could_be(data, self.instance.as_deref()))
    }

    pub(super) fn may_write_at(&self, path: &Path) -> bool {
        self.writes.iter().any(|place| place.overlaps(path)) || self.appends.may_be_at(path)
    }

    /// Whether each place inside of `path`, and each around it, is one that this call may write to.
    pub(super) fn covers(&self, path: &Path) -> bool {
        let is_around = |place: &Path| place.segments.len() <= path.segments.len();
        let mut writes = self.writes.iter();
        self.appends.may_be_at(path) || writes.any(|place| is_around(place) && place.overlaps(path))
    }

    /// The places that it reads or is shown.
    pub(super) fn looks_at(&self) -> impl Iterator<Item = &Path> {
        let reads = self.reads.iter().flat_map(|read| read.source.paths());
        reads.chain(&self.sees)
    }

    /// Whether a reader in an instance sees what this call writes.
    pub(super) fn is_seen_by(&self, reader: Option<&str>) -> bool {
        self.instance.is_none() || self.instance.as_deref() == reader
    }
}

impl Appends {
    /// Whether what is appended may be at `path`, above or below it.
    pub(super) fn may_be_at(&self, path: &Path) -> bool {
        match self {
            Self::Nowhere => false,
            Self::InKind(kind) => *kind == path.kind,
            Self::Anywhere => true,
        }
    }
}

impl PendingRead {
    /// Whether it has the value that it has in the order of the reply: no earlier call is about to write an alternative
    /// that would go first.
    pub(super) fn is_ready(&self, data: &Data, instance: Option<&str>, rules: LoopRules) -> bool {
        let mut paths = self.source.paths().iter().zip(&self.waits);
        let is_settled = match self.source {
            Source::First(_) if rules.are_from_4() => paths
                .find(|(path, waits)| !waits.is_empty() || data.contains(path, instance))
                .is_some_and(|(_, waits)| waits.is_empty()),
            Source::First(_) | Source::All(_) => true,
        };
        is_settled && self.could_be(data, instance)
    }

    /// Whether there is a value of it, and no call is about to replace that value.
    pub(super) fn could_be(&self, data: &Data, instance: Option<&str>) -> bool {
        let mut paths = self
            .source
            .paths()
            .iter()
            .zip(&self.waits)
            .zip(&self.spoiled);
        let exists = |path: &Path| data.contains(path, instance);
        let is_settled =
            |waits: &[usize], spoiled: &Option<usize>| waits.is_empty() && spoiled.is_none();
        match self.source {
            // The first that exists is what will be read: it must not be about to be replaced.
            Source::First(_) => paths
                .find(|((path, _), _)| exists(path))
                .is_some_and(|((_, waits), spoiled)| is_settled(waits, spoiled)),
            Source::All(_) => {
                paths.all(|((path, waits), spoiled)| is_settled(waits, spoiled) && exists(path))
            }
        }
    }

    /// A call that may have been waited for is over, and wrote these places. Those of different instances end in any
    /// order; what counts is which of them is the last one of the reply.
    pub(super) fn done(&mut self, writer: usize, written: &[Path], rules: LoopRules) {
        let paths = self.source.paths().iter().zip(&mut self.waits);
        let states = self.spoiled.iter_mut().zip(&mut self.newest);
        for ((path, waits), (spoiled, newest)) in paths.zip(states) {
            let before = waits.len();
            waits.retain(|waited| *waited != writer);
            if waits.len() == before {
                continue;
            }
            let is_written = written.iter().any(|place| place.overlaps(path));
            if !rules.are_from_4() {
                *spoiled = (!is_written).then_some(writer);
                continue;
            }
            // None is less than any call.
            if is_written {
                *newest = Some(writer).max(*newest);
                *spoiled = spoiled.filter(|failed| *failed > writer);
            } else if *newest < Some(writer) {
                *spoiled = Some(writer).max(*spoiled);
            }
        }
    }
}
