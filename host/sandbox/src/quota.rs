//! How much a granted directory may hold.
//!
//! WASI has no quotas, and a file system seldom has them for a folder. So what a guest adds is counted
//! as it is written, against what the directory held when it was last measured. Counting only ever
//! adds (a file that is truncated and written again counts twice), so before saying no the directory
//! is measured anew. All calls that write to a directory share one count.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry costs besides its bytes: an empty file is not free, and a million of them fill a
/// disk as well as one large one.
pub const ENTRY_BYTES: u64 = 4 << 10;
/// A directory with more entries is full, whatever they hold: measuring must end.
const MAX_ENTRIES: u64 = 100_000;
const UNMEASURED: u64 = u64::MAX;

/// The budget of one directory.
#[derive(Debug)]
pub struct Quota {
    root: PathBuf,
    limit: u64,
    used: AtomicU64,
}

/// The directory may hold no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the directory may hold {limit} bytes")]
pub struct Full {
    pub limit: u64,
}

impl Quota {
    pub fn new(root: &Path, limit: u64) -> Self {
        Self {
            root: root.to_owned(),
            limit,
            used: AtomicU64::new(UNMEASURED),
        }
    }

    /// Takes `bytes` from the budget, measuring the directory if that decides it. Blocks on the file
    /// system then.
    ///
    /// # Errors
    /// If the directory would hold more than it may, or cannot be measured.
    pub fn take(&self, bytes: u64) -> Result<(), Full> {
        if self.used.load(Ordering::Relaxed) != UNMEASURED && self.try_take(bytes).is_ok() {
            return Ok(());
        }
        let full = Full { limit: self.limit };
        let measured = measure(&self.root).map_err(|_| full)?;
        self.used.store(measured, Ordering::Relaxed);
        self.try_take(bytes)
    }

    /// As [`Self::take`], from what is known already.
    pub fn try_take(&self, bytes: u64) -> Result<(), Full> {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|total| *total <= self.limit)
            })
            .map(|_| ())
            .map_err(|_| Full { limit: self.limit })
    }
}

/// The bytes below `root`, symbolic links not followed.
fn measure(root: &Path) -> io::Result<u64> {
    let mut pending = vec![Dir::open_ambient_dir(root, ambient_authority())?];
    let (mut bytes, mut entries) = (0u64, 0u64);
    while let Some(folder) = pending.pop() {
        for entry in folder.entries()? {
            let entry = entry?;
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(io::Error::other("too many entries"));
            }
            // What vanishes while it is counted takes no room.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            bytes = bytes
                .saturating_add(ENTRY_BYTES)
                .saturating_add(metadata.len());
            if metadata.is_dir()
                && let Ok(below) = entry.open_dir()
            {
                pending.push(below);
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_there_counts_and_what_was_freed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), vec![0; 10_000]).unwrap();
        let quota = Quota::new(folder.path(), 30_000);
        quota.take(10_000).unwrap();
        // The count says 24 096 and the disk 14 096: the second look decides.
        quota.take(10_000).unwrap();
        assert_eq!(quota.take(20_000), Err(Full { limit: 30_000 }));
        fs::remove_file(folder.path().join("old")).unwrap();
        quota.take(20_000).unwrap();
    }

    #[test]
    fn empty_files_cost_too() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..10 {
            fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(measure(folder.path()).unwrap(), 10 * ENTRY_BYTES);
    }
}
