//! Removes a directory tree that a guest may have written.
//!
//! `std::fs::remove_dir_all` recurses: a deep tree overflows the stack, which aborts the process, and it holds a
//! descriptor for each level. Here a tree is made flat before it is removed: what lies two levels below the root is
//! moved up to the root. So any depth needs at most four descriptors and no recursion, each directory is moved at most
//! once, and a removal that was cut off goes on where it stopped. No symbolic link is followed.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for one tree. Some file systems need two milliseconds for each directory.
const REMOVAL_TIME: Duration = Duration::from_mins(1);

/// How a directory is opened: as what it is, and never through a symbolic link.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes the directory at `path` with everything in it. Blocks on the file system, for at most a minute.
///
/// # Errors
/// What the file system says: `NotFound` if there is nothing, `NotADirectory` for anything else than a directory.
/// `TimedOut` if a minute did not suffice; another call goes on. Everything that could be removed is gone.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_until(path, Instant::now() + REMOVAL_TIME)
}

pub(super) fn remove_until(path: &Path, deadline: Instant) -> io::Result<()> {
    let root = openat(CWD, path, DIRECTORY, Mode::empty())?;
    Removal {
        root: root.as_fd(),
        deadline,
        names: 0,
        steps: 0,
    }
    .empty()?;
    unlinkat(CWD, path, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// A removal under way.
struct Removal<'a> {
    root: BorrowedFd<'a>,
    deadline: Instant,
    /// Names that were tried for moved directories. It only grows, so entries that have these names already cost one
    /// attempt each, all moves together.
    names: u64,
    /// Entries that were removed or moved.
    steps: u64,
}

impl Removal<'_> {
    /// Removes everything below the root.
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let before = self.steps;
            let (mut entries, mut failed) = (0u64, None);
            for entry in Dir::read_from(self.root)? {
                self.in_time()?;
                let entry = entry?;
                let Some(name) = own_name(entry.file_name()) else {
                    continue;
                };
                entries += 1;
                if let Err(error) = self.entry(self.root, name, entry.file_type(), true) {
                    failed.get_or_insert(error);
                }
            }
            if entries == 0 {
                return Ok(());
            }
            // A listing may miss what is moved meanwhile, so it is read again until there is nothing.
            if self.steps == before {
                return Err(failed.unwrap_or_else(|| Errno::NOTEMPTY.into()));
            }
        }
    }

    fn in_time(&self) -> io::Result<()> {
        if Instant::now() > self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Removes one entry of `folder`. A directory with something in it is emptied first if it lies in the root, and
    /// else moved there.
    fn entry(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
        in_root: bool,
    ) -> io::Result<()> {
        if kind != FileType::Directory {
            match self.unlink(folder, name, AtFlags::empty()) {
                // Some file systems do not say in a listing what is a directory.
                Err(Errno::ISDIR | Errno::PERM) if kind == FileType::Unknown => {}
                removed => return Ok(removed?),
            }
        }
        match self.unlink(folder, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if in_root => self.directory(name),
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.lift(folder, name),
            removed => Ok(removed?),
        }
    }

    fn unlink(&mut self, folder: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
        match unlinkat(folder, name, flags) {
            Ok(()) => self.steps += 1,
            // Another removal was faster.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Empties and removes a directory in the root.
    fn directory(&mut self, name: &CStr) -> io::Result<()> {
        let folder: OwnedFd = openat(self.root, name, DIRECTORY, Mode::empty())?;
        let mut failed = None;
        for entry in Dir::read_from(&folder)? {
            self.in_time()?;
            let entry = entry?;
            if let Some(name) = own_name(entry.file_name())
                && let Err(error) = self.entry(folder.as_fd(), name, entry.file_type(), false)
            {
                failed.get_or_insert(error);
            }
        }
        match (self.unlink(self.root, name, AtFlags::REMOVEDIR), failed) {
            (_, Some(error)) => Err(error),
            (removed, None) => Ok(removed?),
        }
    }

    /// Moves a directory up to the root.
    fn lift(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.in_time()?;
            self.names += 1;
            match renameat(folder, name, self.root, format!(".moved-{}", self.names)) {
                Ok(()) => break,
                // There is something of that name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.steps += 1;
        Ok(())
    }
}

/// The name of an entry that is neither the directory itself nor the one above.
pub(super) fn own_name(name: &CStr) -> Option<&CStr> {
    (name != c"." && name != c"..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A chain of directories below `root`, with a file in each.
    fn chain(root: &Path, levels: usize) {
        let mut folder = openat(CWD, root, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        openat(&folder, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    }

    /// 50 000 levels, and 200 000 under `TOOLHOLD_TEST_SCALE=whole`, which `cargo xtask test --long` sets.
    #[test]
    fn a_deep_tree_goes_with_16_descriptors_and_a_small_stack() {
        let is_whole = std::env::var("TOOLHOLD_TEST_SCALE").is_ok_and(|scale| scale == "whole");
        // In memory: some disks take minutes for so many directories.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let parent = parent.unwrap();
        let root = parent.path().join("root");
        fs::create_dir(&root).unwrap();
        chain(&root, if is_whole { 200_000 } else { 50_000 });
        // Each test is a process of its own.
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(16),
            ..before
        };
        setrlimit(Resource::Nofile, few).unwrap();
        let path = root.clone();
        let removal = std::thread::Builder::new().stack_size(64 << 10);
        let removed = removal.spawn(move || remove_tree(&path)).unwrap().join();
        setrlimit(Resource::Nofile, before).unwrap();
        removed.unwrap().unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn wide_trees_hostile_names_and_links_go_and_what_links_name_stays() {
        let parent = tempfile::tempdir().unwrap();
        let outside = parent.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        let root = parent.path().join("root");
        for n in 0..5 {
            // Directories, files and links that have the names of moved ones.
            fs::create_dir_all(root.join(format!(".moved-{n}/a/b"))).unwrap();
            fs::write(root.join(format!(".moved-1{n}")), "x").unwrap();
            symlink(&outside, root.join(format!(".moved-2{n}"))).unwrap();
            for inner in ["x", "y", "z"] {
                fs::create_dir_all(root.join(format!("{n}/{inner}/deep/er"))).unwrap();
                symlink(&outside, root.join(format!("{n}/{inner}/deep/link"))).unwrap();
                fs::write(root.join(format!("{n}/{inner}/deep/file")), "x").unwrap();
            }
        }
        remove_tree(&root).unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        // The root itself may be no link either.
        symlink(&outside, &root).unwrap();
        remove_tree(&root).unwrap_err();
        assert!(outside.join("kept").exists());
        let missing = remove_tree(&parent.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_removal_that_was_cut_off_is_continued() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("root");
        fs::create_dir(&root).unwrap();
        chain(&root, 300);
        let late = remove_until(&root, Instant::now()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(root.exists());
        remove_tree(&root).unwrap();
        assert!(!root.exists());
    }
}
