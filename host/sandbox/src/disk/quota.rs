//! How much a granted directory may hold.
//!
//! WASI has no quotas, and a file system seldom has them for a folder. So what a guest adds is counted
//! as it is written, against what the directory held when it was last measured. Counting only ever
//! adds (a file that is truncated and written again counts twice), so before saying no the directory
//! is measured anew, and what was admitted but is not on the disk yet counts beside it. All calls of
//! all modules of this process that write to a directory share one count, and one walk at a time.
//!
//! A walk through a large directory takes seconds. So a directory that was found full is full without another walk, until
//! a guest frees something in it, or until ten times the walk's time has passed: then a program beside this host may
//! have freed something.
//!
//! What counts is the logical size, holes included, and [`ENTRY_BYTES`] for each entry. A write or a new size counts
//! what the file grows by: at an offset behind its end, the hole too. So that this is exact, no file of the directory
//! shrinks between the look at its size and the write.

use super::measure::measure;
use crate::blocking::Stop;
use parking_lot::{Mutex, RwLock};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// What an entry costs besides its bytes: an empty file is not free, and a million of them fill a
/// disk as well as one large one.
pub const ENTRY_BYTES: u64 = 4 << 10;

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
    /// Held shared while a file is written, and alone while one may shrink.
    sizes: RwLock<()>,
    /// Held while the directory is measured.
    walk: Mutex<LastWalk>,
    /// True if a guest freed something since the last measurement began.
    is_freed: AtomicBool,
}

/// The last measurement of a directory that did not make room for a write.
#[derive(Debug, Default)]
struct LastWalk {
    /// The directory counts as full until then.
    full_until: Option<Instant>,
}

/// Maximum time of a walk that is repeated for each write that the directory has no room for.
const CHEAP_WALK: Duration = Duration::from_millis(5);
/// How many times a walk's time the directory then counts as full.
const FULL_FACTOR: u32 = 10;
/// The most of that time.
const MAX_FULL_TIME: Duration = Duration::from_mins(1);

impl LastWalk {
    /// Remembers a walk that took so long and found no room.
    fn found_full(&mut self, took: Duration) {
        self.full_until = (took > CHEAP_WALK).then(|| {
            let rest = took.saturating_mul(FULL_FACTOR).min(MAX_FULL_TIME);
            Instant::now() + rest
        });
    }

    fn is_full(&self) -> bool {
        self.full_until.is_some_and(|until| Instant::now() < until)
    }
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

/// Where a write begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePlace {
    At(u64),
    /// The end of the file at the moment of the write.
    End,
}

/// Writes all of `bytes`. Blocks on the file system.
fn write_all(file: &File, mut bytes: &[u8], place: WritePlace) -> io::Result<()> {
    let offset = match place {
        WritePlace::At(offset) => offset,
        WritePlace::End => loop {
            if bytes.is_empty() {
                return Ok(());
            }
            match pwritev2(file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // A file system that cannot append in one step.
                Err(Errno::NOSYS | Errno::NOTSUP) => break file.metadata()?.len(),
                Err(error) => return Err(error.into()),
            }
        },
    };
    file.write_all_at(bytes, offset)
}

/// Writes all of `bytes`, within the quota where there is one. Blocks on the file system.
///
/// # Errors
/// As [`Quota::write`].
pub fn write_within(
    quota: Option<&Quota>,
    file: &File,
    bytes: &[u8],
    place: WritePlace,
    stop: &Stop,
) -> io::Result<()> {
    match quota {
        Some(quota) => quota.write(file, bytes, place, stop),
        None => write_all(file, bytes, place),
    }
}

/// The directory may hold no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the directory may hold {limit} bytes")]
pub struct QuotaExceeded {
    pub limit: u64,
}

impl From<QuotaExceeded> for io::Error {
    fn from(_: QuotaExceeded) -> Self {
        Self::from_raw_os_error(libc::EDQUOT)
    }
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
    /// `EDQUOT` if the directory would hold more than it may, or cannot be measured; it is to stop.
    pub fn take(&self, bytes: u64, stop: &Stop) -> io::Result<QuotaReservation> {
        if let Ok(taken) = self.try_take(bytes) {
            return Ok(taken);
        }
        let ledger = &self.ledger;
        let mut walk = stop.until(|time| ledger.walk.try_lock_for(time))?;
        // The walk of another write may have found room meanwhile.
        if let Ok(taken) = self.try_take(bytes) {
            return Ok(taken);
        }
        if walk.is_full() && !ledger.is_freed.load(Ordering::SeqCst) {
            return Err(QuotaExceeded { limit: self.limit }.into());
        }
        let began = Instant::now();
        ledger.is_freed.store(false, Ordering::SeqCst);
        match (self.measured(bytes, stop), stop.check()) {
            (Ok(taken), _) => {
                walk.full_until = None;
                Ok(taken)
            }
            (Err(full), Ok(())) => {
                walk.found_full(began.elapsed());
                Err(full)
            }
            (Err(_), Err(stopped)) => {
                // A walk that was broken off says nothing about the directory.
                ledger.is_freed.store(true, Ordering::SeqCst);
                Err(stopped.into())
            }
        }
    }

    fn measured(&self, bytes: u64, stop: &Stop) -> io::Result<QuotaReservation> {
        // What is unwritten now, and what is admitted meanwhile, the measurement may miss.
        let (unwritten, admitted) = {
            let count = self.ledger.count.lock();
            (self.ledger.unwritten.load(Ordering::SeqCst), count.admitted)
        };
        let measured = measure(&self.root, stop).map_err(|error| {
            tracing::debug!(%error, "a directory cannot be measured");
            QuotaExceeded { limit: self.limit }
        })?;
        let mut count = self.ledger.count.lock();
        let missed = unwritten.saturating_add(count.admitted.wrapping_sub(admitted));
        count.used = Some(measured.bytes.saturating_add(missed));
        Ok(self.admit(&mut count, bytes)?)
    }

    /// Notes that a guest removed or cut something in the directory: the next write that finds no room measures it.
    pub fn freed(&self) {
        self.ledger.is_freed.store(true, Ordering::SeqCst);
    }

    /// As [`Self::take`], from what is known already.
    pub fn try_take(&self, bytes: u64) -> Result<QuotaReservation, QuotaExceeded> {
        self.admit(&mut self.ledger.count.lock(), bytes)
    }

    /// Writes all of `bytes` into a file of the directory. Blocks on the file system.
    ///
    /// # Errors
    /// What the file system says, and `EDQUOT` if the directory would hold more than it may; it is to stop before it has
    /// begun to write.
    pub fn write(
        &self,
        file: &File,
        bytes: &[u8],
        place: WritePlace,
        stop: &Stop,
    ) -> io::Result<()> {
        let sizes = &self.ledger.sizes;
        let _no_shrinking = stop.until(|time| sizes.try_read_for(time))?;
        let length = bytes.len() as u64;
        let growth = match place {
            WritePlace::At(offset) => offset
                .saturating_add(length)
                .saturating_sub(file.metadata()?.len()),
            WritePlace::End => length,
        };
        self.growing(growth, stop, || write_all(file, bytes, place))
    }

    /// Sets the size of a file of the directory. Blocks on the file system.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_size(&self, file: &File, size: u64, stop: &Stop) -> io::Result<()> {
        let sizes = &self.ledger.sizes;
        let _alone = stop.until(|time| sizes.try_write_for(time))?;
        let before = file.metadata()?.len();
        self.growing(size.saturating_sub(before), stop, || file.set_len(size))?;
        if size < before {
            self.freed();
        }
        Ok(())
    }

    /// Does what makes a file grow. What makes none grow is done in a directory that is too full, too.
    fn growing(
        &self,
        bytes: u64,
        stop: &Stop,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let taken = match bytes {
            0 => None,
            bytes => Some(self.take(bytes, stop)?),
        };
        let done = work();
        if let Some(taken) = taken {
            taken.written();
        }
        done
    }

    /// Whether both count the same directory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ledger, &other.ledger)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn quota(path: &Path, limit: u64) -> Quota {
        Quota::new(path, Arc::new(File::open(path).unwrap()), limit)
    }

    /// A flag that stops no work.
    fn go() -> Stop {
        Stop::default()
    }

    /// Says that the walk took a second and found no room.
    fn found_full_slowly(quota: &Quota) {
        let mut walk = quota.ledger.walk.lock();
        walk.found_full(Duration::from_secs(1));
    }

    #[test]
    fn a_directory_that_a_slow_walk_found_full_is_full_until_a_guest_frees_something() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        fs::write(&path, vec![0; 20_000]).unwrap();
        let quota = quota(folder.path(), 30_000);
        quota.take(10_000, &go()).unwrap_err();
        found_full_slowly(&quota);
        // Another program frees something, which no walk looks for now.
        fs::write(&path, vec![0; 10_000]).unwrap();
        quota.take(10_000, &go()).unwrap_err();
        let file = File::options().write(true).open(&path).unwrap();
        quota.set_size(&file, 9_000, &go()).unwrap();
        quota.take(10_000, &go()).unwrap().written();
    }

    #[test]
    fn a_full_directory_is_walked_again_after_a_while_and_at_once_if_walks_are_cheap() {
        let mut walk = LastWalk::default();
        walk.found_full(CHEAP_WALK);
        assert!(!walk.is_full());
        walk.found_full(Duration::from_secs(10));
        let until = walk.full_until.unwrap();
        assert!(walk.is_full() && until <= Instant::now() + MAX_FULL_TIME);
        walk.full_until = Some(Instant::now());
        assert!(!walk.is_full());
    }

    #[test]
    fn work_that_is_to_stop_waits_for_no_walk_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let quota = quota(folder.path(), 30_000);
        let file = File::create(folder.path().join("file")).unwrap();
        let stop = Stop::default();
        let walk = quota.ledger.walk.lock();
        std::thread::scope(|scope| {
            let write = scope.spawn(|| quota.write(&file, b"x", WritePlace::End, &stop));
            std::thread::sleep(Duration::from_millis(50));
            stop.leave();
            let error = write.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        });
        drop(walk);
        assert_eq!(file.metadata().unwrap().len(), 0);
        // The walk that was broken off says nothing: the next one looks.
        quota.take(1_000, &go()).unwrap().written();
    }

    #[test]
    fn existing_bytes_count_and_freed_ones_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), vec![0; 10_000]).unwrap();
        let quota = quota(folder.path(), 30_000);
        quota.take(10_000, &go()).unwrap().written();
        // The count says 24 096 and the disk 14 096: the second look decides.
        quota.take(10_000, &go()).unwrap().written();
        let full = quota.take(20_000, &go()).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::EDQUOT));
        fs::remove_file(folder.path().join("old")).unwrap();
        quota.take(20_000, &go()).unwrap().written();
    }

    #[test]
    fn unwritten_bytes_count_beside_measured_ones() {
        let folder = tempfile::tempdir().unwrap();
        let quota = quota(folder.path(), 30_000);
        let first = quota.take(20_000, &go()).unwrap();
        // Nothing is on the disk, and still there is no room.
        assert!(quota.take(20_000, &go()).is_err());
        first.written();
        quota.take(20_000, &go()).unwrap().written();
    }

    #[test]
    fn two_grants_of_a_directory_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let one = quota(folder.path(), 10_000);
        let other = quota(&folder.path().join("."), 10_000);
        let held = one.take(8_000, &go()).unwrap();
        assert!(other.take(8_000, &go()).is_err());
        held.written();
        // Nothing came of it after all, which the next measurement sees.
        other.take(8_000, &go()).unwrap().written();
    }

    #[test]
    fn holes_count_as_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let quota = quota(folder.path(), 1 << 20);
        let file = File::create(folder.path().join("sparse")).unwrap();
        let full = |done: io::Result<()>| {
            assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EDQUOT));
            assert!(file.metadata().unwrap().len() <= 1 << 20);
        };
        full(quota.write(&file, b"x", WritePlace::At(1 << 40), &go()));
        full(quota.write(&file, b"x", WritePlace::At(u64::MAX), &go()));
        full(quota.set_size(&file, 1 << 40, &go()));
        // A hole within the quota counts, and is filled without counting again.
        quota
            .write(&file, b"x", WritePlace::At(900_000), &go())
            .unwrap();
        for place in 0..900 {
            let bytes = [1; 1_000];
            quota
                .write(&file, &bytes, WritePlace::At(place * 1_000), &go())
                .unwrap();
        }
        full(quota.write(&file, &vec![1; 200_000], WritePlace::End, &go()));
        quota.set_size(&file, 0, &go()).unwrap();
        quota
            .write(&file, &vec![1; 200_000], WritePlace::End, &go())
            .unwrap();
        assert_eq!(file.metadata().unwrap().len(), 200_000);
    }

    #[test]
    fn files_in_a_directory_that_is_too_full_can_be_cut() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("large"), vec![0; 100_000]).unwrap();
        let quota = quota(folder.path(), 50_000);
        let file = File::options()
            .write(true)
            .open(folder.path().join("large"));
        let file = file.unwrap();
        quota
            .write(&file, b"over", WritePlace::At(0), &go())
            .unwrap();
        quota
            .write(&file, b"more", WritePlace::End, &go())
            .unwrap_err();
        quota.set_size(&file, 10_000, &go()).unwrap();
        quota.write(&file, b"more", WritePlace::End, &go()).unwrap();
    }

    #[test]
    fn files_that_shrink_meanwhile_do_not_leave_holes() {
        const LIMIT: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let quota = quota(folder.path(), LIMIT);
        let file = File::create(folder.path().join("file")).unwrap();
        let until = std::time::Instant::now() + Duration::from_millis(500);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while std::time::Instant::now() < until {
                        let end = file.metadata().unwrap().len();
                        let _ = quota.write(&file, &vec![1; 60_000], WritePlace::At(end), &go());
                    }
                });
                scope.spawn(|| {
                    while std::time::Instant::now() < until {
                        let _ = quota.set_size(&file, 0, &go());
                    }
                });
            }
            while std::time::Instant::now() < until {
                let bytes = file.metadata().unwrap().len();
                assert!(bytes <= LIMIT, "{bytes}");
            }
        });
    }
}
