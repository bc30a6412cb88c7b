//! Entries of the cache that nothing uses any more: of components that changed, and of older versions of this program.
//!
//! The time at which an entry was last changed is the time of its last use: loading it sets that time, at most once a
//! day. An entry that is removed too early is made again.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Files of compiled components.
pub(super) const COMPONENT_ENDING: &str = "cwasm";
/// Files that name what an author's edits made.
pub(super) const EDITS_ENDING: &str = "edits";
/// Files of older versions, which kept compiled functions.
const FUNCTIONS_ENDING: &str = "functions";

/// Entries that were used for less than this time ago stay when a new one is made.
pub const KEPT_UNUSED: Duration = Duration::from_hours(24 * 30);
/// Time for which an entry that is used is not marked again.
const MARKED_FOR: Duration = Duration::from_hours(24);
/// Time after which a file that was never finished is one that nothing writes any more.
const UNFINISHED: Duration = Duration::from_hours(1);

/// How many entries, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSize {
    pub entries: u64,
    pub bytes: u64,
}

impl CacheSize {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Removes what was not used for this time, and returns what it was. Blocks.
///
/// # Errors
/// The folder cannot be read, or an entry cannot be removed.
pub fn prune(folder: &Path, unused_for: Duration) -> io::Result<CacheSize> {
    let mut removed = CacheSize::default();
    let now = SystemTime::now();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(found) = Entry::of(&entry) else {
            continue;
        };
        let most = if found.is_unfinished {
            // It may be written at this moment.
            UNFINISHED
        } else {
            unused_for
        };
        // A time in the future is no time ago.
        let age = now.duration_since(found.used).unwrap_or_default();
        if age < most {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => removed.add(found.bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// Marks an entry as used now.
pub(super) fn mark(file: &File) {
    let used = file.metadata().and_then(|it| it.modified());
    let is_marked = used.is_ok_and(|used| used.elapsed().is_ok_and(|ago| ago < MARKED_FOR));
    if !is_marked {
        // Where it cannot be marked, it is made again some day.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// A file that a cache made.
struct Entry {
    bytes: u64,
    used: SystemTime,
    /// Of a process that ended while it wrote, or that writes now.
    is_unfinished: bool,
}

impl Entry {
    /// Links are nothing of a cache.
    fn of(entry: &fs::DirEntry) -> Option<Self> {
        let name = entry.file_name();
        let ending = Path::new(&name).extension()?;
        let is_unfinished = ending == "tmp";
        // Not what a link leads to.
        let metadata = entry.metadata().ok()?;
        let is_entry = [COMPONENT_ENDING, EDITS_ENDING, FUNCTIONS_ENDING]
            .iter()
            .any(|own| ending == *own);
        let is_own = metadata.is_file() && (is_unfinished || is_entry);
        is_own.then(|| Self {
            bytes: metadata.len(),
            used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            is_unfinished,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const DAY: Duration = Duration::from_hours(24);

    fn file(folder: &Path, name: &str, days: u32) {
        fs::write(folder.join(name), "four").unwrap();
        let file = File::options()
            .append(true)
            .open(folder.join(name))
            .unwrap();
        file.set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    #[test]
    fn what_was_not_used_for_long_is_removed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        for (name, days) in [
            ("new.cwasm", 1),
            ("old.cwasm", 40),
            ("old.functions", 40),
            ("left.tmp", 2),
            ("begun.tmp", 0),
            ("notes.txt", 90),
        ] {
            file(folder, name, days);
        }
        symlink("notes.txt", folder.join("link.cwasm")).unwrap();
        let removed = prune(folder, KEPT_UNUSED).unwrap();
        assert_eq!(
            removed,
            CacheSize {
                entries: 3,
                bytes: 12
            }
        );
        for (name, is_there) in [
            ("new.cwasm", true),
            ("old.cwasm", false),
            ("old.functions", false),
            ("left.tmp", false),
            ("begun.tmp", true),
            ("notes.txt", true),
            ("link.cwasm", true),
        ] {
            assert_eq!(
                folder.join(name).symlink_metadata().is_ok(),
                is_there,
                "{name}"
            );
        }
        assert_eq!(prune(folder, Duration::ZERO).unwrap().entries, 1);
        assert!(folder.join("begun.tmp").exists() && !folder.join("new.cwasm").exists());
    }

    #[test]
    fn an_entry_that_is_used_stays() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "old.cwasm", 40);
        mark(&File::open(root.path().join("old.cwasm")).unwrap());
        assert_eq!(
            prune(root.path(), KEPT_UNUSED).unwrap(),
            CacheSize::default()
        );
    }
}
