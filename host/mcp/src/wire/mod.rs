//! The protocol on the wire, revision 2025-06-18: JSON-RPC messages, over the pipes of a process or over streamable
//! HTTP, and the four methods of a session. Nothing here decides what may be called: that is the rest of the crate.
//!
//! Written here and not taken from the official SDK: `rmcp` 3.9 turns on features of `serde`, `libc` and
//! `futures-util` (`rc`, `extra_traits`, everything), which are below Cranelift and wasmtime, and brings five crates
//! for what are four methods. It is kept apart so that it can be replaced.

pub mod process;
pub mod rpc;
pub mod session;
pub mod stderr;
pub mod web;
