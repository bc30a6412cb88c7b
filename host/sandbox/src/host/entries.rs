//! Functions by which a guest makes, moves and removes entries of directories: as wasmtime has them, after a look at
//! the directory's quota, at its depth, and at the names in it that are reserved for this host.

use super::depth::{self, GuestPath};
use super::files::{Fd, Store, answer};
use super::held_entry::HeldEntry;
use super::open::{self, OpenFault};
use super::replaced::ReplacedInterface;
use crate::blocking::Stop;
use crate::call::CallState;
use crate::call::meter::RefusedResource;
use crate::denial_log::FileUse;
use crate::disk::quota::{ENTRY_BYTES, Quota, QuotaReservation};
use std::fs::File;
use std::sync::Arc;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

/// Answer of a function to the guest; the outer error ends the call.
type EntryAnswer<T> = Result<std::result::Result<T, ErrorCode>>;

/// Defines a function that changes one entry, through the handle of the entry's directory.
macro_rules! changes {
    ($types:ident, $name:literal, ($fd:ident, $($argument:ident: $of:ty),+) at $path:ident, $method:ident) => {
        $types.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, ($fd, $($argument),+): (Fd, $($of),+)| {
                Box::new(async move {
                    let state = store.data_mut().entered();
                    state.revocation.check()?;
                    let held = match state.hold(&$fd, $path, false).await? {
                        Ok(held) => held,
                        Err(code) => return Ok((Err(code),)),
                    };
                    let ($fd, $path) = (held.fd(), held.name().to_owned());
                    let changed = state.$method($fd, $($argument),+).await;
                    state.release(held)?;
                    Ok((changed?,))
                })
            },
        )
    };
}

/// Puts the guarded functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = ReplacedInterface::new(linker, "filesystem/types");
    changes!(types, "create-directory-at", (fd, path: String) at path, create_directory)?;
    changes!(types, "symlink-at", (fd, target: String, path: String) at path, symlink)?;
    changes!(types, "remove-directory-at", (fd, path: String) at path, remove_directory)?;
    changes!(types, "unlink-file-at", (fd, path: String) at path, unlink)?;
    types.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: Store<'_>,
         (fd, flags, path, accessed, modified): (
            Fd,
            PathFlags,
            String,
            NewTimestamp,
            NewTimestamp,
        )| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let follow = flags.contains(PathFlags::SYMLINK_FOLLOW);
                let held = match state.hold(&fd, path, follow).await? {
                    Ok(held) => held,
                    Err(code) => return Ok((Err(code),)),
                };
                let set = state.set_times_of(&held, flags, accessed, modified).await;
                state.release(held)?;
                Ok((set?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.link-at",
        |mut store: Store<'_>,
         (fd, flags, from, target, to): (Fd, PathFlags, String, Fd, String)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let (from, to) = match state.hold_both((&fd, from), (&target, to)).await? {
                    Ok(both) => both,
                    Err(code) => return Ok((Err(code),)),
                };
                let linked = state.link(flags, &from, &to).await;
                state.release(from)?;
                state.release(to)?;
                Ok((linked?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store: Store<'_>, (fd, from, target, to): (Fd, String, Fd, String)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let (from, to) = match state.hold_both((&fd, from), (&target, to)).await? {
                    Ok(both) => both,
                    Err(code) => return Ok((Err(code),)),
                };
                let moved = state.rename(&from, &to).await;
                state.release(from)?;
                state.release(to)?;
                Ok((moved?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: Store<'_>,
         (fd, path_flags, path, open, flags): (
            Fd,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                Ok((state.open(&fd, path_flags, path, open, flags).await?,))
            })
        },
    )
}

/// Bytes taken from the quota, if there is one, for a pending write.
struct WriteReservation(Option<QuotaReservation>);

impl WriteReservation {
    /// The write is over: done or failed.
    fn filled(self) {
        if let Some(taken) = self.0 {
            taken.written();
        }
    }
}

/// Tells the quota that an entry of its directory is gone.
fn freed<T, E>(quota: Option<&Arc<Quota>>, removed: &std::result::Result<T, E>) {
    if let (Some(quota), Ok(_)) = (quota, removed) {
        quota.freed();
    }
}

impl CallState {
    async fn create_directory(&mut self, fd: Fd, path: String) -> EntryAnswer<()> {
        let (at, asked) = (fd.rep(), path.clone());
        if let Some((root, folder)) = self.place(&fd)? {
            let name = path.clone();
            let allowed = move |_: &Stop| {
                depth::may_make(&GuestPath {
                    root: &root,
                    folder: &folder,
                    path: &name,
                })
            };
            match self.done(allowed).await {
                Ok(true) => {}
                Ok(false) => return Ok(Err(ErrorCode::NameTooLong)),
                Err(code) => {
                    return Ok(self.noted(at, Some(&asked), FileUse::Write, Err(code)));
                }
            }
        }
        let room = match self.may_add(&fd, ENTRY_BYTES).await {
            Ok(room) => room,
            Err(code) => return Ok(Err(code)),
        };
        let made = self.filesystem().create_directory_at(fd, path).await;
        room.filled();
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(made)?))
    }

    async fn symlink(&mut self, fd: Fd, target: String, path: String) -> EntryAnswer<()> {
        let bytes = ENTRY_BYTES + target.len() as u64;
        let room = match self.may_add(&fd, bytes).await {
            Ok(room) => room,
            Err(code) => return Ok(Err(code)),
        };
        let (at, asked) = (fd.rep(), path.clone());
        let made = self.filesystem().symlink_at(fd, target, path).await;
        room.filled();
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(made)?))
    }

    async fn remove_directory(&mut self, fd: Fd, path: String) -> EntryAnswer<()> {
        let (at, asked) = (fd.rep(), path.clone());
        let quota = self.files.quota(&fd);
        let removed = self.filesystem().remove_directory_at(fd, path).await;
        freed(quota.as_ref(), &removed);
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(removed)?))
    }

    async fn unlink(&mut self, fd: Fd, path: String) -> EntryAnswer<()> {
        let (at, asked) = (fd.rep(), path.clone());
        let quota = self.files.quota(&fd);
        let removed = self.filesystem().unlink_file_at(fd, path).await;
        freed(quota.as_ref(), &removed);
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(removed)?))
    }

    async fn set_times_of(
        &mut self,
        held: &HeldEntry,
        flags: PathFlags,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> EntryAnswer<()> {
        let flags = if held.is_found() {
            PathFlags::empty()
        } else {
            flags
        };
        let (fd, path) = (held.fd(), held.name().to_owned());
        let mut files = self.filesystem();
        let set = files.set_times_at(fd, flags, path, accessed, modified);
        let set = answer(set.await)?;
        Ok(self.noted(held.fd().rep(), Some(held.name()), FileUse::Write, set))
    }

    async fn link(
        &mut self,
        flags: PathFlags,
        from: &HeldEntry,
        to: &HeldEntry,
    ) -> EntryAnswer<()> {
        // A file with names in two directories would grow in both.
        if self.differ(&from.fd(), &to.fd()) {
            return Ok(Err(ErrorCode::CrossDevice));
        }
        let room = match self.may_add(&to.fd(), ENTRY_BYTES).await {
            Ok(room) => room,
            Err(code) => return Ok(Err(code)),
        };
        let (at, asked) = self.refusing((&from.fd(), from.name()), (&to.fd(), to.name()));
        let (old, new) = (from.name().to_owned(), to.name().to_owned());
        let mut files = self.filesystem();
        let made = files.link_at(from.fd(), flags, old, to.fd(), new).await;
        room.filled();
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(made)?))
    }

    async fn rename(&mut self, from: &HeldEntry, to: &HeldEntry) -> EntryAnswer<()> {
        // Entries that move into a quota were not counted in it, and open files of them never would be.
        if self.files.quota(&to.fd()).is_some() && self.differ(&from.fd(), &to.fd()) {
            return Ok(Err(ErrorCode::CrossDevice));
        }
        let (at, asked) = self.refusing((&from.fd(), from.name()), (&to.fd(), to.name()));
        let (old, new) = (from.name().to_owned(), to.name().to_owned());
        if let (Some((root, folder)), Some((to_root, to_folder))) =
            (self.place(&from.fd())?, self.place(&to.fd())?)
        {
            let (path, to_path) = (old.clone(), new.clone());
            let allowed = move |stop: &Stop| {
                let from = GuestPath {
                    root: &root,
                    folder: &folder,
                    path: &path,
                };
                let to = GuestPath {
                    root: &to_root,
                    folder: &to_folder,
                    path: &to_path,
                };
                depth::may_move(&from, &to, stop)
            };
            match self.done(allowed).await {
                Ok(true) => {}
                Ok(false) => return Ok(Err(ErrorCode::NameTooLong)),
                Err(code) => {
                    return Ok(self.noted(at, Some(&asked), FileUse::Write, Err(code)));
                }
            }
        }
        let mut files = self.filesystem();
        let moved = files.rename_at(from.fd(), old, to.fd(), new).await;
        // It may have taken the place of another entry, or have left the directory.
        freed(self.files.quota(&from.fd()).as_ref(), &moved);
        freed(self.files.quota(&to.fd()).as_ref(), &moved);
        Ok(self.noted(at, Some(&asked), FileUse::Write, answer(moved)?))
    }

    async fn open(
        &mut self,
        fd: &Fd,
        path_flags: PathFlags,
        path: String,
        mut open: OpenFlags,
        mut flags: DescriptorFlags,
    ) -> EntryAnswer<Fd> {
        let Some(permit) = self.files.permit() else {
            self.gauge.refuse(RefusedResource::Descriptors);
            return Ok(Err(ErrorCode::Busy));
        };
        let made = if open.contains(OpenFlags::CREATE) {
            ENTRY_BYTES
        } else {
            0
        };
        let room = match self.may_add(fd, made).await {
            Ok(room) => room,
            Err(code) => return Ok(Err(code)),
        };
        let of = self.files.file(fd).cloned();
        let quota = of.as_ref().and_then(|of| of.quota.clone());
        // No file shrinks while another is written: it is cut after it was opened, under the quota's lock.
        let cuts = quota
            .filter(|_| open.contains(OpenFlags::TRUNCATE) && !open.contains(OpenFlags::DIRECTORY));
        let name = path.clone();
        let changes = OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let wish = if open.intersects(changes) || flags.contains(DescriptorFlags::WRITE) {
            FileUse::Write
        } else {
            FileUse::Read
        };
        if cuts.is_some() {
            open ^= OpenFlags::TRUNCATE;
            if !flags.contains(DescriptorFlags::WRITE) {
                flags |= DescriptorFlags::READ | DescriptorFlags::WRITE;
            }
        }
        let reserved = of.as_ref().and_then(|of| of.reserved.clone());
        let opened = open::at(self, fd, (path_flags, path), open, flags, reserved).await?;
        room.filled();
        let opened = match opened {
            Err(OpenFault::Reserved(reservation)) => {
                Err(self.reserved_for_host(fd, &name, &reservation))
            }
            Err(OpenFault::Code(code)) => self.noted(fd.rep(), Some(&name), wish, Err(code)),
            Ok(opened) => Ok(opened),
        };
        if let Ok(fd) = &opened {
            let file = self.opened(fd)?;
            self.files.charge(&file, permit);
            self.files.set(fd, of);
            if let Some(quota) = cuts
                && let Err(code) = self.done(move |stop| quota.set_size(&file, 0, stop)).await
            {
                HostDescriptor::drop(&mut self.filesystem(), Resource::new_own(fd.rep()))?;
                return Ok(Err(code));
            }
        }
        Ok(opened)
    }

    /// Room for `bytes` more in the directory that `fd` belongs to; `Quota` if it is full.
    async fn may_add(
        &mut self,
        fd: &Fd,
        bytes: u64,
    ) -> std::result::Result<WriteReservation, ErrorCode> {
        let Some(quota) = self.files.quota(fd).filter(|_| bytes > 0) else {
            return Ok(WriteReservation(None));
        };
        if let Ok(taken) = quota.try_take(bytes) {
            return Ok(WriteReservation(Some(taken)));
        }
        // Measuring walks the directory, which must not hold an async thread.
        let taken = self.done(move |stop| quota.take(bytes, stop)).await?;
        Ok(WriteReservation(Some(taken)))
    }

    /// The file or directory behind a descriptor.
    fn opened(&self, fd: &Fd) -> Result<Arc<File>> {
        Ok(match self.table.get(fd)? {
            Descriptor::File(file) => file.file.clone(),
            Descriptor::Dir(directory) => directory.dir.clone(),
        })
    }

    /// The granted directory that an open directory belongs to, and itself; nothing for a file.
    fn place(&self, fd: &Fd) -> Result<Option<(Arc<File>, Arc<File>)>> {
        let Descriptor::Dir(directory) = self.table.get(fd)? else {
            return Ok(None);
        };
        let of = self.files.file(fd);
        Ok(of.map(|of| (of.root.clone(), directory.dir.clone())))
    }

    /// Whether the two count against different quotas.
    fn differ(&self, one: &Fd, other: &Fd) -> bool {
        match (self.files.quota(one), self.files.quota(other)) {
            (Some(one), Some(other)) => !one.is_same(&other),
            (None, None) => false,
            _ => true,
        }
    }
}
