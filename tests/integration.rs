//! Behaviour through public doors: one file a behaviour.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on, or is left out, should say so"
)]

mod cache;
mod cli;
mod foreign_script;
mod hostile;
mod interpreters;
mod markdown;
mod model;
mod modules;
mod new_module;
mod real_model;
mod run;
mod typed;
