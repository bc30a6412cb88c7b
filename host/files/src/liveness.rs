//! Files that show that a process lives: it holds a lock on its own, which the operating system frees when it dies.

use crate::regular::{Links, open};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The file of this process. Dropping it removes it.
#[derive(Debug)]
pub struct LivenessFile {
    path: PathBuf,
    _lock: File,
}

impl LivenessFile {
    /// Makes the file of a process in `folder`, which is made if it is missing, and removes those of dead processes.
    ///
    /// # Errors
    /// It cannot be made, or there is one of this name.
    pub fn create(folder: &Path, name: &str) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        remove_dead(folder);
        // Locked before it gets its name, so that no process takes it for the file of a dead one.
        let beginning = folder.join(name);
        let lock = File::create_new(&beginning)?;
        lock.try_lock().map_err(io::Error::from)?;
        let path = lock_path(folder, name);
        std::fs::rename(&beginning, &path)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for LivenessFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process of this name lives.
pub fn lives(folder: &Path, name: &str) -> bool {
    is_locked(&lock_path(folder, name))
}

/// The names of the processes that live.
pub fn living(folder: &Path) -> Vec<String> {
    let living = files(folder).filter(|path| is_locked(path));
    let names = living.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    names.collect()
}

/// The file of the process of this name.
pub fn lock_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.lock"))
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "lock")
    })
}

fn is_locked(path: &Path) -> bool {
    match open(path, Links::Refuse) {
        Ok(file) => matches!(
            file.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        ),
        // A file that we may not open is another user's; nothing shows that its process is dead.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes the files of processes that were killed.
fn remove_dead(folder: &Path) {
    for path in files(folder).filter(|path| !is_locked(path)) {
        let _ = std::fs::remove_file(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlocked_file_belongs_to_a_dead_process() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let first = LivenessFile::create(folder, "first").unwrap();
        assert!(lives(folder, "first"));
        let dead = lock_path(folder, "dead");
        std::fs::write(&dead, "").unwrap();
        assert!(!lives(folder, "dead") && !lives(folder, "unknown"));
        assert!(lives(&dead, "unseen"), "it cannot be opened");
        assert_eq!(living(folder), ["first"]);
        let other = LivenessFile::create(folder, "other").unwrap();
        assert!(!dead.exists(), "removed");
        assert!(
            lives(folder, "first"),
            "and the living process keeps its file"
        );
        drop((first, other));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    }
}
