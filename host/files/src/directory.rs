//! Directories that are found once and stay open, whatever their names mean later.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// As many as Linux follows in a path.
const MAX_LINKS: u32 = 40;

/// Opens a directory without following a link. Only as a place (`O_PATH`) where the system has that: the way to a
/// directory may lead through some that cannot be read.
#[cfg(any(target_os = "linux", target_os = "android"))]
const AS_PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const AS_PLACE: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Device and inode, which tell a file or directory from all others of this machine under every name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    device: u64,
    inode: u64,
}

impl EntryId {
    /// # Errors
    /// The file system does not answer.
    pub fn of(entry: &File) -> io::Result<Self> {
        Ok(Self::from(&entry.metadata()?))
    }
}

impl From<&Metadata> for EntryId {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl From<&Stat> for EntryId {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// One step on the way of a path: a name, and the directory in which it was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    pub directory: EntryId,
    pub name: OsString,
}

/// An open directory. It stays the same one when it is renamed, or when its name is given to another.
#[derive(Debug)]
pub struct Directory {
    file: File,
    path: PathBuf,
    id: EntryId,
}

/// Where a path leads.
#[derive(Debug)]
pub struct Resolution {
    /// Lookups of all names of the path and of the links on its way. A writer of one of their directories decides
    /// where the path leads next time. Complete up to where the path ends or fails.
    pub way: Vec<Lookup>,
    pub directory: io::Result<Directory>,
}

/// True if one of the names was looked up in this directory.
pub fn passes(way: &[Lookup], directory: EntryId) -> bool {
    way.iter().any(|lookup| lookup.directory == directory)
}

/// Place of a path that may name a file, a directory or nothing yet.
#[derive(Debug)]
pub struct Location {
    /// Lookups as in [`Resolution::way`]. The last name is the entry's own or, where the path ends early, the first one
    /// that does not exist.
    pub way: Vec<Lookup>,
    /// Absent: the path ends early.
    pub entry: Option<EntryId>,
    pub is_directory: bool,
}

impl Location {
    /// Follows `path` from the root, links included.
    ///
    /// # Errors
    /// There is no working folder for a relative path, the root cannot be opened, or the system has no descriptor left
    /// for the next name. It is then unknown where the path leads.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut way = Vec::new();
        let path = std::path::absolute(path)?;
        let mut walk = PathWalk::new(MAX_LINKS)?;
        let (entry, is_directory) = match walk.follow(&path, &mut way) {
            Ok(()) => (EntryId::of(&walk.at).ok(), true),
            Err(error) if is_shortage(&error) => return Err(error),
            Err(_) => (walk.file(way.last()), false),
        };
        Ok(Self {
            way,
            entry,
            is_directory,
        })
    }
}

impl Directory {
    /// Follows `path` from the root, links included, and opens the directory at its end.
    pub fn resolve(path: &Path) -> Resolution {
        let mut way = Vec::new();
        let directory = found(path, &mut way);
        Resolution { way, directory }
    }

    /// The handle. A place only: entries are opened and listed relative to it.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn into_file(self) -> File {
        self.file
    }

    /// The path without links that it had when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn id(&self) -> EntryId {
        self.id
    }
}

/// Opens the directory of that name in `parent`, which is no link.
///
/// # Errors
/// What the file system says; it is something else.
pub fn open_folder(parent: &File, name: &OsStr) -> io::Result<File> {
    Ok(openat(parent, name, AS_PLACE, Mode::empty())?.into())
}

fn found(path: &Path, way: &mut Vec<Lookup>) -> io::Result<Directory> {
    let mut followed = PathWalk::new(MAX_LINKS)?;
    followed.follow(&std::path::absolute(path)?, way)?;
    let path = followed.path();
    let id = EntryId::of(&followed.at)?;
    // The names that were followed may have been exchanged on the way. This is the path that people approve, so it
    // must be the one of this very directory, without any link.
    let mut exact = PathWalk::new(0)?;
    exact.follow(&path, &mut Vec::new())?;
    if EntryId::of(&exact.at)? != id {
        return Err(io::Error::other(
            "it was exchanged while it was opened; try again",
        ));
    }
    Ok(Directory {
        file: exact.at,
        path,
        id,
    })
}

/// A way through directories, name by name, from the root. No name is ever followed by the system.
struct PathWalk {
    at: File,
    names: Vec<OsString>,
    links_left: u32,
}

impl PathWalk {
    fn new(links_left: u32) -> io::Result<Self> {
        Ok(Self {
            at: root()?,
            names: Vec::new(),
            links_left,
        })
    }

    fn follow(&mut self, path: &Path, way: &mut Vec<Lookup>) -> io::Result<()> {
        let mut pending = steps(path);
        while let Some(name) = pending.pop() {
            if name == ".." {
                self.at = open_folder(&self.at, &name)?;
                self.names.pop();
                continue;
            }
            way.push(Lookup {
                directory: EntryId::of(&self.at)?,
                name: name.clone(),
            });
            match open_folder(&self.at, &name) {
                Ok(directory) => {
                    self.at = directory;
                    self.names.push(name);
                }
                Err(error) => {
                    let Ok(target) = readlinkat(&self.at, &name, Vec::new()) else {
                        return Err(error);
                    };
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    self.links_left = self
                        .links_left
                        .checked_sub(1)
                        .ok_or_else(|| self.too_many_links(&name))?;
                    if target.is_absolute() {
                        (self.at, self.names) = (root()?, Vec::new());
                    }
                    pending.extend(steps(&target));
                }
            }
        }
        Ok(())
    }

    /// The file at the last name, where the walk ended because that is no directory.
    fn file(&self, last: Option<&Lookup>) -> Option<EntryId> {
        let stat = statat(&self.at, &last?.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_file = !matches!(kind, FileType::Directory | FileType::Symlink);
        is_file.then(|| EntryId::from(&stat))
    }

    fn path(&self) -> PathBuf {
        let mut path = PathBuf::from("/");
        path.extend(&self.names);
        path
    }

    fn too_many_links(&self, name: &OsStr) -> io::Error {
        let at = self.path().join(name);
        io::Error::other(format!("{} is one symbolic link too many", at.display()))
    }
}

/// True if the system could not look: what is at the name is not known.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
    let is_it = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    shortages.into_iter().any(is_it)
}

fn root() -> io::Result<File> {
    let root = rustix::fs::openat(rustix::fs::CWD, "/", AS_PLACE, Mode::empty())?;
    Ok(root.into())
}

/// The names of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn id(path: &Path) -> EntryId {
        EntryId::of(&File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_directory_stays_the_same_when_its_name_is_given_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("outside")).unwrap();
        fs::create_dir_all(at("proj/sub")).unwrap();
        fs::write(at("proj/sub/file"), "mine").unwrap();
        let opened = Directory::resolve(&at("proj/sub")).directory.unwrap();
        fs::rename(at("proj/sub"), at("proj/moved")).unwrap();
        symlink(at("outside"), at("proj/sub")).unwrap();
        assert_eq!(opened.id(), id(&at("proj/moved")));
        let inside = cap_std::fs::Dir::from_std_file(opened.file().try_clone().unwrap());
        assert_eq!(inside.read_to_string("file").unwrap(), "mine");
        // By name, it is another now, and its path says so.
        let again = Directory::resolve(&at("proj/sub")).directory.unwrap();
        assert_eq!(again.path(), fs::canonicalize(at("outside")).unwrap());
        assert_ne!(again.path(), opened.path());
    }

    #[test]
    fn the_way_names_every_directory_that_decides_where_a_path_leads() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir_all(at("links")).unwrap();
        symlink(at("a"), at("links/to-a")).unwrap();
        symlink("../links/to-a/b", at("links/to-b")).unwrap();
        let resolution = Directory::resolve(&at("links/to-b"));
        let directory = resolution.directory.unwrap();
        assert_eq!(directory.path(), fs::canonicalize(at("a/b")).unwrap());
        for passed in ["", "links", "a"] {
            assert!(passes(&resolution.way, id(&at(passed))), "{passed:?}");
        }
        assert!(!passes(&resolution.way, directory.id()));
        // A name that is not there is looked up, too: it may be there next time.
        let absent = Directory::resolve(&at("a/b/absent/deeper"));
        assert!(passes(&absent.way, id(&at("a/b"))));
        assert_eq!(
            absent.directory.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        // `..` after a name: who may exchange the name decides.
        let back = Directory::resolve(&at("a/b/.."));
        assert!(passes(&back.way, id(&at("a"))));
        assert_eq!(back.directory.unwrap().id(), id(&at("a")));
    }

    #[test]
    fn what_is_no_directory_ends_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        for (name, expect) in [
            ("file", "Not a directory"),
            ("file/x", "Not a directory"),
            ("loop", "symbolic link too many"),
            ("absent", "No such file"),
        ] {
            let error = Directory::resolve(&at(name)).directory.unwrap_err();
            assert!(error.to_string().contains(expect), "{name}: {error}");
        }
        let root = Directory::resolve(Path::new("/../.")).directory.unwrap();
        assert_eq!(root.path(), Path::new("/"));
    }

    #[test]
    fn a_location_has_each_name_that_leads_to_a_file_or_to_the_first_missing_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "").unwrap();
        symlink("a/b/file", at("link")).unwrap();
        symlink("a/new", at("dangling")).unwrap();
        let root = id(&at(""));
        let ends = [
            ("a/b/file", "file", Some(false)),
            ("link", "file", Some(false)),
            ("a/b", "b", Some(true)),
            ("a/b/absent/deeper", "absent", None),
            ("dangling", "new", None),
            ("a/b/file/below", "file", Some(false)),
        ];
        for (path, last, found) in ends {
            let location = Location::of(&at(path)).unwrap();
            assert_eq!(location.way.last().unwrap().name, last, "{path}");
            assert_eq!(
                location.entry.map(|_| location.is_directory),
                found,
                "{path}"
            );
            assert!(passes(&location.way, root), "{path}");
        }
        let names: Vec<_> = Location::of(&at("link")).unwrap().way;
        let below: Vec<_> = names.iter().skip_while(|it| it.directory != root).collect();
        assert_eq!(below.len(), 4, "link, a, b, file: {below:?}");
        let file = File::open(at("a/b/file")).unwrap();
        let entry = Location::of(&at("link")).unwrap().entry;
        assert_eq!(entry, Some(EntryId::of(&file).unwrap()));
    }
}
