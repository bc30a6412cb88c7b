//! `toolhold`: agents whose tools are WebAssembly components, from the command line.
//!
//! This crate puts the two others together: `toolhold-sandbox` runs tools, `toolhold-agent` runs the
//! loop, and neither knows the other. `cli` is the way in, [`host`] builds what a command needs from
//! the configuration, [`tools`] is the bridge between the loop and the sandbox.
#![forbid(unsafe_code)]

mod approver;
mod build;
mod cli;
mod components;
mod config;
mod demo;
mod fetch;
mod host;
mod mcp;
mod requests;
mod scaffold;
mod shields;
mod storage;
mod tools;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
