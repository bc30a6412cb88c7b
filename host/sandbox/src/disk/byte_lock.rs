//! Locks on ranges of bytes of a file, as SQLite and other programs take them (`fcntl`).
//!
//! On Linux a lock belongs to the open file ("open file description"): calls of one process exclude each other by it,
//! and closing another handle of the same file ends nothing. Elsewhere it belongs to the process, so calls of one process
//! do not exclude each other by it; the hold on the directory does (`hold`).

use crate::descriptors::DescriptorPermit;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A file that a guest opened to lock it. Its locks end when the guest drops it, or after the last write of the call.
#[derive(Debug)]
pub struct LockableFile(pub(crate) Arc<LockedFile>);

/// A file with locks of a call.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub file: File,
    _permit: DescriptorPermit,
}

impl LockedFile {
    pub fn new(file: File, permit: DescriptorPermit) -> Self {
        Self {
            file,
            _permit: permit,
        }
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
pub(crate) fn set(file: &File, range: &Range<u64>, lock: ByteLock) -> io::Result<()> {
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
