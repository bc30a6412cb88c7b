//! The bytes of a guest's files, with meters: `wasi:filesystem` as wasmtime implements it, where reading and writing
//! pass by the call's gauge and the directory's quota first.
//!
//! Each function asks first whether the call's grant was taken back; so do those in `entries` and `metadata`, and streams
//! when bytes go through them. wasmtime's own code keeps a path inside its preopen, and for opening cap-std's, which is
//! the same. Preopens are the handles that were opened when the grant took effect.

use super::input::{FileInput, read_at};
use super::output::FileOutput;
use super::replaced::ReplacedInterface;
use crate::blocking::Stop;
use crate::call::meter::RefusedResource;
use crate::call::{CallState, OpenFile};
use crate::denial_log::FileUse;
use crate::disk::quota::{WritePlace, write_within};
use std::fs::File;
use std::io;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, FsPerms};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsResult};

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
                let file = match state.table.get(&fd)? {
                    Descriptor::Dir(_) => return Ok((Err(ErrorCode::BadDescriptor),)),
                    Descriptor::File(file) => file.file.clone(),
                };
                let size = usize::try_from(length).unwrap_or(usize::MAX);
                let read = move |_: &Stop| read_at(&file, size, offset);
                let read = state.done(read).await;
                if let Ok(bytes) = &read {
                    state.gauge.moved(bytes.len() as u64)?;
                }
                let read = read.map(|bytes| {
                    let is_end = bytes.is_empty();
                    (bytes, is_end)
                });
                Ok((read,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.write",
        |mut store: Store<'_>, (fd, buffer, offset): (Fd, Vec<u8>, u64)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let length = buffer.len() as u64;
                state.gauge.moved(length)?;
                // Until they are written.
                let kept = state.gauge.keep(length)?;
                let file = match state.writable(&fd)? {
                    Ok(file) => file,
                    Err(code) => return Ok((Err(code),)),
                };
                let quota = state.files.quota(&fd);
                let place = WritePlace::At(offset);
                let write = move |stop: &Stop| {
                    let _kept = kept;
                    write_within(quota.as_deref(), &file, &buffer, place, stop)
                };
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
                let file = match state.writable(&fd)? {
                    Ok(file) => file,
                    Err(code) => return Ok((Err(code),)),
                };
                let quota = state.files.quota(&fd);
                let set = move |stop: &Stop| match quota {
                    Some(quota) => quota.set_size(&file, size, stop),
                    None => file.set_len(size),
                };
                Ok((state.done(set).await,))
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            // Reading a directory is `EISDIR` in POSIX.
            let file = match state.table.get(&fd)? {
                Descriptor::Dir(_) => return Ok((Err(ErrorCode::IsDirectory),)),
                Descriptor::File(file) => file.file.clone(),
            };
            let meters = (state.gauge.clone(), state.revocation.clone());
            let stream = FileInput::new(file, offset, meters, state.work.clone());
            let stream: DynInputStream = Box::new(stream);
            Ok((Ok(state.table.push(stream)?),))
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
