//! Marks of use: a folder that a call uses has a shared lock of the system (`flock`), and a sweep removes what it can lock
//! for itself. The age of a folder says nothing about a call whose clock stands still while a person decides.
//!
//! A lock ends with the process that has it, however that ends.

use super::remove::DIRECTORY;
use rustix::fs::{CWD, Mode, openat};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use toolhold_files::EntryId;

/// How long a call waits for a sweep that looks at its folder: that takes microseconds.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// Time between two tries to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// Shows that a folder is used, until it is dropped.
#[derive(Debug)]
pub(super) struct FolderUse {
    folder: File,
}

/// A folder that no call uses, nor begins to use until this is dropped.
#[derive(Debug)]
pub(super) struct UnusedFolder {
    folder: File,
    /// False where the file system has no such lock, which some in networks have not: then nothing shows whether it is
    /// used.
    pub is_sure: bool,
}

impl FolderUse {
    /// Marks the folder as used from now on; absent if it is gone. Blocks for at most a second.
    ///
    /// # Errors
    /// What the file system says; `TimedOut` if a sweep kept the folder for that long.
    pub fn begin(path: &Path) -> io::Result<Option<Self>> {
        let Some(folder) = opened(path)? else {
            return Ok(None);
        };
        let id = EntryId::of(&folder)?;
        let deadline = Instant::now() + LOOK_TIME;
        loop {
            let locked = folder.try_lock_shared();
            // A sweep may have taken it away before the lock was there, or while it is waited for.
            if !is_at(path, id)? {
                return Ok(None);
            }
            match locked {
                Ok(()) => return Ok(Some(Self { folder })),
                Err(TryLockError::Error(error)) if has_no_lock(&error) => {
                    return Ok(Some(Self { folder }));
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            }
        }
    }

    /// Notes the time of use, by which folders of sessions are swept.
    pub fn touch(&self) -> io::Result<()> {
        self.folder.set_modified(SystemTime::now())
    }
}

impl UnusedFolder {
    /// Absent if the folder is used, or gone.
    pub fn claim(path: &Path) -> io::Result<Option<Self>> {
        let Some(folder) = opened(path)? else {
            return Ok(None);
        };
        let is_sure = match folder.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if has_no_lock(&error) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        Ok(Some(Self { folder, is_sure }))
    }

    /// True if nothing used it for this long.
    pub fn rests_for(&self, age: Duration) -> bool {
        let used = self
            .folder
            .metadata()
            .and_then(|metadata| metadata.modified());
        used.is_ok_and(|used| used.elapsed().is_ok_and(|rest| rest > age))
    }
}

/// True if the path names this folder still.
fn is_at(path: &Path, id: EntryId) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        metadata => Ok(EntryId::from(&metadata?) == id),
    }
}

/// True for the error of a file system that has no lock of directories.
pub(crate) fn has_no_lock(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

/// The directory, through no link, by a handle of its own: clones of a handle share its lock.
fn opened(path: &Path) -> io::Result<Option<File>> {
    match openat(CWD, path, DIRECTORY, Mode::empty()) {
        Ok(folder) => Ok(Some(folder.into())),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_folder_is_not_claimed_and_a_claimed_one_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("folder");
        assert!(FolderUse::begin(&path).unwrap().is_none());
        assert!(UnusedFolder::claim(&path).unwrap().is_none());
        std::fs::create_dir(&path).unwrap();
        let one = FolderUse::begin(&path).unwrap().unwrap();
        let two = FolderUse::begin(&path).unwrap().unwrap();
        drop(one);
        assert!(UnusedFolder::claim(&path).unwrap().is_none());
        drop(two);
        let claim = UnusedFolder::claim(&path).unwrap().unwrap();
        assert!(claim.is_sure && !claim.rests_for(Duration::from_hours(1)));
        let late = FolderUse::begin(&path).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_folder_that_a_sweep_takes_away_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("folder");
        std::fs::create_dir(&path).unwrap();
        let claim = UnusedFolder::claim(&path).unwrap().unwrap();
        let begun = std::thread::scope(|scope| {
            let begun = scope.spawn(|| FolderUse::begin(&path).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            std::fs::remove_dir(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            let begun = begun.join().unwrap();
            drop(claim);
            begun
        });
        assert!(begun.is_none(), "it is another folder of the same name");
        assert!(FolderUse::begin(&path).unwrap().is_some());
    }
}
