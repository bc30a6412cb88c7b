//! The guest's stdout and stderr, which are captured.
//!
//! wasmtime would ask the call's WASI context for them, which holds a stream of each from the beginning of every call. Few
//! tools print: so a stream is made when the guest asks for it.

use super::files::Store;
use super::replaced::ReplacedInterface;
use crate::call::{CallState, CapturePipe, PrintStream};
use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::p2::DynOutputStream;

/// Puts the captured streams over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    for (interface, function, printed) in [
        ("cli/stdout", "get-stdout", PrintStream::Stdout),
        ("cli/stderr", "get-stderr", PrintStream::Stderr),
    ] {
        ReplacedInterface::new(linker, interface).func_wrap(
            function,
            move |mut store: Store<'_>, (): ()| {
                let state = store.data_mut().entered();
                let pipe: DynOutputStream = Box::new(CapturePipe::new(&state.gauge, printed));
                Ok((state.table.push(pipe)?,))
            },
        )?;
    }
    Ok(())
}
