//! Opening nothing but files and directories.
//!
//! Opening a FIFO blocks in the kernel until another process opens its other end, and no deadline reaches
//! there: the call would end in time, and leave a thread behind for good. Devices and sockets are
//! nothing that a grant of a directory means either. What is there is looked at first, so that a device is not even
//! opened; and because a guest may rename another entry to that name in between, it is opened without waiting, and
//! what was opened is looked at again.

use super::held_entry;
use crate::call::CallState;
use crate::grant::{Reservation, ReservedNames};
use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{Dir, FileType, OpenOptions};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_files::EntryId;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{self, Descriptor};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, OpenMode};

/// Why nothing was opened.
pub enum OpenFault {
    Code(ErrorCode),
    /// The entry belongs to this host, and was to be changed.
    Reserved(Reservation),
}

impl From<io::Error> for OpenFault {
    fn from(error: io::Error) -> Self {
        Self::Code(error.into())
    }
}

/// An open file or directory.
struct Opened {
    file: File,
    kind: FileType,
    /// True if it belongs to this host: the guest may read it.
    is_reserved: bool,
}

/// `descriptor.open-at` as wasmtime has it, except for FIFOs, devices and names that are reserved for this host. The
/// outer error ends the call.
pub async fn at(
    state: &mut CallState,
    fd: &Resource<Descriptor>,
    (path_flags, path): (PathFlags, String),
    open: OpenFlags,
    flags: DescriptorFlags,
    reserved: Option<Arc<ReservedNames>>,
) -> wasmtime::Result<Result<Resource<Descriptor>, OpenFault>> {
    let Descriptor::Dir(dir) = state.table.get(fd)? else {
        return Ok(Err(OpenFault::Code(ErrorCode::NotDirectory)));
    };
    let (perms, folder) = (dir.perms, dir.dir.clone());
    let (options, mode) = match options(path_flags, open, flags, perms) {
        Ok(options) => options,
        Err(code) => return Ok(Err(OpenFault::Code(code))),
    };
    let follow = path_flags.contains(PathFlags::SYMLINK_FOLLOW);
    let is_written = mode.contains(OpenMode::WRITE);
    // Not begun any more when the call is over.
    let opened = state.work.run(move |_| {
        let folder = Dir::from_std_file(folder.try_clone()?);
        match reserved {
            Some(names) if !names.is_free() => {
                let wish = Wish {
                    open,
                    options: &options,
                    is_written,
                    follow,
                };
                reserving(&folder, &path, &names, &wish)
            }
            names => {
                let wish = Wish {
                    open,
                    options: &options,
                    is_written,
                    follow,
                };
                sparing(&folder, path.as_ref(), names.as_deref(), &wish)
            }
        }
    });
    let Opened {
        file,
        kind,
        is_reserved,
    } = match opened.await {
        Ok(opened) => opened,
        Err(fault) => return Ok(Err(fault)),
    };
    let perms = if is_reserved {
        FsPerms::ReadOnly
    } else {
        perms
    };
    let descriptor = if kind.is_dir() {
        Descriptor::Dir(filesystem::Dir::new(file, perms, mode, false))
    } else if open.contains(OpenFlags::DIRECTORY) {
        return Ok(Err(OpenFault::Code(ErrorCode::NotDirectory)));
    } else {
        Descriptor::File(filesystem::File::new(file, perms, mode, false))
    };
    Ok(Ok(state.table.push(descriptor)?))
}

/// What the system is told, and the mode of the descriptor.
fn options(
    path_flags: PathFlags,
    open: OpenFlags,
    flags: DescriptorFlags,
    perms: FsPerms,
) -> Result<(OpenOptions, OpenMode), ErrorCode> {
    let mut options = OpenOptions::new();
    let mut mode = OpenMode::empty();
    let create = open.contains(OpenFlags::CREATE);
    if create {
        options.create_new(open.contains(OpenFlags::EXCLUSIVE));
        options.create(!open.contains(OpenFlags::EXCLUSIVE));
    }
    options.truncate(open.contains(OpenFlags::TRUNCATE));
    if create || open.contains(OpenFlags::TRUNCATE) || flags.contains(DescriptorFlags::WRITE) {
        options.write(true);
        mode |= OpenMode::WRITE;
    }
    // What is not opened to write is opened to read, so that the system opens it; the mode refuses the use of it.
    if flags.contains(DescriptorFlags::READ) || !flags.contains(DescriptorFlags::WRITE) {
        options.read(true);
        mode |= OpenMode::READ;
    }
    options.follow(if path_flags.contains(PathFlags::SYMLINK_FOLLOW) {
        FollowSymlinks::Yes
    } else {
        FollowSymlinks::No
    });
    options.nonblock(true);
    let synchronous = DescriptorFlags::FILE_INTEGRITY_SYNC
        | DescriptorFlags::DATA_INTEGRITY_SYNC
        | DescriptorFlags::REQUESTED_WRITE_SYNC;
    if flags.intersects(synchronous) {
        return Err(ErrorCode::Unsupported);
    }
    let changes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
    if open.contains(OpenFlags::DIRECTORY) && open.intersects(changes) {
        return Err(ErrorCode::Invalid);
    }
    if perms.write_not_permitted() && mode.contains(OpenMode::WRITE) {
        return Err(ErrorCode::NotPermitted);
    }
    Ok((options, mode))
}

/// How a guest wants to open an entry.
struct Wish<'a> {
    open: OpenFlags,
    options: &'a OpenOptions,
    is_written: bool,
    follow: bool,
}

/// Opens `path` in a directory in which names are reserved. A file is cut only after it was compared, and a link in the
/// last place is followed here, so that each entry is opened by its own name in a directory that was compared.
fn reserving(
    folder: &Dir,
    path: &str,
    reserved: &ReservedNames,
    wish: &Wish<'_>,
) -> Result<Opened, OpenFault> {
    let names = reserved.locate()?;
    // A slash at the end says that a directory is meant.
    let is_folder = path.ends_with('/');
    if is_folder && wish.open.contains(OpenFlags::CREATE) {
        return Err(OpenFault::Code(ErrorCode::IsDirectory));
    }
    // A new file takes the place of no link.
    let follow = wish.follow && !wish.open.contains(OpenFlags::EXCLUSIVE);
    let path = if follow {
        held_entry::without_link(folder, path.into())?
    } else {
        PathBuf::from(path)
    };
    let Some((parent, name)) = held_entry::parent(folder, &path)? else {
        // `.` or `..`: a directory, which `open` can neither make nor cut.
        let (file, kind) = checked(folder, &path, wish.follow, wish.options)?;
        let is_reserved = kind.is_dir() && names.of_directory(&file)?.is_some();
        return Ok(Opened {
            file,
            kind,
            is_reserved,
        });
    };
    let content = match held_entry::reservation(&names, &parent, name)? {
        Some(content @ Reservation::Content(_)) => Some(content),
        Some(Reservation::Way(_)) | None => None,
    };
    if let Some(content) = content.clone().filter(|_| wish.is_written) {
        return Err(OpenFault::Reserved(content));
    }
    let mut options = wish.options.clone();
    options.follow(FollowSymlinks::No).truncate(false);
    let (file, kind) = checked(&parent, name.as_ref(), false, &options)?;
    if is_folder && !kind.is_dir() {
        return Err(OpenFault::Code(ErrorCode::NotDirectory));
    }
    // The entry may have been exchanged since: the opened file counts.
    let opened = if kind.is_dir() {
        names.of_directory(&file)?
    } else {
        match names.of_file(EntryId::of(&file)?) {
            None => linked(&file, kind, reserved)?,
            found => found,
        }
    };
    finished(file, kind, content.or(opened), wish)
}

/// Reservation of an open file by another name, which may lie in any directory.
fn linked(
    file: &File,
    kind: FileType,
    reserved: &ReservedNames,
) -> io::Result<Option<Reservation>> {
    let metadata = file.metadata()?;
    if !kind.is_file() || metadata.nlink() < 2 {
        return Ok(None);
    }
    reserved.of_linked(EntryId::from(&metadata))
}

/// Opens `path` in a directory in which no name is reserved. A file with several names may have one elsewhere that is.
fn sparing(
    folder: &Dir,
    path: &Path,
    reserved: Option<&ReservedNames>,
    wish: &Wish<'_>,
) -> Result<Opened, OpenFault> {
    let mut options = wish.options.clone();
    options.truncate(false);
    let (file, kind) = checked(folder, path, wish.follow, &options)?;
    let reservation = match reserved {
        Some(names) => linked(&file, kind, names)?,
        None => None,
    };
    finished(file, kind, reservation, wish)
}

/// The opened entry, emptied where that was asked for; an error where it is to be written and is reserved.
fn finished(
    file: File,
    kind: FileType,
    reservation: Option<Reservation>,
    wish: &Wish<'_>,
) -> Result<Opened, OpenFault> {
    let is_reserved = reservation.is_some();
    if let Some(reservation) = reservation.filter(|_| wish.is_written) {
        return Err(OpenFault::Reserved(reservation));
    }
    if wish.open.contains(OpenFlags::TRUNCATE) && kind.is_file() {
        file.set_len(0)?;
    }
    Ok(Opened {
        file,
        kind,
        is_reserved,
    })
}

/// Opens `path`, if it is a file or a directory before and after that.
pub(super) fn checked(
    folder: &Dir,
    path: &Path,
    follow: bool,
    options: &OpenOptions,
) -> io::Result<(std::fs::File, FileType)> {
    let seen = if follow {
        folder.metadata(path)
    } else {
        folder.symlink_metadata(path)
    };
    if seen.is_ok_and(|seen| is_special(seen.file_type())) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    open_now(folder, path, options)
}

/// Opens `path` without waiting, if it is a file or a directory.
fn open_now(
    folder: &Dir,
    path: &Path,
    options: &OpenOptions,
) -> io::Result<(std::fs::File, FileType)> {
    let opened = folder.open_with(path, options)?;
    let kind = opened.metadata()?.file_type();
    if is_special(kind) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok((opened.into_std(), kind))
}

fn is_special(kind: FileType) -> bool {
    !(kind.is_file() || kind.is_dir() || kind.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cap_std::ambient_authority;
    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    /// As if it had been renamed there between the first look and opening.
    #[test]
    fn a_fifo_that_comes_after_the_first_look_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, Kind::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let folder = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        for (open, flags) in [
            (OpenFlags::empty(), DescriptorFlags::READ),
            (OpenFlags::empty(), DescriptorFlags::WRITE),
            (OpenFlags::CREATE, DescriptorFlags::READ),
            (OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        ] {
            let follow = PathFlags::SYMLINK_FOLLOW;
            let (options, _) = options(follow, open, flags, FsPerms::ReadWrite).unwrap();
            assert!(open_now(&folder, "fifo".as_ref(), &options).is_err());
            let error = checked(&folder, "fifo".as_ref(), true, &options).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
