//! Opening nothing but files and directories.
//!
//! Opening a FIFO blocks in the kernel until somebody opens its other end, and no deadline reaches
//! there: the call would end in time, and leave a thread behind for good. Devices and sockets are
//! nothing that a grant of a directory means either. A guest can make none of these, so what is there
//! when it is asked for is what is opened.

use crate::state::State;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
};

type Opening = (
    Resource<Descriptor>,
    PathFlags,
    String,
    OpenFlags,
    DescriptorFlags,
);

/// Puts the guarded function over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    linker.allow_shadowing(true);
    linker
        .instance("wasi:filesystem/types@0.2.12")?
        .func_wrap_async(
            "[method]descriptor.open-at",
            |mut store: StoreContextMut<'_, State>, (fd, follow, path, open, flags): Opening| {
                Box::new(async move {
                    let state = store.data_mut();
                    if is_special(state, &fd, follow, &path).await {
                        return Ok((Err(ErrorCode::NotPermitted),));
                    }
                    let opened = state
                        .filesystem()
                        .open_at(fd, follow, path, open, flags)
                        .await;
                    match opened {
                        Ok(file) => Ok((Ok(file),)),
                        Err(error) => Ok((Err(error.downcast()?),)),
                    }
                })
            },
        )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Whether `path` is there and is neither a file, nor a directory, nor a link.
pub async fn is_special(
    state: &mut State,
    fd: &Resource<Descriptor>,
    follow: PathFlags,
    path: &str,
) -> bool {
    let fd = Resource::new_borrow(fd.rep());
    let stat = state
        .filesystem()
        .stat_at(fd, follow, path.to_owned())
        .await;
    stat.is_ok_and(|stat| {
        !matches!(
            stat.type_,
            DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink
        )
    })
}
