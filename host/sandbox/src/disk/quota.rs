//! How much a granted directory may hold.
//!
//! WASI has no quotas, and a file system seldom has them for a folder. So what a guest adds is counted
//! as it is written, against what the directory held when it was last measured. Counting only ever
//! adds (a file that is truncated and written again counts twice), so before saying no the directory
//! is measured anew, and what was admitted but is not on the disk yet counts beside it. All calls of
//! all modules of this process that write to a directory share one count.

use cap_std::fs::Dir;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// What an entry costs besides its bytes: an empty file is not free, and a million of them fill a
/// disk as well as one large one.
pub const ENTRY_BYTES: u64 = 4 << 10;
/// A directory with more entries is full, whatever they hold: measuring must end.
const MAX_DIRECTORY_ENTRIES: u64 = 100_000;

/// The budget of one directory.
#[derive(Debug)]
pub struct Quota {
    root: Arc<File>,
    limit: u64,
    ledger: Arc<Ledger>,
}

/// The count of one directory, shared by all grants of it.
#[derive(Debug, Default)]
struct Ledger {
    count: Mutex<QuotaUsage>,
    /// Counts what was admitted and is not known to be on the disk yet. Shared with every [`QuotaReservation`].
    unwritten: Arc<AtomicU64>,
}

/// By canonical path; ledgers without users are removed when one is added.
static LEDGERS: LazyLock<Mutex<HashMap<PathBuf, Weak<Ledger>>>> = LazyLock::new(Mutex::default);

impl Ledger {
    fn of(root: &Path) -> Arc<Self> {
        let path = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let mut ledgers = LEDGERS.lock();
        if let Some(ledger) = ledgers.get(&path).and_then(Weak::upgrade) {
            return ledger;
        }
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        let ledger = Arc::<Self>::default();
        ledgers.insert(path, Arc::downgrade(&ledger));
        ledger
    }
}

#[derive(Debug, Default)]
struct QuotaUsage {
    /// Nothing, until the directory was measured.
    used: Option<u64>,
    /// All that was ever admitted.
    admitted: u64,
}

/// Bytes that were admitted. A measurement may not see them before they are written, so they count
/// beside it until then.
#[derive(Debug)]
#[must_use = "it counts as unwritten until it is dropped"]
pub struct QuotaReservation {
    bytes: u64,
    unwritten: Arc<AtomicU64>,
    written: bool,
}

/// Time after which a write of a cancelled call has ended: until then its bytes count as unwritten.
const CANCELLED_WRITE_DELAY: Duration = Duration::from_secs(2);

impl QuotaReservation {
    /// It is on the disk, or never will be.
    pub fn written(mut self) {
        self.written = true;
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        let (bytes, unwritten) = (self.bytes, self.unwritten.clone());
        let release = move || {
            unwritten.fetch_sub(bytes, Ordering::SeqCst);
        };
        // Cancelled during the write: the file system finishes it on a thread of its own.
        match Handle::try_current() {
            Ok(runtime) if !self.written => drop(runtime.spawn(async move {
                tokio::time::sleep(CANCELLED_WRITE_DELAY).await;
                release();
            })),
            _ => release(),
        }
    }
}

/// The directory may hold no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the directory may hold {limit} bytes")]
pub struct QuotaExceeded {
    pub limit: u64,
}

impl Quota {
    /// Of the open directory `root`, which has that path.
    pub fn new(path: &Path, root: Arc<File>, limit: u64) -> Self {
        Self {
            root,
            limit,
            ledger: Ledger::of(path),
        }
    }

    /// Takes `bytes` from the budget, measuring the directory if that decides it. Blocks on the file
    /// system then.
    ///
    /// # Errors
    /// If the directory would hold more than it may, or cannot be measured.
    pub fn take(&self, bytes: u64) -> Result<QuotaReservation, QuotaExceeded> {
        if let Ok(taken) = self.try_take(bytes) {
            return Ok(taken);
        }
        // What is unwritten now, and what is admitted meanwhile, the measurement may miss.
        let (unwritten, admitted) = {
            let count = self.ledger.count.lock();
            (self.ledger.unwritten.load(Ordering::SeqCst), count.admitted)
        };
        let measured = measure(&self.root).map_err(|_| QuotaExceeded { limit: self.limit })?;
        let mut count = self.ledger.count.lock();
        let missed = unwritten.saturating_add(count.admitted.wrapping_sub(admitted));
        count.used = Some(measured.saturating_add(missed));
        self.admit(&mut count, bytes)
    }

    /// As [`Self::take`], from what is known already.
    pub fn try_take(&self, bytes: u64) -> Result<QuotaReservation, QuotaExceeded> {
        self.admit(&mut self.ledger.count.lock(), bytes)
    }

    fn admit(&self, count: &mut QuotaUsage, bytes: u64) -> Result<QuotaReservation, QuotaExceeded> {
        let total = count.used.and_then(|used| used.checked_add(bytes));
        let Some(total) = total.filter(|total| *total <= self.limit) else {
            return Err(QuotaExceeded { limit: self.limit });
        };
        count.used = Some(total);
        count.admitted = count.admitted.wrapping_add(bytes);
        self.ledger.unwritten.fetch_add(bytes, Ordering::SeqCst);
        Ok(QuotaReservation {
            bytes,
            unwritten: self.ledger.unwritten.clone(),
            written: false,
        })
    }
}

/// The bytes below `root`, symbolic links not followed.
fn measure(root: &File) -> io::Result<u64> {
    let mut pending = vec![Dir::from_std_file(root.try_clone()?)];
    let (mut bytes, mut entries) = (0u64, 0u64);
    while let Some(folder) = pending.pop() {
        for entry in folder.entries()? {
            let entry = entry?;
            entries += 1;
            if entries > MAX_DIRECTORY_ENTRIES {
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

    fn quota(path: &Path, limit: u64) -> Quota {
        Quota::new(path, Arc::new(File::open(path).unwrap()), limit)
    }

    #[test]
    fn existing_bytes_count_and_freed_ones_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), vec![0; 10_000]).unwrap();
        let quota = quota(folder.path(), 30_000);
        quota.take(10_000).unwrap().written();
        // The count says 24 096 and the disk 14 096: the second look decides.
        quota.take(10_000).unwrap().written();
        assert_eq!(
            quota.take(20_000).unwrap_err(),
            QuotaExceeded { limit: 30_000 }
        );
        fs::remove_file(folder.path().join("old")).unwrap();
        quota.take(20_000).unwrap().written();
    }

    #[test]
    fn unwritten_bytes_count_beside_measured_ones() {
        let folder = tempfile::tempdir().unwrap();
        let quota = quota(folder.path(), 30_000);
        let first = quota.take(20_000).unwrap();
        // Nothing is on the disk, and still there is no room.
        assert!(quota.take(20_000).is_err());
        first.written();
        quota.take(20_000).unwrap().written();
    }

    #[test]
    fn two_grants_of_a_directory_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let one = quota(folder.path(), 10_000);
        let other = quota(&folder.path().join("."), 10_000);
        let held = one.take(8_000).unwrap();
        assert!(other.take(8_000).is_err());
        held.written();
        // Nothing came of it after all, which the next measurement sees.
        other.take(8_000).unwrap().written();
    }

    #[test]
    fn empty_files_cost_too() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..10 {
            fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(
            measure(&File::open(folder.path()).unwrap()).unwrap(),
            10 * ENTRY_BYTES
        );
    }
}
