//! Opening nothing but files and directories.
//!
//! Opening a FIFO blocks in the kernel until another process opens its other end, and no deadline reaches
//! there: the call would end in time, and leave a thread behind for good. Devices and sockets are
//! nothing that a grant of a directory means either. A guest can make none of these, so what is there
//! when it is asked for is what is opened.

use crate::call::CallState;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorType, HostDescriptor as _, PathFlags,
};

/// Whether `path` is there and is neither a file, nor a directory, nor a link.
pub async fn is_special(
    state: &mut CallState,
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
