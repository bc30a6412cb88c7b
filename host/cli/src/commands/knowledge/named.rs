//! Paths that a person named. A watch finds each of them once, and compares in every pass: in a folder that others may
//! write, the name may be a link to something else by then.

use super::walk::{FolderEntry, entry};
use rustix::fs::{Mode, OFlags, openat};
use std::collections::HashMap;
use std::fs::canonicalize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use toolhold_files::{Directory, EntryId};

/// A file or folder that a person named. Links on its way are followed to where they lead in the first pass.
#[derive(Debug)]
pub struct NamedPath {
    path: PathBuf,
    found: OnceLock<FoundPath>,
    /// Open folders of all paths that were named, by identity. Absent: there is one pass only, and none stays open.
    folders: Option<Arc<OpenFolders>>,
}

type OpenFolders = Mutex<HashMap<EntryId, Arc<Directory>>>;

/// The place of a named path in the first pass in which it was there.
#[derive(Debug)]
struct FoundPath {
    /// The path without links.
    real: PathBuf,
    /// The folder that has the name; the folder itself for the root.
    folder: Arc<Directory>,
}

impl NamedPath {
    /// Paths of one command, which reads them again and again if `is_watched`.
    pub fn of(paths: Vec<PathBuf>, is_watched: bool) -> Arc<[Self]> {
        let folders = is_watched.then(Arc::<OpenFolders>::default);
        let named = paths.into_iter().map(|path| Self {
            path,
            found: OnceLock::new(),
            folders: folders.clone(),
        });
        named.collect()
    }

    /// The path as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file or folder that has the name now.
    ///
    /// # Errors
    /// What the file system says; the path leads to another place than in the first pass.
    pub fn open(&self) -> io::Result<FolderEntry> {
        let now = FoundPath::of(&self.path)?;
        let Some(folders) = &self.folders else {
            return now.open();
        };
        let found = self.found.get_or_init(|| {
            let mut folders = folders.lock().unwrap_or_else(PoisonError::into_inner);
            let folder = folders.entry(now.folder.id()).or_insert(now.folder.clone());
            FoundPath {
                real: now.real.clone(),
                folder: folder.clone(),
            }
        });
        if found.real != now.real || found.folder.id() != now.folder.id() {
            return Err(io::Error::other(
                "its path leads to another place than before: start again to add what is there",
            ));
        }
        found.open()
    }
}

impl FoundPath {
    fn of(path: &Path) -> io::Result<Self> {
        let real = canonicalize(path)?;
        let folder = Directory::resolve(real.parent().unwrap_or(&real)).directory?;
        Ok(Self {
            real,
            folder: Arc::new(folder),
        })
    }

    fn open(&self) -> io::Result<FolderEntry> {
        let folder = self.folder.file();
        let Some(name) = self.real.file_name() else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = openat(folder, c".", flags, Mode::empty())?;
            return Ok(FolderEntry::Folder(root.into()));
        };
        entry(folder, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    fn named(path: PathBuf) -> Arc<[NamedPath]> {
        NamedPath::of(vec![path], true)
    }

    fn text(named: &[NamedPath]) -> Result<String, String> {
        let mut text = String::new();
        match named[0].open().map_err(|error| error.to_string())? {
            FolderEntry::File(mut file) => file.read_to_string(&mut text).unwrap(),
            other => panic!("{other:?}"),
        };
        Ok(text)
    }

    #[test]
    fn path_is_another_when_a_link_or_folder_on_its_way_changes() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("one/notes")).unwrap();
        fs::create_dir_all(at("two/notes")).unwrap();
        fs::write(at("one/notes/a"), "first").unwrap();
        fs::write(at("two/notes/a"), "secret").unwrap();
        symlink(at("one"), at("current")).unwrap();
        let [by_link, file, folder] =
            ["current/notes/a", "one/notes/a", "one/notes"].map(|name| named(at(name)));
        let is_folder = |named: &[NamedPath]| matches!(named[0].open(), Ok(FolderEntry::Folder(_)));
        assert_eq!(text(&by_link).unwrap(), "first");
        assert_eq!(text(&file).unwrap(), "first");
        assert!(is_folder(&folder));

        // An editor puts another file in its place, and a checkout another folder.
        fs::write(at("one/notes/b"), "second").unwrap();
        fs::rename(at("one/notes/b"), at("one/notes/a")).unwrap();
        assert_eq!(text(&by_link).unwrap(), "second");
        fs::rename(at("one/notes"), at("one/old")).unwrap();
        fs::create_dir(at("one/notes")).unwrap();
        assert!(is_folder(&folder));

        fs::remove_file(at("current")).unwrap();
        symlink(at("two"), at("current")).unwrap();
        let other = "leads to another place";
        assert!(text(&by_link).unwrap_err().contains(other));
        fs::remove_dir(at("one/notes")).unwrap();
        symlink(at("two/notes"), at("one/notes")).unwrap();
        assert!(text(&file).unwrap_err().contains(other));
        assert!(!is_folder(&folder));
        fs::remove_file(at("one/notes")).unwrap();
        fs::rename(at("one"), at("gone")).unwrap();
        fs::rename(at("two"), at("one")).unwrap();
        assert!(text(&file).unwrap_err().contains(other));
        assert!(!is_folder(&folder));
    }

    #[test]
    fn root_is_a_folder_and_what_is_not_there_yet_is_found_later() {
        let root = named("/".into());
        assert!(matches!(root[0].open().unwrap(), FolderEntry::Folder(_)));
        let folder = tempfile::tempdir().unwrap();
        let late = named(folder.path().join("late"));
        let missing = late[0].open().unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        fs::write(late[0].path(), "here").unwrap();
        assert_eq!(text(&late).unwrap(), "here");
    }
}
