//! Changes of files that several processes of this host change: read, changed and written by one of them at a time.

use crate::temporary_name;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time after which a process that waits for the right gives up: a change takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The right to change the files of one folder, until it is dropped. Readers need none: they see a whole file.
///
/// Held for one change: to read a file, look whether it is as expected, and put another in its place.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    /// The open folder, which has the system's lock.
    locked: File,
}

/// Users that may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileReaders {
    /// Its owner alone (0600), from its first byte.
    Owner,
    /// Users that the process allows for all of its files (umask).
    Usual,
}

/// A file that is written and not in its place yet. Dropped before, it is removed.
#[derive(Debug)]
pub struct UnfinishedFile {
    path: PathBuf,
}

impl FolderLock {
    /// Waits until no other process has the right, and takes it. Makes the folder (0700) if it is not there. Blocks, for
    /// ten seconds at most. On a file system without locks, it has the right at once.
    ///
    /// # Errors
    /// What the file system says; another process kept the right for too long.
    pub fn take(folder: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let locked = File::open(folder)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match locked.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another command changes files beside it; end that command, and try again",
                    ));
                }
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    break;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            locked,
        })
    }

    /// Gives the file its name in this folder, in one step.
    ///
    /// # Errors
    /// What the file system says. The file of that name is as it was.
    pub fn put_in_place(&self, unfinished: UnfinishedFile, name: &OsStr) -> io::Result<()> {
        fs::rename(&unfinished.path, self.folder.join(name))?;
        // The file is in its place whether or not the system can say that its name is on disk.
        let _ = self.locked.sync_all();
        Ok(())
    }
}

impl UnfinishedFile {
    /// Makes an empty file in `folder`, under a name that nothing has, for content that comes in pieces.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(folder: &Path, readers: FileReaders) -> io::Result<(Self, File)> {
        let path = folder.join(temporary_name(".", ".part")?);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if readers == FileReaders::Owner {
            options.mode(0o600);
        }
        let file = options.open(&path)?;
        Ok((Self { path }, file))
    }

    /// Writes a file of this content into `folder`, under a name that nothing has, and to the disk.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(folder: &Path, content: &[u8], readers: FileReaders) -> io::Result<Self> {
        let (unfinished, mut file) = Self::create(folder, readers)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(unfinished)
    }

    /// Gives the file the name `path`, in the folder in which it was made.
    ///
    /// # Errors
    /// Something has the name already, or what the file system says.
    pub fn put_anew(self, path: &Path) -> io::Result<()> {
        // A link would refuse a name that is taken in one step, and not every file system has links.
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&self.path, path)?;
        if let Some(folder) = self
            .path
            .parent()
            .and_then(|folder| File::open(folder).ok())
        {
            // The file is in its place whether or not the system can say that its name is on disk.
            let _ = folder.sync_all();
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // Absent once it is in its place.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        const THREADS: usize = 8;
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state");
        let path = folder.join("list");
        let change = |line: usize| {
            let lock = FolderLock::take(&folder).unwrap();
            let before = fs::read_to_string(&path).unwrap_or_default();
            let content = format!("{before}{line}\n");
            let readers = FileReaders::Owner;
            let unfinished = UnfinishedFile::write(&folder, content.as_bytes(), readers);
            lock.put_in_place(unfinished.unwrap(), "list".as_ref())
                .unwrap();
        };
        thread::scope(|scope| {
            for line in 0..THREADS {
                scope.spawn(move || change(line));
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), THREADS);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
    }

    #[test]
    fn unfinished_file_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let unfinished =
            UnfinishedFile::write(root.path(), b"content", FileReaders::Usual).unwrap();
        assert_eq!(fs::read(unfinished.path()).unwrap(), b"content");
        drop(unfinished);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_put_anew_takes_the_place_of_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        for (content, is_put) in [("one", true), ("two", false)] {
            let (unfinished, mut file) =
                UnfinishedFile::create(root.path(), FileReaders::Owner).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_eq!(unfinished.put_anew(&path).is_ok(), is_put);
            assert_eq!(fs::read_to_string(&path).unwrap(), "one");
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
