//! Tools of MCP servers, as activities (`_activity: "mcp:server/tool"`) and, where the operator wants
//! it, among the tools of every run.
//!
//! An MCP server is not sandboxed: a command runs with this user's rights, a URL is another's machine.
//! So nothing is used that the operator did not name, what a server says of itself is pinned before a
//! model reads it, and everything that comes from one is bounded, cleaned and labelled. Spoken is
//! revision 2025-06-18 of the protocol, of which only tools are used: a server is offered no
//! sampling, no roots and no elicitation, and its instructions are not read.
//!
//! Written here and not taken from the official SDK: `rmcp` 3.9 turns on features of `serde`, `libc`
//! and `futures-util` (`rc`, `extra_traits`, everything), which are below Cranelift and wasmtime, and
//! brings five crates for what are four methods.
//!
//! Read it in this order: [`settings`] (what the operator says), [`servers`] (all of them in a run),
//! `server` (one: started when first used, restarted, judged), `session` (the four methods), and what
//! a session stands on: `rpc`, `process` and `web`. `offer` cleans what a server says of its tools,
//! `pin` holds it to that, `content` reads results.

mod content;
mod error;
mod offer;
mod pin;
mod process;
mod rpc;
mod server;
mod servers;
mod session;
mod settings;
mod stderr;
mod tool;
mod toolbox;
mod web;

#[cfg(test)]
mod tests;

pub use offer::Offered;
pub use pin::{Pins, Trust, is_revoked, reason};
pub use server::{Ready, Server};
pub use servers::Servers;
pub use settings::{Launch, Settings};
pub use toolbox::WithServers;
pub use web::address;

/// The server and the tool of an activity, `mcp:SERVER/tool`.
pub fn activity(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp:")?.split_once('/')
}
