//! The bytes of a guest's files, with meters: `wasi:filesystem` as wasmtime implements it, where reading and writing
//! pass by the call's gauge and the directory's quota first.
//!
//! Each function asks first whether the call's grant was taken back; so do those in `entries` and `metadata`, and streams
//! when bytes go through them. wasmtime's own code keeps a path inside its preopen, and for opening cap-std's, which is
//! the same. Preopens are the handles that were opened when the grant took effect.

use super::output::FileOutput;
use super::replaced::ReplacedInterface;
use crate::blocking::Stop;
use crate::call::meter::{Gauge, RefusedResource};
use crate::call::{CallState, OpenFile};
use crate::denial_log::FileUse;
use crate::disk::quota::WritePlace;
use crate::revocation::Revocation;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, FsPerms, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsResult, InputStream, Pollable, StreamError, StreamResult,
};

/// Puts the metered functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    preopens(linker)?;
    bytes(linker)
}

pub(super) type Store<'a> = StoreContextMut<'a, CallState>;
pub(super) type Fd = Resource<Descriptor>;

fn preopens(linker: &mut Linker<CallState>) -> Result<()> {
    ReplacedInterface::new(linker, "filesystem/preopens").func_wrap(
        "get-directories",
        |mut store: Store<'_>, (): ()| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            let count = state.granted.directories.len();
            state.denials.directories_listed(count);
            let mut directories = Vec::with_capacity(state.granted.directories.len());
            for (dir, guest) in &state.granted.directories {
                let fd = state.table.push(Descriptor::Dir(dir.clone()))?;
                let quota = state.granted.quotas.get(guest).cloned();
                let file = OpenFile {
                    root: dir.dir.clone(),
                    quota,
                    reserved: state.granted.reserved.get(guest).cloned(),
                };
                state.files.set(&fd, Some(file));
                directories.push((fd, guest.clone()));
            }
            Ok((directories,))
        },
    )
}

/// Functions that move bytes.
fn bytes(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = ReplacedInterface::new(linker, "filesystem/types");
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
                let place = WritePlace::At(offset);
                let write = move |stop: &Stop| quota.write(&file, &buffer, place, stop);
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
                let set = move |stop: &Stop| quota.set_size(&file, size, stop);
                Ok((state.done(set).await,))
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
            Ok((state.output(&fd, WritePlace::At(offset))?,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: Store<'_>, (fd,): (Fd,)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            Ok((state.output(&fd, WritePlace::End)?,))
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

impl CallState {
    /// Runs work on the file system that must not hold an async thread.
    pub(super) async fn done<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Stop) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        self.work.run(work).await.map_err(|error| {
            if error.raw_os_error() == Some(libc::EDQUOT) {
                self.gauge.refuse(RefusedResource::Quota);
            }
            ErrorCode::from(error)
        })
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
        place: WritePlace,
    ) -> Result<Result<Resource<DynOutputStream>, ErrorCode>> {
        let file = match self.writable(fd)? {
            Ok(file) => file,
            Err(code) => return Ok(Err(code)),
        };
        let meters = (self.gauge.clone(), self.revocation.clone());
        let quota = self.files.quota(fd);
        let stream = FileOutput::new(file, place, meters, self.work.clone(), quota);
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
