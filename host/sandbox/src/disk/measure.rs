//! The size of a directory tree that a guest may have written.
//!
//! The walk is iterative and goes up by `..`, so that any depth needs two descriptors. The list of directories that are
//! still to be read is bounded by the number of entries.

use super::quota::ENTRY_BYTES;
use super::remove::{DIRECTORY, own_name};
use crate::blocking::Stop;
use rustix::fs::{AtFlags, Dir, FileType, Mode, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A tree with more entries is full, whatever they hold: measuring must end.
const MAX_ENTRIES: u64 = 100_000;
/// Time for one tree. 100 000 entries take half a second on an ordinary disk.
const MEASURING_TIME: Duration = Duration::from_secs(10);
/// Attempts, if directories are moved while the tree is measured.
const ATTEMPTS: usize = 3;

/// What lies below a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TreeSize {
    /// The logical sizes of all entries, and [`ENTRY_BYTES`] for each. A sparse file counts with its holes, because a
    /// reader or a copy of it meets them as bytes. What the entries use on the disk is not more: a last block that is
    /// not full is covered by [`ENTRY_BYTES`].
    pub bytes: u64,
    /// Directories in one another, the measured one not counted.
    pub levels: usize,
}

/// Measures what lies below the open directory `root`; symbolic links are not followed. Blocks on the file system, for at most ten seconds.
///
/// # Errors
/// What the file system says, and if the tree has too many entries, changes all the time, or takes too long; and if it is
/// to stop.
pub fn measure(root: &File, stop: &Stop) -> io::Result<TreeSize> {
    measure_opened(stop, || openat(root, ".", DIRECTORY, Mode::empty()))
}

/// As [`measure`], of the directory `name` in `folder`.
pub fn measure_at(folder: BorrowedFd<'_>, name: &Path, stop: &Stop) -> io::Result<TreeSize> {
    measure_opened(stop, || openat(folder, name, DIRECTORY, Mode::empty()))
}

fn measure_opened(stop: &Stop, open: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<TreeSize> {
    let deadline = Instant::now() + MEASURING_TIME;
    for _ in 0..ATTEMPTS {
        let mut walk = Walk {
            size: TreeSize::default(),
            entries: 0,
            deadline,
            stop,
        };
        if walk.all(open()?)? {
            return Ok(walk.size);
        }
    }
    Err(io::Error::other(
        "its directories are moved while it is measured",
    ))
}

struct Walk<'a> {
    size: TreeSize,
    entries: u64,
    deadline: Instant,
    stop: &'a Stop,
}

/// A directory on the way from the root to the one that is read.
struct Level {
    /// Device and inode, to recognise it on the way back.
    id: (u64, u64),
    /// Its directories that were not read yet.
    pending: Vec<CString>,
}

impl Walk<'_> {
    /// Whether everything was counted; not so if a directory on the way was moved.
    fn all(&mut self, root: OwnedFd) -> io::Result<bool> {
        let mut here = root;
        let mut way = vec![self.level(here.as_fd())?];
        while let Some(level) = way.last_mut() {
            if let Some(name) = level.pending.pop() {
                match openat(&here, &name, DIRECTORY, Mode::empty()) {
                    Ok(below) => {
                        here = below;
                        way.push(self.level(here.as_fd())?);
                        self.size.levels = self.size.levels.max(way.len() - 1);
                    }
                    // What vanishes while it is counted takes no room, and what this user may not read no guest wrote.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            way.pop();
            if let Some(above) = way.last() {
                here = openat(&here, "..", DIRECTORY, Mode::empty())?;
                if id(here.as_fd())? != above.id {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Counts the entries of one directory.
    fn level(&mut self, folder: BorrowedFd<'_>) -> io::Result<Level> {
        let mut pending = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let Some(name) = own_name(entry.file_name()) else {
                continue;
            };
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(io::Error::other("too many entries"));
            }
            self.stop.check()?;
            if Instant::now() > self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let bytes = u64::try_from(stat.st_size).unwrap_or_default();
            let total = self.size.bytes.saturating_add(ENTRY_BYTES);
            self.size.bytes = total.saturating_add(bytes);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                pending.push(name.to_owned());
            }
        }
        Ok(Level {
            id: id(folder)?,
            pending,
        })
    }
}

/// Device and inode.
pub fn id(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_deep_and_a_wide_tree_are_measured_with_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let mut deep = folder.path().to_owned();
        for _ in 0..500 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), vec![0; 1_000]).unwrap();
        for n in 0..100 {
            fs::create_dir(folder.path().join(n.to_string())).unwrap();
        }
        symlink("/", folder.path().join("link")).unwrap();
        let root = File::open(folder.path()).unwrap();
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(16),
            ..before
        };
        setrlimit(Resource::Nofile, few).unwrap();
        let size = measure(&root, &Stop::default());
        setrlimit(Resource::Nofile, before).unwrap();
        let size = size.unwrap();
        assert_eq!(size.levels, 500);
        assert!(size.bytes >= 602 * ENTRY_BYTES + 1_000, "{size:?}");
        assert!(size.bytes <= 1_202 * ENTRY_BYTES + 2_000, "{size:?}");
    }

    #[test]
    fn empty_files_and_holes_count() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..10 {
            fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        let sparse = File::create(folder.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let size = measure(&File::open(folder.path()).unwrap(), &Stop::default()).unwrap();
        assert_eq!(size.bytes, 11 * ENTRY_BYTES + (1 << 40));
    }

    #[test]
    fn a_tree_with_too_many_entries_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..=MAX_ENTRIES {
            fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        measure(&File::open(folder.path()).unwrap(), &Stop::default()).unwrap_err();
    }
}
