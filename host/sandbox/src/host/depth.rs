//! How deep a guest may nest directories.
//!
//! A path of the system has at most 4 096 bytes, but a guest that opens each directory it makes goes deeper. Most
//! programs of the operator (backups, `rm`, editors) walk trees by recursion. The host's own walks need no such limit
//! (`disk/remove.rs`, `disk/measure.rs`).

use crate::blocking::Stop;
use crate::disk::measure::{id, measure_at};
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// Levels of directories below a granted one. Package managers nest some twenty.
const MAX_LEVELS: usize = 128;

/// An entry of a directory that a guest has open, by what it wrote.
#[derive(Debug)]
pub struct GuestPath<'a> {
    pub root: &'a File,
    pub folder: &'a File,
    pub path: &'a str,
}

impl GuestPath<'_> {
    /// The directory that the entry lies in, or would. No path leads out of the guest's directory.
    fn parent(&self) -> io::Result<Dir> {
        let folder = Dir::from_std_file(self.folder.try_clone()?);
        match Path::new(self.path).parent() {
            Some(parent) if parent != Path::new("") => folder.open_dir(parent),
            _ => Ok(folder),
        }
    }

    /// Levels between the root and the entry: 1 for an entry of the root. Counts no further than one more than allowed.
    fn level(&self) -> io::Result<usize> {
        let root = id(self.root.as_fd())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = self.parent()?.into_std_file();
        let mut level = 1;
        while level <= MAX_LEVELS && id(here.as_fd())? != root {
            here = openat(&here, "..", flags, Mode::empty())?.into();
            level += 1;
        }
        Ok(level)
    }
}

/// Whether a directory may be made there. Blocks on the file system.
///
/// # Errors
/// What the file system says on the way.
pub fn may_make(entry: &GuestPath<'_>) -> io::Result<bool> {
    Ok(entry.level()? <= MAX_LEVELS)
}

/// Whether the entry may become the other: a directory that moves deeper takes along what lies in it. Blocks on the
/// file system.
///
/// # Errors
/// As [`may_make`]; it is to stop.
pub fn may_move(from: &GuestPath<'_>, to: &GuestPath<'_>, stop: &Stop) -> io::Result<bool> {
    let parent = from.parent()?;
    let Some(name) = Path::new(from.path).file_name().map(Path::new) else {
        // `.` and `..`, which no file system renames.
        return Ok(true);
    };
    if !parent.symlink_metadata(name)?.is_dir() {
        return Ok(true);
    }
    let level = to.level()?;
    if level <= from.level()? {
        return Ok(true);
    }
    let inner = measure_at(parent.as_fd(), name, stop);
    stop.check()?;
    // One that cannot be measured may be as deep as it likes.
    Ok(inner.is_ok_and(|inner| level + inner.levels <= MAX_LEVELS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn entry<'a>(root: &'a File, folder: &'a File, path: &'a str) -> GuestPath<'a> {
        GuestPath { root, folder, path }
    }

    #[test]
    fn directories_are_nested_to_a_limit_by_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let deep = vec!["d"; MAX_LEVELS].join("/");
        fs::create_dir_all(folder.path().join(&deep)).unwrap();
        fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let above = &deep[..deep.len() - 2];
        std::os::unix::fs::symlink(above, folder.path().join("link")).unwrap();
        let root = File::open(folder.path()).unwrap();
        let inner = File::open(folder.path().join(above)).unwrap();
        let of = |folder, path| entry(&root, folder, path);
        let may = |entry: GuestPath<'_>| may_make(&entry).unwrap();
        assert!(may(of(&root, "new")) && may(of(&root, "a/b/new/")));
        let (allowed, too_deep) = (format!("{above}/new"), format!("{deep}/new"));
        assert!(may(of(&root, &allowed)) && !may(of(&root, &too_deep)));
        // By an open directory, by a link, and by a detour.
        assert!(may(of(&inner, "new")) && !may(of(&inner, "d/new")));
        assert!(may(of(&root, "link/new")) && !may(of(&root, "link/d/new")));
        assert!(may(of(&inner, "d/../new")) && !may(of(&inner, "d/../d/new")));
        may_make(&of(&root, "../new")).unwrap_err();

        let moves = |from: &str, to: &str| {
            let (from, to) = (entry(&root, &root, from), entry(&root, &root, to));
            may_move(&from, &to, &Stop::default()).unwrap()
        };
        assert!(moves("a/b", "a/e") && moves("a/b/c", "c"));
        assert!(moves("a/b/c", &format!("{above}/c")));
        assert!(!moves("a/b", &format!("{above}/b")));
        assert!(!moves(&deep[..1], "a/d"));
        assert!(moves("file", &format!("{deep}/file")));
    }
}
