//! Locks of a guest on files of its granted directories: the system's own, so that programs beside this host see them
//! and it sees theirs. `docs/security.md`, "How they are kept".

use super::open;
use crate::bindings::file_locks::{self, LockError, LockKind};
use crate::blocking::Stop;
use crate::call::CallState;
use crate::call::meter::RefusedResource;
use crate::disk::byte_lock::{self, ByteLock, LockableFile, LockedFile};
use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{Dir, OpenOptions};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_policy::CallClock as _;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::FsPerms;

/// The part of a call's time, as a divisor, that is left for its work and its answer when it has waited for a lock.
const RESERVE: u32 = 8;
/// The least and the most of that part.
const LEAST_RESERVE: Duration = Duration::from_millis(50);
const MOST_RESERVE: Duration = Duration::from_secs(2);

type LockAnswer<T> = Result<std::result::Result<T, LockError>>;

impl file_locks::Host for CallState {
    async fn patience(&mut self) -> Result<u64> {
        let (left, spent) = (self.clock.remaining(), self.clock.elapsed());
        let reserve = (left + spent) / RESERVE;
        let patience = left.saturating_sub(reserve.clamp(LEAST_RESERVE, MOST_RESERVE));
        Ok(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX))
    }
}

impl file_locks::HostLockableFile for CallState {
    async fn open(&mut self, path: String) -> LockAnswer<Resource<LockableFile>> {
        self.revocation.check()?;
        let Some((folder, perms, inside)) = self.granted_place(&path) else {
            return Ok(Err(LockError::Denied));
        };
        let Some(permit) = self.files.permit() else {
            self.gauge.refuse(RefusedResource::Descriptors);
            return Ok(Err(LockError::Failed));
        };
        let inside = inside.to_owned();
        let open = move |_: &Stop| opened(&folder, perms, inside.as_ref());
        let file = match self.work.run(open).await {
            Ok(file) => self.files.lock(file, permit),
            Err(_) => return Ok(Err(LockError::Denied)),
        };
        Ok(Ok(self.table.push(LockableFile(file))?))
    }

    async fn lock(
        &mut self,
        file: Resource<LockableFile>,
        start: u64,
        length: u64,
        kind: LockKind,
    ) -> LockAnswer<()> {
        let lock = match kind {
            LockKind::Shared => ByteLock::Shared,
            LockKind::Exclusive => ByteLock::Exclusive,
        };
        self.set_lock(&file, start, length, lock).await
    }

    async fn unlock(
        &mut self,
        file: Resource<LockableFile>,
        start: u64,
        length: u64,
    ) -> LockAnswer<()> {
        self.set_lock(&file, start, length, ByteLock::None).await
    }

    async fn is_locked(
        &mut self,
        file: Resource<LockableFile>,
        start: u64,
        length: u64,
    ) -> LockAnswer<bool> {
        self.on_locked(&file, move |file| {
            byte_lock::is_locked(&file.file, &(start..start.saturating_add(length)))
        })
        .await
    }

    async fn drop(&mut self, file: Resource<LockableFile>) -> Result<()> {
        let LockableFile(file) = self.table.delete(file)?;
        self.files.unlock(&file);
        Ok(())
    }
}

impl CallState {
    async fn set_lock(
        &mut self,
        file: &Resource<LockableFile>,
        start: u64,
        length: u64,
        lock: ByteLock,
    ) -> LockAnswer<()> {
        self.on_locked(file, move |file| {
            file.set(&(start..start.saturating_add(length)), lock)
        })
        .await
    }

    /// A file system in a network may take its time for it.
    async fn on_locked<T: Send + 'static>(
        &mut self,
        file: &Resource<LockableFile>,
        work: impl FnOnce(&LockedFile) -> io::Result<T> + Send + 'static,
    ) -> LockAnswer<T> {
        self.revocation.check()?;
        let file = self.table.get(file)?.0.clone();
        let done = self.work.run(move |_| work(&file)).await;
        Ok(done.map_err(|error| match error.raw_os_error() {
            Some(libc::EBADF) => LockError::Denied,
            Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => LockError::Unsupported,
            _ if error.kind() == io::ErrorKind::WouldBlock => LockError::Busy,
            _ => LockError::Failed,
        }))
    }

    /// The granted directory that a path of the guest leads into, and the way from there.
    fn granted_place<'a>(&self, path: &'a str) -> Option<(Arc<File>, FsPerms, &'a str)> {
        let within = |guest: &str| path.strip_prefix(guest)?.strip_prefix('/');
        let granted = self.granted.directories.iter();
        let places = granted.filter_map(|(dir, guest)| {
            let inside = within(guest.trim_end_matches('/'))?;
            Some((dir.dir.clone(), dir.perms, inside))
        });
        // The innermost one, as the guest's C library looks it up.
        places.min_by_key(|(_, _, inside)| inside.len())
    }
}

/// Opens the file for reading, and for writing where that may be: an exclusive lock needs it.
fn opened(folder: &File, perms: FsPerms, path: &Path) -> io::Result<File> {
    let folder = Dir::from_std_file(folder.try_clone()?);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .follow(FollowSymlinks::Yes)
        .nonblock(true);
    let open = |options: &OpenOptions| match open::checked(&folder, path, true, options)? {
        (file, kind) if kind.is_file() => Ok(file),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    };
    if perms.write_not_permitted() {
        return open(&options);
    }
    let mut both = options.clone();
    both.write(true);
    match open(&both) {
        Err(error) if is_read_only(&error) => open(&options),
        opened => opened,
    }
}

/// The file or its file system takes no writes, and may be read.
fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}
