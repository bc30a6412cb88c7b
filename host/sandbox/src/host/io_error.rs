//! The error of a failed stream, as the guest sees it (`wasi:io/error`).
//!
//! wasmtime answers with the error's debug form. With `RUST_BACKTRACE` set that is a backtrace of the
//! host, and 100 MiB of the host's debug information are read to make it.

use super::replaced::ReplacedInterface;
use crate::call::CallState;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::io::error::Error;

/// Puts an answer that names the causes, and nothing of the host, over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    ReplacedInterface::new(linker, "io/error").func_wrap(
        "[method]error.to-debug-string",
        |mut store: StoreContextMut<'_, CallState>, (error,): (Resource<Error>,)| {
            let error = store.data_mut().entered().table.get(&error)?;
            Ok((format!("{error:#}"),))
        },
    )?;
    Ok(())
}
