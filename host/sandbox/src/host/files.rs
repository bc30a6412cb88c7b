//! The guest's file system, with meters: `wasi:filesystem` as wasmtime implements it, where opening,
//! reading and writing pass by the call's gauge and the directory's quota first.
//!
//! Each asks first whether what the call may use was taken back; so do those in `metadata`, and streams when bytes go
//! through them. What keeps a path inside its preopen is wasmtime's own, and for opening cap-std's, which is the same code. Preopens are the handles that were
//! opened when the grant took effect.

use super::blocking::Blocking;
use super::depth::{self, GuestPath};
use super::open;
use super::output::FileOutput;
use crate::call::meter::{Gauge, RefusedResource};
use crate::call::{CallState, OpenFile};
use crate::denial_log::FileUse;
use crate::disk::quota::{ENTRY_BYTES, Place, QuotaReservation};
use crate::revocation::Revocation;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, FsPerms, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsResult, InputStream, Pollable, StreamError, StreamResult,
};

/// Puts the metered functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    linker.allow_shadowing(true);
    preopens(linker)?;
    bytes(linker)?;
    entries(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

pub(super) type Store<'a> = StoreContextMut<'a, CallState>;
pub(super) type Fd = Resource<Descriptor>;

fn preopens(linker: &mut Linker<CallState>) -> Result<()> {
    linker
        .instance("wasi:filesystem/preopens@0.2.12")?
        .func_wrap("get-directories", |mut store: Store<'_>, (): ()| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            let count = state.granted.directories.len();
            state.denials.directories_listed(count);
            let mut directories = Vec::with_capacity(state.granted.directories.len());
            for (dir, guest) in &state.granted.directories {
                let fd = state.table.push(Descriptor::Dir(dir.clone()))?;
                let quota = state.granted.quotas.get(guest).cloned();
                let root = dir.dir.clone();
                state.files.set(&fd, Some(OpenFile { root, quota }));
                directories.push((fd, guest.clone()));
            }
            Ok((directories,))
        })
}

/// Functions that move bytes.
fn bytes(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = linker.instance("wasi:filesystem/types@0.2.12")?;
    types.func_wrap_async(
        "[method]descriptor.read",
        |mut store: Store<'_>, (fd, length, offset): (Fd, u64, u64)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let read = HostDescriptor::read(&mut state.filesystem(), fd, length, offset).await;
                if let Ok((bytes, _)) = &read {
                    state.gauge.moved(bytes.len() as u64)?;
                }
                Ok((answer(read)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.write",
        |mut store: Store<'_>, (fd, buffer, offset): (Fd, Vec<u8>, u64)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let at = fd.rep();
                let length = buffer.len() as u64;
                state.gauge.moved(length)?;
                let _kept = state.gauge.keep(length)?;
                let Some(quota) = state.files.quota(&fd) else {
                    let written =
                        HostDescriptor::write(&mut state.filesystem(), fd, buffer, offset).await;
                    return Ok((state.noted(at, None, FileUse::Write, answer(written)?),));
                };
                let file = match state.writable(&fd)? {
                    Ok(file) => file,
                    Err(code) => return Ok((Err(code),)),
                };
                let write = move || quota.write(&file, &buffer, Place::At(offset));
                Ok((state.done(write).await.map(|()| length),))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.set-size",
        |mut store: Store<'_>, (fd, size): (Fd, u64)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let at = fd.rep();
                let Some(quota) = state.files.quota(&fd) else {
                    let set = state.filesystem().set_size(fd, size).await;
                    return Ok((state.noted(at, None, FileUse::Write, answer(set)?),));
                };
                let file = match state.writable(&fd)? {
                    Ok(file) => file,
                    Err(code) => return Ok((Err(code),)),
                };
                Ok((state.done(move || quota.set_size(&file, size)).await,))
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            let stream = answer(state.filesystem().read_via_stream(fd, offset))?;
            if let Ok(stream) = &stream {
                let (gauge, revocation) = (state.gauge.clone(), state.revocation.clone());
                let place = state.table.get_mut(stream)?;
                let inner = std::mem::replace(place, Box::new(WrappedStream));
                *place = Box::new(MeteredInput {
                    inner,
                    gauge,
                    revocation,
                });
            }
            Ok((stream,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            Ok((state.output(&fd, Place::At(offset))?,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: Store<'_>, (fd,): (Fd,)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            Ok((state.output(&fd, Place::End)?,))
        },
    )
}

/// Functions that make entries.
fn entries(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = linker.instance("wasi:filesystem/types@0.2.12")?;
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
                let Some(permit) = state.files.permit() else {
                    state.gauge.refuse(RefusedResource::Descriptors);
                    return Ok((Err(ErrorCode::Busy),));
                };
                let made = if open.contains(OpenFlags::CREATE) {
                    ENTRY_BYTES
                } else {
                    0
                };
                let Some(room) = state.may_add(&fd, made).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let of = state.files.file(&fd).cloned();
                let quota = of.as_ref().and_then(|of| of.quota.clone());
                // No file shrinks while another is written: it is cut after it was opened, under the quota's lock.
                let cuts = quota.filter(|_| {
                    open.contains(OpenFlags::TRUNCATE) && !open.contains(OpenFlags::DIRECTORY)
                });
                let (mut open, mut flags) = (open, flags);
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
                let opened = open::at(state, &fd, path_flags, path, open, flags).await;
                room.filled();
                let opened = state.noted(fd.rep(), Some(&name), wish, answer(opened)?);
                if let Ok(fd) = &opened {
                    let file = state.opened(fd)?;
                    state.files.charge(&file, permit);
                    state.files.set(fd, of);
                    if let Some(quota) = cuts
                        && let Err(code) = state.done(move || quota.set_size(&file, 0)).await
                    {
                        HostDescriptor::drop(&mut state.filesystem(), Resource::new_own(fd.rep()))?;
                        return Ok((Err(code),));
                    }
                }
                Ok((opened,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.create-directory-at",
        |mut store: Store<'_>, (fd, path): (Fd, String)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let (at, asked) = (fd.rep(), path.clone());
                if let Some((root, folder)) = state.place(&fd)? {
                    let name = path.clone();
                    let allowed = move || {
                        depth::may_make(&GuestPath {
                            root: &root,
                            folder: &folder,
                            path: &name,
                        })
                    };
                    match state.done(allowed).await {
                        Ok(true) => {}
                        Ok(false) => return Ok((Err(ErrorCode::NameTooLong),)),
                        Err(code) => {
                            let refused = Err(code);
                            return Ok((state.noted(at, Some(&asked), FileUse::Write, refused),));
                        }
                    }
                }
                let Some(room) = state.may_add(&fd, ENTRY_BYTES).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let made = state.filesystem().create_directory_at(fd, path).await;
                room.filled();
                Ok((state.noted(at, Some(&asked), FileUse::Write, answer(made)?),))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.symlink-at",
        |mut store: Store<'_>, (fd, from, to): (Fd, String, String)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let bytes = ENTRY_BYTES + from.len() as u64;
                let Some(room) = state.may_add(&fd, bytes).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let (at, asked) = (fd.rep(), to.clone());
                let made = state.filesystem().symlink_at(fd, from, to).await;
                room.filled();
                Ok((state.noted(at, Some(&asked), FileUse::Write, answer(made)?),))
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
                // A file with names in two directories would grow in both.
                if state.differ(&fd, &target) {
                    return Ok((Err(ErrorCode::CrossDevice),));
                }
                let Some(room) = state.may_add(&target, ENTRY_BYTES).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let (at, asked) = state.refusing((&fd, &from), (&target, &to));
                let made = state
                    .filesystem()
                    .link_at(fd, flags, from, target, to)
                    .await;
                room.filled();
                Ok((state.noted(at, Some(&asked), FileUse::Write, answer(made)?),))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store: Store<'_>, (fd, from, target, to): (Fd, String, Fd, String)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                // What moves into a quota was not counted in it, and open files of it never would be.
                if state.files.quota(&target).is_some() && state.differ(&fd, &target) {
                    return Ok((Err(ErrorCode::CrossDevice),));
                }
                let (at, asked) = state.refusing((&fd, &from), (&target, &to));
                if let (Some((root, folder)), Some((to_root, to_folder))) =
                    (state.place(&fd)?, state.place(&target)?)
                {
                    let (path, to_path) = (from.clone(), to.clone());
                    let allowed = move || {
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
                        depth::may_move(&from, &to)
                    };
                    match state.done(allowed).await {
                        Ok(true) => {}
                        Ok(false) => return Ok((Err(ErrorCode::NameTooLong),)),
                        Err(code) => {
                            let refused = Err(code);
                            return Ok((state.noted(at, Some(&asked), FileUse::Write, refused),));
                        }
                    }
                }
                let moved = state.filesystem().rename_at(fd, from, target, to).await;
                Ok((state.noted(at, Some(&asked), FileUse::Write, answer(moved)?),))
            })
        },
    )
}

/// An error of the file system is the guest's, a trap ends it.
pub(super) fn answer<T>(result: FsResult<T>) -> Result<Result<T, ErrorCode>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => error.downcast().map(Err),
    }
}

/// Bytes taken from the quota, if there is one, for a pending write.
struct WriteReservation(Option<QuotaReservation>);

impl WriteReservation {
    /// It was written, or could not be.
    fn filled(self) {
        if let Some(taken) = self.0 {
            taken.written();
        }
    }
}

impl CallState {
    /// Room for `bytes` more in the directory that `fd` belongs to, or nothing if it is full.
    async fn may_add(&mut self, fd: &Fd, bytes: u64) -> Option<WriteReservation> {
        let Some(quota) = self.files.quota(fd).filter(|_| bytes > 0) else {
            return Some(WriteReservation(None));
        };
        let taken = match quota.try_take(bytes) {
            Ok(taken) => Some(taken),
            // Measuring walks the directory, which must not hold an async thread.
            Err(_) => spawn_blocking(move || quota.take(bytes))
                .await
                .ok()
                .and_then(Result::ok),
        };
        if taken.is_none() {
            self.gauge.refuse(RefusedResource::Quota);
        }
        taken.map(|taken| WriteReservation(Some(taken)))
    }

    /// Runs work on the file system that must not hold an async thread.
    async fn done<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        Blocking::start(work).done().await.map_err(|error| {
            if error.raw_os_error() == Some(libc::EDQUOT) {
                self.gauge.refuse(RefusedResource::Quota);
            }
            ErrorCode::from(error)
        })
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

    /// The file behind a descriptor, if the grant lets it be written.
    fn writable(&self, fd: &Fd) -> Result<Result<Arc<File>, ErrorCode>> {
        let file = match self.table.get(fd)? {
            Descriptor::Dir(_) => Err(ErrorCode::BadDescriptor),
            Descriptor::File(file) if file.perms == FsPerms::ReadOnly => {
                Err(ErrorCode::NotPermitted)
            }
            Descriptor::File(file) => Ok(file.file.clone()),
        };
        Ok(self.noted(fd.rep(), None, FileUse::Write, file))
    }

    fn output(
        &mut self,
        fd: &Fd,
        place: Place,
    ) -> Result<Result<Resource<DynOutputStream>, ErrorCode>> {
        let file = match self.writable(fd)? {
            Ok(file) => file,
            Err(code) => return Ok(Err(code)),
        };
        let meters = (self.gauge.clone(), self.revocation.clone());
        let stream = FileOutput::new(file, place, meters, self.files.quota(fd));
        let stream: DynOutputStream = Box::new(stream);
        Ok(Ok(self.table.push(stream)?))
    }
}

/// A stream out of a file.
struct MeteredInput {
    inner: DynInputStream,
    gauge: Gauge,
    revocation: Arc<Revocation>,
}

impl MeteredInput {
    fn may_read(&self) -> StreamResult<()> {
        let holds = self.revocation.check();
        holds.map_err(|revoked| StreamError::Trap(revoked.into()))
    }

    fn count(&self, bytes: Bytes) -> StreamResult<Bytes> {
        self.gauge
            .moved(bytes.len() as u64)
            .map_err(|error| StreamError::Trap(error.into()))?;
        Ok(bytes)
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for MeteredInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.may_read()?;
        let bytes = self.inner.read(size)?;
        self.count(bytes)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.may_read()?;
        let bytes = self.inner.blocking_read(size).await?;
        self.count(bytes)
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for MeteredInput {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

/// Stands in a stream's place for the moment in which it is wrapped.
struct WrappedStream;

impl InputStream for WrappedStream {
    fn read(&mut self, _: usize) -> StreamResult<Bytes> {
        Err(StreamError::Closed)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for WrappedStream {
    async fn ready(&mut self) {}
}
