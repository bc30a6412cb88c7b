//! What one call of a step waits for: the calls before it that write what it reads, and those that may append there.

use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};

#[derive(Debug)]
pub(super) struct Node {
    /// How people and models know it.
    pub(super) name: String,
    pub(super) instance: Option<String>,
    pub(super) reads: Vec<PendingRead>,
    /// Earlier calls that are to be over, whatever comes of them.
    pub(super) after: Vec<usize>,
    /// The same, of those that may append where this one reads.
    pub(super) after_appending: Vec<usize>,
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
}

impl Node {
    pub(super) fn is_ready(&self, data: &Data) -> bool {
        self.after_appending.is_empty() && self.is_ready_but_for_appending(data)
    }

    pub(super) fn is_ready_but_for_appending(&self, data: &Data) -> bool {
        let mut reads = self.reads.iter();
        self.after.is_empty() && reads.all(|read| read.is_ready(data, self.instance.as_deref()))
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
    pub(super) fn is_ready(&self, data: &Data, instance: Option<&str>) -> bool {
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

    /// A call that may have been waited for is over, and wrote these places.
    pub(super) fn done(&mut self, writer: usize, written: &[Path]) {
        let paths = self.source.paths().iter();
        for ((path, waits), spoiled) in paths.zip(&mut self.waits).zip(&mut self.spoiled) {
            let before = waits.len();
            waits.retain(|waited| *waited != writer);
            if waits.len() < before {
                let is_written = written.iter().any(|place| place.overlaps(path));
                *spoiled = (!is_written).then_some(writer);
            }
        }
    }
}
