//! Names inside of granted directories that belong to this host: configuration, grants, keys, saved Requests, programs
//! that it runs. A module that could write there would decide for the host (`docs/security.md`, "Files of the host
//! inside of a grant").
//!
//! Each check follows the paths anew, because an operator may exchange a directory on their way. A guest cannot: every
//! name on the way of a reserved path is reserved, too. The handle of the parent directory is compared, and then used,
//! so no link or rename between the two leads elsewhere.

use super::open_directories::OpenDirectory;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_files::{EntryId, Location, Lookup, passes};

/// A file or folder that this host takes decisions from, or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedPath {
    pub path: PathBuf,
    /// Noun for messages, such as `the configuration`.
    pub what: String,
    /// True if reading it would give away a secret or a key.
    pub is_secret: bool,
}

/// Maximum number of directories between an entry and the granted one. A guest nests 128; an operator's tree that is
/// deeper is treated as reserved.
const MAX_LEVELS: usize = 1_024;

/// Effect of a reserved path on one entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// The entry leads to the reserved one: it stays what it is, and its content may change.
    Way(Arc<str>),
    /// The entry is the reserved one, lies in it, or has its bytes under another name.
    Content(Arc<str>),
}

impl Reservation {
    /// Noun for messages.
    pub fn what(&self) -> &str {
        let (Self::Way(what) | Self::Content(what)) = self;
        what
    }
}

/// Age at which it is looked up anew which paths lead through a directory. A guest cannot change that; an operator may
/// move a file into the directory and leave a link.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The reserved paths, seen from one granted directory.
#[derive(Debug)]
pub(crate) struct ReservedNames {
    /// The granted directory.
    root: EntryId,
    /// Paths that lead through the directory; absent where none can.
    inside: Option<Mutex<PathsInside>>,
    /// All paths: a file of any of them may have a second name in the directory.
    all: Arc<[ReservedPath]>,
}

/// Paths that led through a directory when it was looked at.
#[derive(Debug, Clone)]
struct PathsInside {
    paths: Arc<[ReservedPath]>,
    looked: Instant,
}

impl PathsInside {
    /// Blocks on the file system.
    fn of(root: EntryId, all: &[ReservedPath]) -> Self {
        let looked = Instant::now();
        let is_inside = |path: &&ReservedPath| {
            let location = Location::of(&path.path);
            // Looked at again with each change.
            location.map_or(true, |location| passes(&location.way, root))
        };
        Self {
            paths: all.iter().filter(is_inside).cloned().collect(),
            looked,
        }
    }

    fn is_fresh(&self) -> bool {
        self.looked.elapsed() < MAX_AGE
    }
}

impl ReservedNames {
    /// Blocks on the file system.
    pub fn new(root: &OpenDirectory, all: &Arc<[ReservedPath]>) -> Self {
        let root = root.id();
        Self {
            root,
            inside: Some(Mutex::new(PathsInside::of(root, all))),
            all: all.clone(),
        }
    }

    /// For a directory of this host's own that a guest may write. Hard links to any reserved file may be moved into it.
    pub fn of_own(directory: &File, all: &Arc<[ReservedPath]>) -> io::Result<Self> {
        Ok(Self {
            root: EntryId::of(directory)?,
            inside: None,
            all: all.clone(),
        })
    }

    /// True if it is known, without a look, that no reserved path leads through the directory.
    pub fn is_known_free(&self) -> bool {
        let inside = self.inside.as_ref().map(Mutex::lock);
        inside.is_none_or(|inside| inside.is_fresh() && inside.paths.is_empty())
    }

    /// True if no reserved path leads through the directory. Blocks on the file system.
    pub fn is_free(&self) -> bool {
        self.inside().is_empty()
    }

    fn inside(&self) -> Arc<[ReservedPath]> {
        let Some(inside) = &self.inside else {
            return Arc::default();
        };
        let held = inside.lock().clone();
        if held.is_fresh() {
            return held.paths;
        }
        // Without the lock: others go on with what they know.
        let now = PathsInside::of(self.root, &self.all);
        *inside.lock() = now.clone();
        now.paths
    }

    /// Reservation of an open file that has several names: its bytes are those of a reserved file. Blocks on the file
    /// system.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn of_linked(&self, file: EntryId) -> io::Result<Option<Reservation>> {
        Ok(located(self.root, &self.all)?.of_file(file))
    }

    /// Places of the reserved paths at this moment. Blocks on the file system.
    ///
    /// # Errors
    /// There is no working folder for a relative path.
    pub fn locate(&self) -> io::Result<LocatedNames> {
        located(self.root, &self.inside())
    }
}

fn located(root: EntryId, paths: &[ReservedPath]) -> io::Result<LocatedNames> {
    let located = paths.iter().map(|path| {
        let location = Location::of(&path.path)?;
        Ok((location, path.what.as_str().into()))
    });
    Ok(LocatedNames {
        root,
        located: located.collect::<io::Result<_>>()?,
    })
}

/// [`ReservedNames`], followed to where they are now.
#[derive(Debug)]
pub(crate) struct LocatedNames {
    root: EntryId,
    located: Vec<(Location, Arc<str>)>,
}

impl LocatedNames {
    /// Reservation of the entry `name` of `parent`, whether it exists or not.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn of_entry(&self, parent: &File, name: &OsStr) -> io::Result<Option<Reservation>> {
        if let Some(inside) = self.of_directory(parent)? {
            return Ok(Some(inside));
        }
        let directory = EntryId::of(parent)?;
        let is_it = |lookup: &Lookup| lookup.directory == directory && is_same(&lookup.name, name);
        let mut on_way = None;
        for (location, what) in &self.located {
            let Some((last, way)) = location.way.split_last() else {
                continue;
            };
            if is_it(last) {
                return Ok(Some(Reservation::Content(what.clone())));
            }
            if on_way.is_none() && way.iter().any(is_it) {
                on_way = Some(Reservation::Way(what.clone()));
            }
        }
        Ok(on_way)
    }

    /// Reservation of a directory: it is a reserved folder, or lies in one.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn of_directory(&self, directory: &File) -> io::Result<Option<Reservation>> {
        let is_folder = |(location, _): &&(Location, _)| location.is_directory;
        let folders: Vec<_> = self.located.iter().filter(is_folder).collect();
        if folders.is_empty() {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = directory.try_clone()?;
        for _ in 0..MAX_LEVELS {
            let id = EntryId::of(&here)?;
            let is_here = |(location, _): &&&(Location, _)| location.entry == Some(id);
            if let Some((_, what)) = folders.iter().find(is_here) {
                return Ok(Some(Reservation::Content(what.clone())));
            }
            if id == self.root {
                return Ok(None);
            }
            here = openat(&here, "..", flags, Mode::empty())?.into();
        }
        Ok(Some(Reservation::Content("too deep to be judged".into())))
    }

    /// Reservation of a directory by another spelling of its name, on a file system that takes several.
    pub fn of_folder(&self, directory: EntryId) -> Option<Reservation> {
        let is_it =
            |location: &Location| location.is_directory && location.entry == Some(directory);
        let mut all = self.located.iter();
        if let Some((_, what)) = all.find(|(location, _)| is_it(location)) {
            return Some(Reservation::Content(what.clone()));
        }
        let mut all = self.located.iter();
        let (_, what) = all.find(|(location, _)| passes(&location.way, directory))?;
        Some(Reservation::Way(what.clone()))
    }

    /// Reservation of an open file: its bytes are those of a reserved one, under whichever name.
    pub fn of_file(&self, file: EntryId) -> Option<Reservation> {
        let is_it =
            |(location, _): &&(Location, _)| !location.is_directory && location.entry == Some(file);
        let (_, what) = self.located.iter().find(is_it)?;
        Some(Reservation::Content(what.clone()))
    }
}

/// Compared without case: a folder may lie on a file system that ignores it, also on Linux (network, removable disks).
fn is_same(one: &OsStr, other: &OsStr) -> bool {
    one == other || folded(one).is_some_and(|one| folded(other).is_some_and(|other| one == other))
}

fn folded(name: &OsStr) -> Option<String> {
    // By way of capitals: some small letters have the same one.
    Some(name.to_str()?.to_uppercase().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::OpenDirectories;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn names(root: &Path, paths: &[ReservedPath]) -> ReservedNames {
        let open = OpenDirectories::default().open(root).unwrap();
        ReservedNames::new(&open, &paths.into())
    }

    fn reserved(root: &Path, paths: &[&str]) -> LocatedNames {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| ReservedPath {
                path: root.join(path),
                what: (*path).to_owned(),
                is_secret: false,
            })
            .collect();
        names(root, &paths).locate().unwrap()
    }

    #[test]
    fn names_on_the_way_stay_and_the_last_one_is_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("conf/tree/deep")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        fs::write(at("conf/host.toml"), "").unwrap();
        fs::hard_link(at("conf/host.toml"), at("other/link")).unwrap();
        symlink("conf/host.toml", at("named.toml")).unwrap();
        let names = reserved(
            folder.path(),
            &["named.toml", "conf/tree", "new/folder/file"],
        );
        let of = |parent: &str, name: &str| {
            let parent = File::open(at(parent)).unwrap();
            match names.of_entry(&parent, name.as_ref()).unwrap() {
                None => "free",
                Some(Reservation::Way(_)) => "way",
                Some(Reservation::Content(_)) => "content",
            }
        };
        for (parent, name, expect) in [
            ("", "named.toml", "way"),
            ("", "conf", "way"),
            ("conf", "host.toml", "content"),
            ("conf", "HOST.toml", "content"),
            ("conf", "ho\u{17f}t.toml", "content"),
            ("conf", "other.toml", "free"),
            ("conf", "tree", "content"),
            ("conf/tree", "any", "content"),
            ("conf/tree/deep", "any", "content"),
            ("", "new", "content"),
            ("other", "host.toml", "free"),
        ] {
            assert_eq!(of(parent, name), expect, "{parent}/{name}");
        }
        let linked = EntryId::of(&File::open(at("other/link")).unwrap()).unwrap();
        assert!(names.of_file(linked).is_some());
        let folder_of =
            |name: &str| names.of_folder(EntryId::of(&File::open(at(name)).unwrap()).unwrap());
        assert!(matches!(folder_of("conf"), Some(Reservation::Way(_))));
        let content = folder_of("conf/tree");
        assert!(matches!(content, Some(Reservation::Content(_))));
        assert_eq!(folder_of("other"), None);
        let other = EntryId::of(&File::open(at("other")).unwrap()).unwrap();
        assert_eq!(names.of_file(other), None);
    }

    #[test]
    fn a_path_that_an_operator_moves_into_the_directory_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("granted")).unwrap();
        fs::write(at("server"), "").unwrap();
        let path = ReservedPath {
            path: at("server"),
            what: "a program".into(),
            is_secret: false,
        };
        let names = names(&at("granted"), &[path]);
        assert!(names.is_known_free() && names.is_free());
        fs::rename(at("server"), at("granted/server")).unwrap();
        symlink(at("granted/server"), at("server")).unwrap();
        if let Some(inside) = &names.inside {
            inside.lock().looked -= MAX_AGE;
        }
        assert!(!names.is_known_free() && !names.is_free());
        let root = File::open(at("granted")).unwrap();
        let entry = names.locate().unwrap().of_entry(&root, "server".as_ref());
        assert!(matches!(entry.unwrap(), Some(Reservation::Content(_))));
    }

    #[test]
    fn a_missing_name_that_appears_is_reserved_as_it_is_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = ReservedPath {
            path: folder.path().join("a/b/file"),
            what: "file".into(),
            is_secret: false,
        };
        let root = File::open(folder.path()).unwrap();
        let names = names(folder.path(), &[path]);
        let before = names.locate().unwrap();
        let of = |names: &LocatedNames| names.of_entry(&root, "a".as_ref()).unwrap();
        assert!(matches!(of(&before), Some(Reservation::Content(_))));
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let after = names.locate().unwrap();
        assert!(matches!(of(&after), Some(Reservation::Way(_))));
        let inner = File::open(folder.path().join("a/b")).unwrap();
        let file = after.of_entry(&inner, "file".as_ref()).unwrap();
        assert!(matches!(file, Some(Reservation::Content(_))));
    }
}
