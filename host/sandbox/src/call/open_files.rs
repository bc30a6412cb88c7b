//! The open descriptors of one call: the granted directory that each belongs to, and the quota that it counts against.

use crate::descriptors::{CallDescriptors, DescriptorPermit};
use crate::disk::quota::Quota;
use crate::grant::ReservedNames;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;

/// The open files and directories of one call. A number is used again after its descriptor was closed, and then
/// overwritten here: every way to get a descriptor passes by.
#[derive(Debug)]
pub struct OpenFiles {
    by_number: HashMap<u32, OpenFile>,
    descriptors: CallDescriptors,
    /// What the call opened and the system has open, closed ones included until they are looked at.
    charged: Vec<(Weak<File>, DescriptorPermit)>,
    /// Number of `charged` at which closed ones are looked for.
    next_look: usize,
}

/// What is known of an open descriptor.
#[derive(Debug, Clone)]
pub struct OpenFile {
    /// The granted directory that it was opened in.
    pub root: Arc<File>,
    /// The quota of that directory.
    pub quota: Option<Arc<Quota>>,
    /// Names in that directory, which may be written, that belong to this host.
    pub reserved: Option<Arc<ReservedNames>>,
}

/// Closed descriptors are looked for when there are at least so many.
const FIRST_LOOK: usize = 16;

impl OpenFiles {
    pub fn new(descriptors: CallDescriptors) -> Self {
        Self {
            by_number: HashMap::new(),
            descriptors,
            charged: Vec::new(),
            next_look: FIRST_LOOK,
        }
    }

    /// What is known of `fd`.
    pub fn file(&self, fd: &Resource<Descriptor>) -> Option<&OpenFile> {
        self.by_number.get(&fd.rep())
    }

    /// The quota of the directory that `fd` belongs to.
    pub fn quota(&self, fd: &Resource<Descriptor>) -> Option<Arc<Quota>> {
        self.file(fd)?.quota.clone()
    }

    /// Notes where a descriptor belongs that was opened now.
    pub fn set(&mut self, fd: &Resource<Descriptor>, file: Option<OpenFile>) {
        match file {
            Some(file) => drop(self.by_number.insert(fd.rep(), file)),
            None => drop(self.by_number.remove(&fd.rep())),
        }
    }

    /// A permit to open one more file or directory, or nothing if the call may have no more.
    pub fn permit(&mut self) -> Option<DescriptorPermit> {
        if self.charged.len() >= self.next_look {
            self.look();
        }
        self.descriptors.take().or_else(|| {
            self.look();
            self.descriptors.take()
        })
    }

    /// Keeps the permit for as long as `file` is open: streams of it keep it open after its descriptor is closed.
    pub fn charge(&mut self, file: &Arc<File>, permit: DescriptorPermit) {
        self.charged.push((Arc::downgrade(file), permit));
    }

    /// Gives back the permits of what was closed. The next look is when there are twice as many, so that looking costs
    /// little for each file.
    fn look(&mut self) {
        self.charged.retain(|(file, _)| file.strong_count() > 0);
        self.next_look = (self.charged.len() * 2).max(FIRST_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_file_makes_room_for_another_and_a_hoarded_one_does_not() {
        let temporary = tempfile::tempfile().unwrap();
        let open = || Arc::new(temporary.try_clone().unwrap());
        let mut files = OpenFiles::new(CallDescriptors::at_most(3));
        for _ in 0..100 {
            let (file, permit) = (open(), files.permit().unwrap());
            files.charge(&file, permit);
        }
        let hoard: Vec<_> = std::iter::from_fn(|| {
            let permit = files.permit()?;
            let file = open();
            files.charge(&file, permit);
            Some(file)
        })
        .collect();
        assert_eq!(hoard.len(), 3);
        // What failed to open gives its permit back at once.
        drop(hoard);
        assert!(files.permit().is_some());
        assert!(files.charged.len() <= FIRST_LOOK, "{}", files.charged.len());
    }
}
