//! Tools of MCP servers, as activities (`_activity: "mcp:server/tool"`) and, if the operator wants it, among the tools
//! of every run.
//!
//! An MCP server is not sandboxed: a command runs with this user's rights, and a URL is another machine. So the crate
//! promises that only servers and tools that the operator named are used, that a model reads a server's texts only
//! after they are pinned, and that everything that a server sends is bounded, cleaned and labelled. A server is offered
//! no sampling, no roots and no elicitation, and its instructions are not read.
//!
//! [`serve`] is the other side: the modules of this host, and its saved Requests, as tools for clients.
//!
//! Read it in this order: `settings` (what the operator says), `servers` (all of them in a run), `server` (one: started
//! when first used, restarted, judged), then `offer` (cleans what a server says about its tools), `pin` (holds the
//! server to what was approved) and `content` (reads results). `wire` is the protocol itself, of
//! messages that both sides read and write alike (`rpc`).
//!
//! ```
//! assert_eq!(toolhold_mcp::activity("mcp:weather/now"), Some(("weather", "now")));
//! assert!(toolhold_mcp::address("http://example.com").is_err(), "plain HTTP is for this machine");
//! ```
#![forbid(unsafe_code)]

mod content;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod offer;
mod pin;
mod rpc;
pub mod serve;
mod server;
mod servers;
mod settings;
mod tool;
mod toolbox;
mod wire;

#[cfg(test)]
mod tests;

pub use error::Failure;
pub use offer::{Offer, OfferedTool};
pub use pin::{Pinning, ServerPins, is_revoked};
pub use server::{McpServer, ReadySession};
pub use servers::Servers;
pub use settings::{Launch, Secrets, ServerSettings};
pub use toolbox::McpToolbox;
pub use wire::web::address;

/// The server and the tool that an activity `mcp:SERVER/tool` names; `None` for other activities.
pub fn activity(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp:")?.split_once('/')
}
