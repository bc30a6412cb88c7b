//! The open descriptors of one call: the granted directory that each belongs to, and the quota that it counts against.

use crate::descriptors::{CallDescriptors, DescriptorPermit};
use crate::disk::byte_lock::LockedFile;
use crate::disk::quota::Quota;
use crate::grant::ReservedNames;
use crate::hold::{self, HeldDirectories};
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};
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
    locks: HeldLocks,
}

/// Locks of a call. They end after its last write, also if the call is dropped in the middle of it: a running write
/// ends before the next call may lock the file.
#[derive(Debug, Default)]
struct HeldLocks {
    files: Vec<Arc<LockedFile>>,
    directories: Option<Arc<HeldDirectories>>,
}

/// Between two looks for writes that go on, and the most time that they are waited for.
const LAST_WRITE_PAUSE: Duration = Duration::from_millis(1);
const LAST_WRITE_WAIT: Duration = Duration::from_secs(30);

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
            locks: HeldLocks {
                files: Vec::new(),
                directories: hold::current(),
            },
        }
    }

    /// Keeps a file that the call locks until it unlocks it, or its last write is over.
    pub fn lock(&mut self, file: File, permit: DescriptorPermit) -> Arc<LockedFile> {
        let locked = Arc::new(LockedFile::new(file, permit));
        self.locks.files.push(locked.clone());
        locked
    }

    /// Ends the locks of a file.
    pub fn unlock(&mut self, file: &Arc<LockedFile>) {
        self.locks.files.retain(|own| !Arc::ptr_eq(own, file));
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

impl Drop for OpenFiles {
    fn drop(&mut self) {
        if self.locks.files.is_empty() && self.locks.directories.is_none() {
            return;
        }
        let locks = std::mem::take(&mut self.locks);
        // The table of descriptors was dropped before: what is open is being written.
        self.look();
        if self.charged.is_empty() {
            return;
        }
        let mut charged = std::mem::take(&mut self.charged);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let until = Instant::now() + LAST_WRITE_WAIT;
            while Instant::now() < until && !charged.is_empty() {
                sleep(LAST_WRITE_PAUSE).await;
                charged.retain(|(file, _)| file.strong_count() > 0);
            }
            drop(locks);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn locks_end_after_the_last_write_of_a_call_that_was_dropped_in_it() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(named.path());
        let may_lock = || open().unwrap().try_lock().is_ok();
        for writes in [true, false] {
            let mut files = OpenFiles::new(CallDescriptors::at_most(3));
            let written = Arc::new(open().unwrap());
            let permit = files.permit().unwrap();
            files.charge(&written, permit);
            let permit = files.permit().unwrap();
            let locked = files.lock(open().unwrap(), permit);
            locked.file.lock().unwrap();
            drop(locked);
            let writing = writes.then(|| written.clone());
            drop(written);
            assert!(!may_lock());
            drop(files);
            assert_eq!(may_lock(), !writes);
            sleep(20 * LAST_WRITE_PAUSE).await;
            assert_eq!(may_lock(), !writes);
            drop(writing);
            let began = Instant::now();
            while !may_lock() {
                assert!(began.elapsed() < Duration::from_secs(10));
                sleep(LAST_WRITE_PAUSE).await;
            }
        }
    }

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
