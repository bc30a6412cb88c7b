//! An entry that a guest changes, by the handle of its directory.
//!
//! Where names of a granted directory are reserved for this host, a path that was checked could lead elsewhere when it
//! is used. So the entry's directory is opened first and compared, and the change is made through that handle, by the
//! entry's own name, which no file system follows. Where nothing is reserved, the guest's own path is used.

use super::files::Fd;
use crate::blocking::Stop;
use crate::call::CallState;
use crate::grant::{LocatedNames, Reservation, ReservedNames};
use cap_std::fs::Dir;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_files::EntryId;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::OpenMode;
use wasmtime_wasi::filesystem::{self, Descriptor};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

/// An entry that may be changed.
#[must_use = "its descriptor is released"]
pub(super) struct HeldEntry {
    fd: u32,
    name: String,
    /// True if `fd` was made for this change.
    is_own: bool,
}

impl HeldEntry {
    /// The directory that the name is looked up in.
    pub fn fd(&self) -> Fd {
        Resource::new_borrow(self.fd)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if links were followed already. A link that takes the entry's place later is not followed.
    pub fn is_found(&self) -> bool {
        self.is_own
    }
}

/// An entry, found.
enum FoundEntry {
    Entry { parent: File, name: String },
    Reserved(Reservation),
}

impl CallState {
    /// The entry at `path`, or that a link there leads to, unless it is reserved for this host.
    pub(super) async fn hold(
        &mut self,
        fd: &Fd,
        path: String,
        follow: bool,
    ) -> Result<std::result::Result<HeldEntry, ErrorCode>> {
        let as_written = |name: String| HeldEntry {
            fd: fd.rep(),
            name,
            is_own: false,
        };
        let of = self.files.file(fd).cloned();
        let reserved = of.as_ref().and_then(|of| of.reserved.clone());
        let Some(reserved) = reserved.filter(|reserved| !reserved.is_known_free()) else {
            return Ok(Ok(as_written(path)));
        };
        let Descriptor::Dir(directory) = self.table.get(fd)? else {
            return Ok(Err(ErrorCode::NotDirectory));
        };
        let (folder, perms) = (directory.dir.clone(), directory.perms);
        let asked = path.clone();
        let look = move |_: &Stop| find(&folder, &asked, &reserved, follow);
        let found = match self.done(look).await {
            // `.` and `..`, which no file system changes; any entry where nothing is reserved.
            Ok(None) => return Ok(Ok(as_written(path))),
            Ok(Some(found)) => found,
            Err(code) => return Ok(Err(code)),
        };
        let (parent, name) = match found {
            FoundEntry::Entry { parent, name } => (parent, name),
            FoundEntry::Reserved(reservation) => {
                return Ok(Err(self.reserved_for_host(fd, &path, &reservation)));
            }
        };
        let mode = OpenMode::READ | OpenMode::WRITE;
        let parent = filesystem::Dir::new(parent, perms, mode, false);
        // The host's own handle for one call: the guest's limit of handles does not count it.
        let limit = self.table.max_capacity();
        self.table.set_max_capacity(usize::MAX);
        let pushed = self.table.push(Descriptor::Dir(parent));
        self.table.set_max_capacity(limit);
        let parent = pushed?;
        self.files.set(&parent, of);
        Ok(Ok(HeldEntry {
            fd: parent.rep(),
            name,
            is_own: true,
        }))
    }

    /// Both entries of a move or a link.
    pub(super) async fn hold_both(
        &mut self,
        from: (&Fd, String),
        to: (&Fd, String),
    ) -> Result<std::result::Result<(HeldEntry, HeldEntry), ErrorCode>> {
        let from = match self.hold(from.0, from.1, false).await? {
            Ok(from) => from,
            Err(code) => return Ok(Err(code)),
        };
        match self.hold(to.0, to.1, false).await {
            Ok(Ok(to)) => Ok(Ok((from, to))),
            Ok(Err(code)) => {
                self.release(from)?;
                Ok(Err(code))
            }
            Err(error) => Err(error),
        }
    }

    /// Closes the directory of an entry that was changed.
    pub(super) fn release(&mut self, held: HeldEntry) -> Result<()> {
        if held.is_own {
            self.files.set(&held.fd(), None);
            self.table
                .delete(Resource::<Descriptor>::new_own(held.fd))?;
        }
        Ok(())
    }
}

/// The entry at `path`; `None` for one without a name of its own, and where no name is reserved. Blocks on the file
/// system.
fn find(
    folder: &Arc<File>,
    path: &str,
    reserved: &ReservedNames,
    follow: bool,
) -> io::Result<Option<FoundEntry>> {
    if reserved.is_free() {
        return Ok(None);
    }
    let folder = Dir::from_std_file(folder.try_clone()?);
    let names = reserved.locate()?;
    let followed = if follow {
        without_link(&folder, path.into())?
    } else {
        path.into()
    };
    let Some((parent, name)) = parent(&folder, &followed)? else {
        let directory = folder.open_dir(&followed)?.into_std_file();
        let reservation = names.of_directory(&directory)?;
        return Ok(reservation.map(FoundEntry::Reserved));
    };
    let reservation = reservation(&names, &parent, name)?;
    if let Some(reservation) = reservation {
        return Ok(Some(FoundEntry::Reserved(reservation)));
    }
    // A slash at the end says that a directory is meant.
    let slash = if path.ends_with('/') { "/" } else { "" };
    let name = name.to_str().map(|name| format!("{name}{slash}"));
    Ok(Some(FoundEntry::Entry {
        parent: parent.into_std_file(),
        name: name.ok_or(io::ErrorKind::InvalidFilename)?,
    }))
}

/// The directory that holds the last name of `path`, and that name; `None` if the last one is `.` or `..`.
///
/// # Errors
/// The file system's own; the path leads out of `folder`.
pub(super) fn parent<'p>(folder: &Dir, path: &'p Path) -> io::Result<Option<(Dir, &'p OsStr)>> {
    let Some(name) = path.file_name() else {
        return Ok(None);
    };
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => folder.open_dir(parent)?,
        _ => folder.try_clone()?,
    };
    Ok(Some((parent, name)))
}

/// Links that are followed in the last place of a path, as many as Linux does.
const MAX_LINKS: usize = 40;

/// `path` as it is where no link is in its last place.
///
/// # Errors
/// The file system's own; the path leads out of `folder`, or through too many links.
pub(super) fn without_link(folder: &Dir, mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..MAX_LINKS {
        let target = match parent(folder, &path)? {
            Some((parent, name)) if is_link(&parent, name) => {
                Some(parent.read_link_contents(name)?)
            }
            _ => None,
        };
        let Some(target) = target else {
            return Ok(path);
        };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn is_link(parent: &Dir, name: &OsStr) -> bool {
    let metadata = parent.symlink_metadata(name);
    metadata.is_ok_and(|metadata| metadata.file_type().is_symlink())
}

/// Reservation of the entry `name` of `parent`, by its place, as a folder, or by its bytes.
///
/// # Errors
/// The file system's own.
pub(super) fn reservation(
    names: &LocatedNames,
    parent: &Dir,
    name: &OsStr,
) -> io::Result<Option<Reservation>> {
    let place = parent.try_clone()?.into_std_file();
    if let Some(reservation) = names.of_entry(&place, name)? {
        return Ok(Some(reservation));
    }
    let entry = rustix::fs::statat(&place, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    Ok(entry.ok().and_then(|entry| {
        let id = EntryId::from(&entry);
        names.of_file(id).or_else(|| names.of_folder(id))
    }))
}
