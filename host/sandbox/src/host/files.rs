//! The guest's file system, with meters: `wasi:filesystem` as wasmtime implements it, where opening,
//! reading and writing pass by the call's gauge and the directory's quota first.
//!
//! Each asks first whether what the call may use was taken back. Only the functions that open, move bytes or make
//! entries are replaced; the others end with their call within a millisecond of a revocation. What keeps a path inside
//! its preopen is wasmtime's own, and for opening cap-std's, which is the same code. Preopens are the handles that were
//! opened when the grant took effect.

use super::open;
use crate::call::CallState;
use crate::call::meter::{Gauge, RefusedResource};
use crate::disk::quota::{ENTRY_BYTES, Quota, QuotaReservation};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsResult, InputStream, OutputStream, Pollable, StreamError,
    StreamResult,
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

type Store<'a> = StoreContextMut<'a, CallState>;
type Fd = Resource<Descriptor>;

fn preopens(linker: &mut Linker<CallState>) -> Result<()> {
    linker
        .instance("wasi:filesystem/preopens@0.2.12")?
        .func_wrap("get-directories", |mut store: Store<'_>, (): ()| {
            let state = store.data_mut();
            let mut directories = Vec::with_capacity(state.granted.directories.len());
            for (dir, guest) in &state.granted.directories {
                let fd = state.table.push(Descriptor::Dir(dir.clone()))?;
                let quota = state.granted.quotas.get(guest).cloned();
                state.files.set(&fd, quota);
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
                let state = store.data_mut();
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
                let state = store.data_mut();
                state.revocation.check()?;
                state.gauge.moved(buffer.len() as u64)?;
                let Some(room) = state.may_add(&fd, buffer.len() as u64).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let written =
                    HostDescriptor::write(&mut state.filesystem(), fd, buffer, offset).await;
                room.filled();
                Ok((answer(written)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.set-size",
        |mut store: Store<'_>, (fd, size): (Fd, u64)| {
            Box::new(async move {
                let state = store.data_mut();
                state.revocation.check()?;
                let Some(room) = state.may_add(&fd, size).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let set = state.filesystem().set_size(fd, size).await;
                room.filled();
                Ok((answer(set)?,))
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let state = store.data_mut();
            state.revocation.check()?;
            let stream = answer(state.filesystem().read_via_stream(fd, offset))?;
            if let Ok(stream) = &stream {
                let gauge = state.gauge.clone();
                let place = state.table.get_mut(stream)?;
                let inner = std::mem::replace(place, Box::new(WrappedStream));
                *place = Box::new(MeteredInput { inner, gauge });
            }
            Ok((stream,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let state = store.data_mut();
            state.revocation.check()?;
            let quota = state.files.quota(&fd);
            let stream = answer(state.filesystem().write_via_stream(fd, offset))?;
            Ok((state.metered(stream, quota)?,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: Store<'_>, (fd,): (Fd,)| {
            let state = store.data_mut();
            state.revocation.check()?;
            let quota = state.files.quota(&fd);
            let stream = answer(state.filesystem().append_via_stream(fd))?;
            Ok((state.metered(stream, quota)?,))
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
                let state = store.data_mut();
                state.revocation.check()?;
                let made = if open.contains(OpenFlags::CREATE) {
                    ENTRY_BYTES
                } else {
                    0
                };
                let Some(room) = state.may_add(&fd, made).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let quota = state.files.quota(&fd);
                let opened = open::at(state, &fd, path_flags, path, open, flags).await;
                room.filled();
                let opened = answer(opened)?;
                if let Ok(fd) = &opened {
                    state.files.set(fd, quota);
                }
                Ok((opened,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.create-directory-at",
        |mut store: Store<'_>, (fd, path): (Fd, String)| {
            Box::new(async move {
                let state = store.data_mut();
                state.revocation.check()?;
                let Some(room) = state.may_add(&fd, ENTRY_BYTES).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let made = state.filesystem().create_directory_at(fd, path).await;
                room.filled();
                Ok((answer(made)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.symlink-at",
        |mut store: Store<'_>, (fd, from, to): (Fd, String, String)| {
            Box::new(async move {
                let state = store.data_mut();
                state.revocation.check()?;
                let Some(room) = state.may_add(&fd, ENTRY_BYTES).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let made = state.filesystem().symlink_at(fd, from, to).await;
                room.filled();
                Ok((answer(made)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.link-at",
        |mut store: Store<'_>,
         (fd, flags, from, target, to): (Fd, PathFlags, String, Fd, String)| {
            Box::new(async move {
                let state = store.data_mut();
                state.revocation.check()?;
                let Some(room) = state.may_add(&target, ENTRY_BYTES).await else {
                    return Ok((Err(ErrorCode::Quota),));
                };
                let made = state
                    .filesystem()
                    .link_at(fd, flags, from, target, to)
                    .await;
                room.filled();
                Ok((answer(made)?,))
            })
        },
    )
}

/// An error of the file system is the guest's, a trap ends it.
fn answer<T>(result: FsResult<T>) -> Result<Result<T, ErrorCode>> {
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
            Err(_) => tokio::task::spawn_blocking(move || quota.take(bytes))
                .await
                .ok()
                .and_then(Result::ok),
        };
        if taken.is_none() {
            self.gauge.refuse(RefusedResource::Quota);
        }
        taken.map(|taken| WriteReservation(Some(taken)))
    }

    fn metered(
        &mut self,
        stream: Result<Resource<DynOutputStream>, ErrorCode>,
        quota: Option<Arc<Quota>>,
    ) -> Result<Result<Resource<DynOutputStream>, ErrorCode>> {
        if let Ok(stream) = &stream {
            let gauge = self.gauge.clone();
            let place = self.table.get_mut(stream)?;
            let inner = std::mem::replace(place, Box::new(WrappedStream));
            *place = Box::new(MeteredOutput {
                inner,
                gauge,
                quota,
                unwritten: WriteReservation(None),
            });
        }
        Ok(stream)
    }
}

/// A stream into a file.
struct MeteredOutput {
    inner: DynOutputStream,
    gauge: Gauge,
    quota: Option<Arc<Quota>>,
    /// For the last write, until the stream says that it is ready for another.
    unwritten: WriteReservation,
}

impl MeteredOutput {
    fn settled(&mut self) {
        std::mem::replace(&mut self.unwritten, WriteReservation(None)).filled();
    }

    fn admit(&mut self, bytes: usize) -> StreamResult<WriteReservation> {
        let length = bytes as u64;
        self.gauge
            .moved(length)
            .map_err(|error| StreamError::Trap(error.into()))?;
        let Some(quota) = &self.quota else {
            return Ok(WriteReservation(None));
        };
        // The file system is asked rarely: only when the count says that the directory is full.
        quota
            .take(length)
            .map(|taken| WriteReservation(Some(taken)))
            .map_err(|_| {
                self.gauge.refuse(RefusedResource::Quota);
                let full = io::Error::from_raw_os_error(libc::EDQUOT);
                StreamError::LastOperationFailed(full.into())
            })
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for MeteredOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let room = self.admit(bytes.len())?;
        self.inner.write(bytes)?;
        // It was taken, so the write before it is over.
        std::mem::replace(&mut self.unwritten, room).filled();
        Ok(())
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.unwritten = self.admit(bytes.len())?;
        let written = self.inner.blocking_write_and_flush(bytes).await;
        self.settled();
        written
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let free = self.inner.check_write()?;
        if free > 0 {
            self.settled();
        }
        Ok(free)
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
        self.settled();
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for MeteredOutput {
    async fn ready(&mut self) {
        self.inner.ready().await;
        self.settled();
    }
}

/// A stream out of a file.
struct MeteredInput {
    inner: DynInputStream,
    gauge: Gauge,
}

impl MeteredInput {
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
        let bytes = self.inner.read(size)?;
        self.count(bytes)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
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

impl OutputStream for WrappedStream {
    fn write(&mut self, _: Bytes) -> StreamResult<()> {
        Err(StreamError::Closed)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Err(StreamError::Closed)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Err(StreamError::Closed)
    }
}

impl InputStream for WrappedStream {
    fn read(&mut self, _: usize) -> StreamResult<Bytes> {
        Err(StreamError::Closed)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for WrappedStream {
    async fn ready(&mut self) {}
}
