//! Locks on ranges of bytes of a file, as SQLite and other programs take them (`fcntl`).
//!
//! On Linux a lock belongs to the open file ("open file description"): calls of one process exclude each other by it,
//! and closing another handle of the same file ends nothing. Elsewhere it belongs to the process, so calls of one process
//! do not exclude each other by it; the hold on the directory does (`hold`).

use crate::descriptors::DescriptorPermit;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The most ranges that a call has locked in one open file: SQLite has three at a time. The system keeps memory for each,
/// which counts for no process, and looks through all of them at every change.
const MAX_RANGES: usize = 64;

/// A file that a guest opened to lock it. Its locks end when the guest drops it, or after the last write of the call.
#[derive(Debug)]
pub struct LockableFile(pub(crate) Arc<LockedFile>);

/// A file with locks of a call.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub file: File,
    ranges: Mutex<LockedRanges>,
    _permit: DescriptorPermit,
}

impl LockedFile {
    pub fn new(file: File, permit: DescriptorPermit) -> Self {
        Self {
            file,
            ranges: Mutex::default(),
            _permit: permit,
        }
    }

    /// Locks the range like this, without waiting.
    ///
    /// # Errors
    /// As [`set`], and [`io::ErrorKind::QuotaExceeded`] if there would be more than [`MAX_RANGES`].
    pub fn set(&self, range: &Range<u64>, lock: ByteLock) -> io::Result<()> {
        let mut ranges = self.ranges.lock();
        let after = ranges.with(range, lock);
        if after.0.len() > MAX_RANGES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        set(&self.file, range, lock)?;
        *ranges = after;
        Ok(())
    }
}

/// Ranges that are locked; none overlaps another.
#[derive(Debug, Default)]
struct LockedRanges(Vec<Range<u64>>);

impl LockedRanges {
    fn with(&self, range: &Range<u64>, lock: ByteLock) -> Self {
        let outside = |own: &Range<u64>| {
            let before = own.start..own.end.min(range.start);
            let behind = own.start.max(range.end)..own.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        let mut ranges: Vec<_> = self.0.iter().flat_map(outside).collect();
        if lock != ByteLock::None {
            ranges.push(range.clone());
        }
        Self(ranges)
    }
}

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteLock {
    Shared,
    Exclusive,
    /// Unlocked.
    None,
}

/// Locks the range like this, without waiting.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: another holds a lock there that this one does not go with.
fn set(file: &File, range: &Range<u64>, lock: ByteLock) -> io::Result<()> {
    let wish = flock(range, lock)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let set = fcntl(file, FcntlArg::F_OFD_SETLK(&wish));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let set = fcntl(file, FcntlArg::F_SETLK(&wish));
    match set {
        Ok(_) => Ok(()),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether another holds a lock there that an exclusive one would not go with.
///
/// # Errors
/// The file system has no locks.
pub(crate) fn is_locked(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut wish = flock(range, ByteLock::Exclusive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut wish))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fcntl(file, FcntlArg::F_GETLK(&mut wish))?;
    Ok(i32::from(wish.l_type) != libc::F_UNLCK)
}

fn flock(range: &Range<u64>, lock: ByteLock) -> io::Result<libc::flock> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let number = |value: u64| i64::try_from(value).map_err(too_far);
    let kind = match lock {
        ByteLock::Shared => libc::F_RDLCK,
        ByteLock::Exclusive => libc::F_WRLCK,
        ByteLock::None => libc::F_UNLCK,
    };
    let length = range.end.saturating_sub(range.start);
    if length == 0 {
        // The system takes it as "to the end of the file, wherever that will be".
        return Err(io::ErrorKind::InvalidInput.into());
    }
    number(range.end)?;
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: number(range.start)?,
        l_len: number(length)?,
        l_pid: 0,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::descriptors::CallDescriptors;

    #[test]
    fn handles_of_one_process_exclude_each_other_and_closing_one_ends_no_lock_of_another() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(named.path())
                .unwrap()
        };
        let (one, other) = (open(), open());
        let (here, there) = (10..20, 20..30);
        set(&one, &here, ByteLock::Exclusive).unwrap();
        let error = set(&other, &(19..21), ByteLock::Shared).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        set(&other, &there, ByteLock::Exclusive).unwrap();
        assert!(is_locked(&other, &here).unwrap() && is_locked(&one, &there).unwrap());
        assert!(
            !is_locked(&one, &here).unwrap(),
            "its own is none of another"
        );
        drop(open());
        assert!(is_locked(&other, &here).unwrap());
        set(&one, &here, ByteLock::Shared).unwrap();
        set(&other, &here, ByteLock::Shared).unwrap();
        set(&one, &here, ByteLock::None).unwrap();
        assert!(set(&one, &here, ByteLock::Exclusive).is_err());
        drop(other);
        set(&one, &here, ByteLock::Exclusive).unwrap();
    }

    #[test]
    fn ranges_are_counted_as_they_are_locked_cut_and_joined() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = File::options()
            .read(true)
            .write(true)
            .open(named.path())
            .unwrap();
        let permit = CallDescriptors::at_most(1).take().unwrap();
        let locked = LockedFile::new(file, permit);
        let most = MAX_RANGES as u64;
        for at in 0..most {
            locked
                .set(&(2 * at..2 * at + 1), ByteLock::Exclusive)
                .unwrap();
        }
        let one_more = locked.set(&(1_000..1_001), ByteLock::Shared).unwrap_err();
        assert_eq!(one_more.kind(), io::ErrorKind::QuotaExceeded);
        // One that is locked already, and one over all of them.
        locked.set(&(0..1), ByteLock::Shared).unwrap();
        locked.set(&(0..1_000), ByteLock::Exclusive).unwrap();
        assert_eq!(locked.ranges.lock().0, std::slice::from_ref(&(0..1_000)));
        // A hole makes two of one.
        for at in 1..most {
            locked.set(&(2 * at..2 * at + 1), ByteLock::None).unwrap();
        }
        let hole = locked.set(&(900..901), ByteLock::None).unwrap_err();
        assert_eq!(hole.kind(), io::ErrorKind::QuotaExceeded);
        locked.set(&(0..1_000), ByteLock::None).unwrap();
        assert!(locked.ranges.lock().0.is_empty());
    }

    #[test]
    fn what_cannot_be_locked_is_said() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let read = File::open(named.path()).unwrap();
        let error = set(&read, &(0..1), ByteLock::Exclusive).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        for range in [5..5, 0..u64::MAX] {
            let error = set(&read, &range, ByteLock::Shared).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
