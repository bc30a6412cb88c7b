//! Random bytes for a guest: as wasmtime gives them, counted, and with an error of their own where it has none.

use super::files::Store;
use super::replaced::ReplacedInterface;
use crate::call::CallState;
use crate::call::meter::{MAX_RANDOM_BYTES, TooMuchRandomness};
use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p2::bindings::random::insecure::Host as _;
use wasmtime_wasi::p2::bindings::random::random::Host as _;

/// Puts the counted functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    ReplacedInterface::new(linker, "random/random").func_wrap(
        "get-random-bytes",
        |mut store: Store<'_>, (length,): (u64,)| {
            let state = store.data_mut().entered();
            state.may_make(length)?;
            Ok((state.ctx().ctx.random().get_random_bytes(length)?,))
        },
    )?;
    ReplacedInterface::new(linker, "random/insecure").func_wrap(
        "get-insecure-random-bytes",
        |mut store: Store<'_>, (length,): (u64,)| {
            let state = store.data_mut().entered();
            state.may_make(length)?;
            Ok((state.ctx().ctx.random().get_insecure_random_bytes(length)?,))
        },
    )?;
    Ok(())
}

impl CallState {
    fn may_make(&self, bytes: u64) -> Result<()> {
        if bytes > MAX_RANDOM_BYTES {
            return Err(TooMuchRandomness.into());
        }
        Ok(self.gauge.moved(bytes)?)
    }
}
