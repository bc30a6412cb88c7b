//! Copies what guests left, while one of them may still exchange it: no name is followed, and what is opened is what
//! is looked at (`docs/security.md`, "Names and handles").

use super::private_folder;
use crate::blocking::Stop;
use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

/// Levels of directories, each of which holds two handles. A guest nests half as many.
const MAX_LEVELS: usize = 256;

/// Bytes of a file that are copied between two looks at a [`Stop`].
const STEP_BYTES: u64 = 4 << 20;

/// A directory that is being copied.
struct CopiedFolder {
    from: Dir,
    to: Dir,
    /// Still to be copied.
    names: Vec<OsString>,
}

impl CopiedFolder {
    fn new(from: Dir, to: Dir) -> io::Result<Self> {
        let entries = from.entries()?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        Ok(Self {
            names: names.collect::<io::Result<_>>()?,
            from,
            to,
        })
    }

    /// Copies an entry; a directory is returned, for what is in it.
    fn copy(&self, name: &OsStr, stop: &Stop) -> io::Result<Option<Self>> {
        let kind = self.from.symlink_metadata(name)?.file_type();
        if kind.is_dir() {
            let from = self.from.open_dir_nofollow(name)?;
            let mut private = DirBuilder::new();
            private.mode(0o700);
            self.to.create_dir_with(name, &private)?;
            return Self::new(from, self.to.open_dir_nofollow(name)?).map(Some);
        }
        if kind.is_file() {
            self.copy_file(name, stop)?;
        } else if kind.is_symlink() {
            // Made anew as it is: a guest chose where it points to.
            let target = self.from.read_link_contents(name)?;
            self.to.symlink_contents(target, name)?;
        }
        Ok(None)
    }

    fn copy_file(&self, name: &OsStr, stop: &Stop) -> io::Result<()> {
        let mut reading = OpenOptions::new();
        reading.read(true).nonblock(true).follow(FollowSymlinks::No);
        let mut from = self.from.open_with(name, &reading)?;
        let metadata = from.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it was exchanged while it was copied"));
        }
        let mut writing = OpenOptions::new();
        writing.write(true).create_new(true);
        let mut to = self.to.open_with(name, &writing)?;
        // What is written to it meanwhile stays behind: its size was measured.
        let mut left = metadata.len();
        while left > 0 {
            stop.check()?;
            let step = left.min(STEP_BYTES);
            let copied = io::copy(&mut io::Read::take(&mut from, step), &mut to)?;
            // A shorter file was cut meanwhile.
            left = if copied < step { 0 } else { left - step };
        }
        to.set_permissions(metadata.permissions())
    }
}

/// Copies a folder with everything in it. Blocks on the file system.
///
/// # Errors
/// What the file system says; something was exchanged meanwhile; the folder is deeper than [`MAX_LEVELS`]; the work is to
/// end.
pub(super) fn copy_all(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    private_folder(to)?;
    let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
    let mut levels = vec![CopiedFolder::new(open(from)?, open(to)?)?];
    while let Some(level) = levels.last_mut() {
        stop.check()?;
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        if let Some(inner) = level.copy(&name, stop)? {
            if levels.len() == MAX_LEVELS {
                return Err(io::Error::other(format!(
                    "directories are nested deeper than {MAX_LEVELS} levels"
                )));
            }
            levels.push(inner);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_is_exchanged_while_it_is_copied_leads_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("outside/folder")).unwrap();
        fs::write(at("outside/folder/file"), "secret").unwrap();
        fs::create_dir_all(at("from/folder")).unwrap();
        fs::write(at("from/folder/file"), "own").unwrap();
        symlink("../outside/folder", at("from/link")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // The folder and the link to another one change their names.
                    for (one, other) in [
                        ("folder", "aside"),
                        ("link", "folder"),
                        ("folder", "link"),
                        ("aside", "folder"),
                    ] {
                        fs::rename(at("from").join(one), at("from").join(other)).unwrap();
                    }
                }
            });
            for number in 0..2_000 {
                let to = at(&format!("to{number}"));
                // It may fail, and says so.
                let _ = copy_all(&at("from"), &to, &Stop::default());
                for name in ["folder", "aside", "link"] {
                    let copied = to.join(name);
                    let is_folder = fs::symlink_metadata(&copied).is_ok_and(|it| it.is_dir());
                    if is_folder && let Ok(text) = fs::read_to_string(copied.join("file")) {
                        assert_ne!(text, "secret", "{number}");
                    }
                }
                fs::remove_dir_all(to).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn modes_are_kept_and_depth_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("from")).unwrap();
        fs::write(at("from/run"), "x").unwrap();
        fs::set_permissions(at("from/run"), fs::Permissions::from_mode(0o755)).unwrap();
        copy_all(&at("from"), &at("to"), &Stop::default()).unwrap();
        let mode = fs::metadata(at("to/run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let deep = vec!["d"; MAX_LEVELS].join("/");
        fs::create_dir_all(at("from").join(deep)).unwrap();
        let error = copy_all(&at("from"), &at("deep"), &Stop::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("256 levels"), "{error}");
    }
}
