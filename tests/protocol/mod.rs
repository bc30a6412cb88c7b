//! The rules of PROTOCOL.md, a file a section.

mod approval;
mod record;
mod run_loop;
mod scheduling;
mod support;
