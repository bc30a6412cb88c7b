//! Everything a component may import: `toolhold:module` and WASI, over the [`CallState`] of one call.

#[cfg(test)]
mod answer_tests;
mod current_call;
mod depth;
mod document;
mod entries;
mod file_locks;
mod files;
mod held_entry;
mod http;
mod imports;
mod input;
mod io_error;
mod knowledge;
#[cfg(test)]
mod knowledge_tests;
mod listing;
mod metadata;
mod open;
mod output;
mod prints;
mod random;
mod refused_file;
mod refusing;
mod replaced;
#[cfg(test)]
mod reviewed_tests;
#[cfg(test)]
mod revocation_tests;

use crate::bindings;
use crate::call::CallState;
use crate::engine::Engine;
use std::sync::Arc;
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker};

/// Everything a component may import, once for all modules of an engine. What was not granted is linked too, and answers
/// "empty" or "denied": most language runtimes import all of WASI whether they use it or not.
pub(crate) fn linker(engine: &Engine) -> Result<Arc<Linker<CallState>>> {
    engine.linker(make_linker)
}

fn make_linker(engine: &wasmtime::Engine) -> Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    files::add_to_linker(&mut linker)?;
    entries::add_to_linker(&mut linker)?;
    listing::add_to_linker(&mut linker)?;
    metadata::add_to_linker(&mut linker)?;
    io_error::add_to_linker(&mut linker)?;
    random::add_to_linker(&mut linker)?;
    prints::add_to_linker(&mut linker)?;
    refusing::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    http::add_to_linker(&mut linker)?;
    bindings::log::add_to_linker::<CallState, HasSelf<CallState>>(&mut linker, CallState::entered)?;
    bindings::progress::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::key_value::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::secrets::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::other_tools::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::current_call::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::extractor::document::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::knowledge::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    bindings::file_locks::add_to_linker::<CallState, HasSelf<CallState>>(
        &mut linker,
        CallState::entered,
    )?;
    Ok(linker)
}
