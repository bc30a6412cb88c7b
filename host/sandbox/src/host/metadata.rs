//! Questions of a guest about files and directories: as wasmtime answers them, after a look whether the call's grant
//! was taken back.

use super::files::{Fd, Store, answer};
use super::replaced::ReplacedInterface;
use crate::call::CallState;
use crate::denial_log::FileUse;
use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, HostDescriptor, NewTimestamp, PathFlags,
};

/// Defines functions that do what [`HostDescriptor`] does, as long as nothing was taken back. Those that may be refused
/// say what they want, and to which path.
macro_rules! checked {
    ($types:ident, $(
        $name:literal => $method:ident($($argument:ident: $of:ty),*)
        $(: $wish:ident $($path:ident)?)?;
    )*) => {$(
        $types.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, (fd, $($argument,)*): (Fd, $($of,)*)| {
                Box::new(async move {
                    let state = store.data_mut().entered();
                    state.revocation.check()?;
                    $(
                        let at = fd.rep();
                        let path: Option<String> = None$(.or_else(|| Some($path.clone())))?;
                    )?
                    let mut files = state.filesystem();
                    let done = HostDescriptor::$method(&mut files, fd, $($argument),*).await;
                    let done = answer(done)?;
                    $(let done = state.noted(at, path.as_deref(), FileUse::$wish, done);)?
                    Ok((done,))
                })
            },
        )?;
    )*};
}

/// Puts the functions that look first over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = ReplacedInterface::new(linker, "filesystem/types");
    checked! {
        types,
        "advise" => advise(offset: u64, length: u64, advice: Advice);
        "get-flags" => get_flags();
        "get-type" => get_type();
        "metadata-hash" => metadata_hash();
        "metadata-hash-at" => metadata_hash_at(flags: PathFlags, path: String): Read path;
        "readlink-at" => readlink_at(path: String): Read path;
        "set-times" => set_times(accessed: NewTimestamp, modified: NewTimestamp): Write;
        "stat" => stat();
        "stat-at" => stat_at(flags: PathFlags, path: String): Read path;
        "sync" => sync();
        "sync-data" => sync_data();
    }
    types.func_wrap_async(
        "[method]descriptor.is-same-object",
        |mut store: Store<'_>, (one, other): (Fd, Fd)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let mut files = state.filesystem();
                Ok((HostDescriptor::is_same_object(&mut files, one, other).await?,))
            })
        },
    )?;
    Ok(())
}
