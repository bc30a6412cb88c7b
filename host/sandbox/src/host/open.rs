//! Opening nothing but files and directories.
//!
//! Opening a FIFO blocks in the kernel until another process opens its other end, and no deadline reaches
//! there: the call would end in time, and leave a thread behind for good. Devices and sockets are
//! nothing that a grant of a directory means either. What is there is looked at first, so that a device is not even
//! opened; and because a guest may rename another entry to that name in between, it is opened without waiting, and
//! what was opened is looked at again.

use crate::call::CallState;
use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{Dir, FileType, OpenOptions};
use std::io;
use std::path::Path;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{self, Descriptor};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, OpenFlags, PathFlags,
};
use wasmtime_wasi::runtime::spawn_blocking;
use wasmtime_wasi::{FsPerms, OpenMode};

/// `descriptor.open-at` as wasmtime has it, but for what is said above.
pub async fn at(
    state: &mut CallState,
    fd: &Resource<Descriptor>,
    path_flags: PathFlags,
    path: String,
    open: OpenFlags,
    flags: DescriptorFlags,
) -> FsResult<Resource<Descriptor>> {
    let Descriptor::Dir(dir) = state.table.get(fd)? else {
        return Err(ErrorCode::NotDirectory.into());
    };
    let (perms, folder) = (dir.perms, dir.dir.clone());
    let (options, mode) = options(path_flags, open, flags, perms)?;
    let follow = path_flags.contains(PathFlags::SYMLINK_FOLLOW);
    // Not begun any more when the call is over.
    let opened = spawn_blocking(move || {
        let folder = Dir::from_std_file(folder.try_clone()?);
        checked(&folder, path.as_ref(), follow, &options)
    });
    let (file, kind) = opened.await?;
    let descriptor = if kind.is_dir() {
        Descriptor::Dir(filesystem::Dir::new(file, perms, mode, false))
    } else if open.contains(OpenFlags::DIRECTORY) {
        return Err(ErrorCode::NotDirectory.into());
    } else {
        Descriptor::File(filesystem::File::new(file, perms, mode, false))
    };
    Ok(state.table.push(descriptor)?)
}

/// What the system is told, and the mode of the descriptor.
fn options(
    path_flags: PathFlags,
    open: OpenFlags,
    flags: DescriptorFlags,
    perms: FsPerms,
) -> FsResult<(OpenOptions, OpenMode)> {
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
        return Err(ErrorCode::Unsupported.into());
    }
    let changes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
    if open.contains(OpenFlags::DIRECTORY) && open.intersects(changes) {
        return Err(ErrorCode::Invalid.into());
    }
    if perms.write_not_permitted() && mode.contains(OpenMode::WRITE) {
        return Err(ErrorCode::NotPermitted.into());
    }
    Ok((options, mode))
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
