//! Ctrl-C. The terminal sends it to the child as well, which ends by itself; this process stays alive to stop the
//! servers that it started and to pass on the child's exit code. A second Ctrl-C ends it at once.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// What a shell reports for a process ended by SIGINT.
const INTERRUPTED: u8 = 130;

static HAPPENED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

pub fn listen() -> Result<()> {
    // The order matters: the shutdown must look at the flag before the same signal sets it.
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&HAPPENED))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&HAPPENED)))
        .map(drop)
        .context("could not install a handler for Ctrl-C")
}

pub fn happened() -> bool {
    HAPPENED.load(Ordering::Relaxed)
}

pub fn exit_code() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}
