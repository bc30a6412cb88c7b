//! Costs of bytes from outside, fuzz targets over their seeds, and some seconds of the soak: one binary, because each links
//! the engine.

mod cost;
mod seeds;
mod soak;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The process, for a test that measures all of it. Under `cargo test` the others run in threads of the same process;
/// nextest gives each test a process of its own.
fn process_alone() -> MutexGuard<'static, ()> {
    static PROCESS: Mutex<()> = Mutex::new(());
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}
