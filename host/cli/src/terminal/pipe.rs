//! Handles a closed output pipe, such as that of `head`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

/// The shell's exit code for a process with a closed pipe: 128 and the number of SIGPIPE.
const BROKEN_PIPE_EXIT: u8 = 141;
/// The message with which `println!` panics, on every system that has the error.
const PANIC: &str = "failed printing to stdout: Broken pipe";

/// Runs `command`, which prints with `println!`. If the pipe is closed, the command is dropped with its
/// servers and guests, and no error is printed: nothing is wrong.
pub fn quietly(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload_as_str().is_some_and(is_of_reader) {
            report(panic);
        }
    }));
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(code) => code,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            if text.is_some_and(is_of_reader) {
                return ExitCode::from(BROKEN_PIPE_EXIT);
            }
            resume_unwind(payload)
        }
    }
}

/// Whether the panic is that of printing to a closed pipe.
pub fn is_of_reader(panic: &str) -> bool {
    panic.starts_with(PANIC)
}
