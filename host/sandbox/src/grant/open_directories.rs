//! The directories that modules are granted: found once, and open from then on.
//!
//! A path that is granted is looked up when the grant takes effect, and never again: all calls share the handle, also
//! after the configuration was read again. Where a path leads the next time, after a restart, is decided by those
//! who may write to a directory on its way. So no module may: a directory that leads through another one that a
//! module may write to is refused, and so is that other one. `docs/security.md`, "Names and handles".

use super::reserved::ReservedPath;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_files::{Directory, EntryId, Location, Lookup, Resolution, passes};
use toolhold_policy::Access;
use wasmtime_wasi::filesystem::Dir;
use wasmtime_wasi::{FsPerms, OpenMode};

/// A directory of this host that is open as long as somebody is granted it.
pub(crate) struct OpenDirectory {
    /// For reading. Clones share the handle.
    handle: Dir,
    /// The path without links that it had when it was opened.
    pub path: PathBuf,
    id: EntryId,
    way: Vec<Lookup>,
}

impl std::fmt::Debug for OpenDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenDirectory").field(&self.path).finish()
    }
}

impl OpenDirectory {
    fn open(path: &Path) -> io::Result<Self> {
        let resolution = Directory::resolve(path);
        let directory = resolution.directory?;
        let (path, id) = (directory.path().to_owned(), directory.id());
        Ok(Self {
            handle: Dir::new(
                directory.into_file(),
                FsPerms::ReadOnly,
                OpenMode::READ,
                false,
            ),
            path,
            id,
            way: resolution.way,
        })
    }

    /// As a guest gets it.
    pub fn with(&self, access: Access) -> Dir {
        let mut dir = self.handle.clone();
        if access == Access::ReadWrite {
            dir.perms = FsPerms::ReadWrite;
            dir.open_mode = OpenMode::READ | OpenMode::WRITE;
        }
        dir
    }

    /// A folder that this host made in this one, by its path, for a guest to write to.
    pub fn folder(&self, path: &Path) -> io::Result<Dir> {
        let name = path.file_name().unwrap_or_default();
        let folder = toolhold_files::open_folder(self.file(), name).map_err(|error| {
            let at = self.path.display();
            let reason = format!(
                "{} cannot be opened: {error}; if {at} was exchanged while this process runs, start it again",
                path.display()
            );
            io::Error::new(error.kind(), reason)
        })?;
        let mode = OpenMode::READ | OpenMode::WRITE;
        Ok(Dir::new(folder, FsPerms::ReadWrite, mode, false))
    }

    /// The identity of the directory.
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// The open directory.
    pub fn file(&self) -> &Arc<std::fs::File> {
        &self.handle.dir
    }
}

/// Open directories of one registry: those that modules are granted, and those of this host.
#[derive(Debug, Default)]
pub(crate) struct OpenDirectories(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    places: Vec<Place>,
    reserved: Arc<[ReservedPath]>,
    /// By path as the operator wrote it.
    open: HashMap<PathBuf, Arc<OpenDirectory>>,
}

/// A directory that a module is granted, or that this host keeps its own files in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Absent: this host.
    pub module: Option<String>,
    /// As the operator wrote it.
    pub path: PathBuf,
    pub access: Access,
}

/// Where a place is now, as far as it can be said.
struct Located<'a> {
    place: &'a Place,
    /// Absent: it cannot be opened.
    id: Option<EntryId>,
    way: Vec<Lookup>,
}

impl OpenDirectories {
    pub fn new(places: Vec<Place>, reserved: Arc<[ReservedPath]>) -> Self {
        let held = Self::default();
        held.govern(places, reserved);
        held
    }

    /// From now on, these places count. Directories that are granted no more are closed.
    pub fn govern(&self, mut places: Vec<Place>, reserved: Arc<[ReservedPath]>) {
        // In one order, so that the same configuration is refused with the same words.
        places.sort_by(|one, other| (&one.module, &one.path).cmp(&(&other.module, &other.path)));
        let mut table = self.0.lock();
        let is_left = |path: &PathBuf| places.iter().any(|place| place.path == *path);
        table.open.retain(|path, _| is_left(path));
        table.places = places;
        table.reserved = reserved;
    }

    /// Files and folders that the host takes decisions from, or runs.
    pub fn reserved(&self) -> Arc<[ReservedPath]> {
        self.0.lock().reserved.clone()
    }

    /// The directory at `path`: the one that was opened first. Blocks on the file system.
    pub fn open(&self, path: &Path) -> io::Result<Arc<OpenDirectory>> {
        if let Some(open) = self.0.lock().open.get(path) {
            return Ok(open.clone());
        }
        // Not under the lock: a network may be in between.
        let open = Arc::new(OpenDirectory::open(path)?);
        let mut table = self.0.lock();
        let open = table.open.entry(path.to_owned()).or_insert(open);
        Ok(open.clone())
    }

    /// Why `module` cannot be given its directories beside those of all others. Blocks on the file system.
    pub fn conflict(&self, module: &str) -> Option<String> {
        let places = self.0.lock().places.clone();
        let is_own = |place: &Place| place.module.as_deref() == Some(module);
        if !places.iter().any(is_own) {
            return None;
        }
        let located: Vec<_> = places.iter().map(|place| self.locate(place)).collect();
        let own = || located.iter().filter(|it| is_own(it.place));
        let pairs = own().flat_map(|own| located.iter().map(move |other| (own, other)));
        let mut overlaps = pairs.filter_map(|(own, other)| overlap(own, other));
        overlaps.next().or_else(|| {
            let reserved = self.reserved();
            let mut all = reserved.iter();
            all.find_map(|path| {
                let at = path.path.display();
                match Location::of(&path.path) {
                    Ok(location) => own().find_map(|own| reservation(own, path, &location)),
                    Err(error) => Some(format!(
                        "{at}, {}, cannot be looked for ({error}), so no directory is given; try again",
                        path.what
                    )),
                }
            })
        })
    }

    /// What a module is granted is pinned with this, so that its place cannot change until the module is loaded.
    fn locate<'a>(&self, place: &'a Place) -> Located<'a> {
        if place.module.is_some()
            && let Ok(open) = self.open(&place.path)
        {
            let (id, way) = (Some(open.id), open.way.clone());
            return Located { place, id, way };
        }
        let Resolution { way, directory } = Directory::resolve(&place.path);
        let id = directory.ok().map(|directory| directory.id());
        Located { place, id, way }
    }
}

/// Why `own` cannot be given beside `other`.
fn overlap(own: &Located<'_>, other: &Located<'_>) -> Option<String> {
    let is_within = |outer: &Located<'_>, inner: &Located<'_>| {
        // What this host writes itself is no module's to exchange.
        outer.place.module.is_some()
            && outer.place.access == Access::ReadWrite
            && outer.id.is_some_and(|id| passes(&inner.way, id))
    };
    let (path, holder) = (own.place.path.display(), other.place.holder(own.place));
    let at = other.place.path.display();
    let beside = "grant directories that lie beside each other, or only the outer one";
    if is_within(other, own) {
        return Some(format!(
            "the directory {path} is reached through {at}, which {holder} may write to, and so could exchange it for a link; {beside}"
        ));
    }
    if is_within(own, other) {
        return Some(match other.place.module {
            Some(_) => format!(
                "the directory {path} may be written to, and {at}, which is granted to {holder}, is reached through it, so it could be exchanged for a link; {beside}"
            ),
            None => format!(
                "the directory {path} may be written to, and this host keeps its own files in it, in {at}; grant a directory without them"
            ),
        });
    }
    let writes = |it: &Located<'_>| it.place.access == Access::ReadWrite;
    let is_twice = own.place != other.place
        && own.place.module == other.place.module
        && own.id.is_some()
        && own.id == other.id
        && writes(own) != writes(other);
    is_twice.then(|| {
        format!(
            "the directory {path} is granted twice, once to read and once to write; grant it once"
        )
    })
}

/// Why `own` cannot be given beside a path of this host.
fn reservation(own: &Located<'_>, path: &ReservedPath, location: &Location) -> Option<String> {
    let id = own.id?;
    let (at, reserved, what) = (own.place.path.display(), path.path.display(), &path.what);
    let is_written = own.place.access == Access::ReadWrite;
    let folder = location.entry.filter(|_| location.is_directory);
    let is_in = folder.is_some_and(|folder| folder == id || passes(&own.way, folder));
    if is_in && (is_written || path.is_secret) {
        let verb = if is_written { "write" } else { "read" };
        return Some(format!(
            "the directory {at} is, or lies in, {reserved}: {what}, which no module may {verb}; grant another directory"
        ));
    }
    (path.is_secret && passes(&location.way, id)).then(|| {
        format!(
            "the directory {at} leads to {reserved}: {what}, which no module may read; grant a directory without it, or move it"
        )
    })
}

impl Place {
    /// Who has this place, for a sentence about `own`.
    fn holder(&self, own: &Self) -> String {
        match &self.module {
            Some(module) if self.module != own.module => format!("the module {module}"),
            Some(_) => "it itself".to_owned(),
            None => "this host".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn places(root: &Path, granted: &[(&str, &str, Access)]) -> Vec<Place> {
        let place = |(module, path, access): &(&str, &str, Access)| Place {
            module: Some((*module).to_owned()),
            path: root.join(path),
            access: *access,
        };
        granted.iter().map(place).collect()
    }

    #[test]
    fn nobody_may_write_where_a_granted_path_is_looked_up() {
        use Access::{Read, ReadWrite};
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["proj/sub/deep", "projects", "links", "state/scratch"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        symlink("../proj/sub", at("links/sub")).unwrap();
        symlink(at("projects"), at("proj/away")).unwrap();
        symlink("proj", at("alias")).unwrap();
        let refused = [
            // What the issue is about, in one module and in two.
            (vec![("a", "proj", ReadWrite), ("a", "proj/sub", Read)], "a"),
            (
                vec![("a", "proj", ReadWrite), ("b", "proj/sub", Read)],
                "ab",
            ),
            (
                vec![("a", "proj", ReadWrite), ("b", "proj/sub/deep", ReadWrite)],
                "ab",
            ),
            // By other names.
            (
                vec![("a", "alias", ReadWrite), ("b", "proj/sub", Read)],
                "ab",
            ),
            (
                vec![("a", "proj", ReadWrite), ("b", "links/sub", Read)],
                "ab",
            ),
            (
                vec![("a", "links", ReadWrite), ("b", "links/sub", Read)],
                "ab",
            ),
            // It leads out already: the link lies where a guest may write.
            (
                vec![("a", "proj", ReadWrite), ("b", "proj/away", Read)],
                "ab",
            ),
            // It is not there yet, and a guest could make it.
            (
                vec![("a", "proj", ReadWrite), ("b", "proj/new", Read)],
                "ab",
            ),
            // Its own path leads through it.
            (vec![("a", "proj/sub/..", ReadWrite)], "a"),
            (vec![("a", "proj", ReadWrite), ("a", "proj", Read)], "a"),
            (vec![("a", "proj", ReadWrite), ("a", "alias", Read)], "a"),
            // This host's own files.
            (vec![("a", "state", ReadWrite), ("b", "proj", Read)], "a"),
        ];
        let allowed = [
            vec![("a", "proj", ReadWrite), ("b", "projects", ReadWrite)],
            vec![("a", "proj", Read), ("b", "proj/sub", ReadWrite)],
            vec![("a", "proj", Read), ("a", "proj/sub", Read)],
            vec![("a", "proj", ReadWrite), ("b", "proj", Read)],
            vec![("a", "state", Read)],
        ];
        let allowed = allowed.into_iter().map(|granted| (granted, ""));
        for (granted, whom) in refused.into_iter().chain(allowed) {
            let own = ["state/scratch", "state/new/key-value"].map(|path| Place {
                module: None,
                path: at(path),
                access: ReadWrite,
            });
            let mut all = places(root.path(), &granted);
            all.extend(own);
            let held = OpenDirectories::new(all, Arc::default());
            for module in ["a", "b"] {
                let reason = held.conflict(module);
                assert_eq!(
                    reason.is_some(),
                    whom.contains(module),
                    "{granted:?}: {module}: {reason:?}"
                );
            }
        }
        let both = [("a", "proj", ReadWrite), ("b", "proj/sub", Read)];
        let held = OpenDirectories::new(places(root.path(), &both), Arc::default());
        let reason = held.conflict("b").unwrap();
        let (sub, proj) = (at("proj/sub"), at("proj"));
        assert!(
            reason.starts_with(&format!(
                "the directory {} is reached through {}, which the module a may write to",
                sub.display(),
                proj.display()
            )),
            "{reason}"
        );
    }

    #[test]
    fn a_directory_is_held_as_long_as_it_is_granted() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("sub")).unwrap();
        fs::create_dir_all(at("outside")).unwrap();
        let granted = || places(root.path(), &[("a", "sub", Access::Read)]);
        let held = OpenDirectories::new(granted(), Arc::default());
        let before = held.open(&at("sub")).unwrap();
        fs::rename(at("sub"), at("moved")).unwrap();
        symlink("outside", at("sub")).unwrap();
        held.govern(granted(), Arc::default());
        let after = held.open(&at("sub")).unwrap();
        assert_eq!((after.id, &after.path), (before.id, &before.path));
        // Taken away and given again, it is looked up again.
        held.govern(Vec::new(), Arc::default());
        held.govern(granted(), Arc::default());
        let anew = held.open(&at("sub")).unwrap();
        assert_eq!(anew.path, fs::canonicalize(at("outside")).unwrap());
    }

    #[test]
    fn a_scratch_folder_is_no_link() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("scratch/call-1")).unwrap();
        symlink("/etc", at("scratch/call-2")).unwrap();
        let open = OpenDirectories::default().open(&at("scratch")).unwrap();
        open.folder(&at("scratch/call-1")).unwrap();
        let error = open.folder(&at("scratch/call-2")).err().unwrap();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        fs::rename(at("scratch"), at("other")).unwrap();
        fs::create_dir_all(at("scratch/call-3")).unwrap();
        assert!(open.folder(&at("scratch/call-3")).is_err());
    }
}
