//! The binary `toolhold`: commands, configuration files and environment, and the person at the terminal.
//!
//! Nothing else in the workspace prints to a terminal, or reads flags, variables and files of the
//! configuration. Read it in this order: [`args`] (the command line), [`config`] (defaults, files, variables
//! and flags become one configuration), [`dispatch`] (from the command line to the command), [`commands`]
//! (one file a command), [`service_manager`] (what systemd hears of a server), [`terminal`] (colours, tables,
//! progress, the run as it is shown, questions), [`exit`] (exit codes).
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "this is where Toolhold talks to a terminal; what goes to stderr passes `terminal::stderr`"
)]

mod args;
mod commands;
mod config;
mod descriptors;
mod dispatch;
mod exit;
mod program;
mod service_manager;
mod terminal;
mod usage;

/// Gives freed memory back to the system, also while nothing is allocated: a thread of its own does it.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    if dispatch::is_compiler(std::env::args_os()) {
        return terminal::pipe::quietly(dispatch::compiler);
    }
    let cli = usage::parse();
    terminal::pipe::quietly(|| dispatch::command(cli))
}
