//! HTTP connections of both servers, the API and the MCP endpoint.
//!
//! The crate promises that a client cannot hold a server's resources by being slow or silent. Open
//! connections are counted and bounded, and when all places are taken, the one that has been silent for longest, of the
//! address with most silent ones, is closed for a new one; a reserve is kept for health and administration. The head of a request, its body, and every write have timeouts. A
//! response goes out in pieces, and what is made of it and not sent is counted by client. One that comes before its request was read closes the connection in a way that the client can still
//! read it. A client that gets no place is answered with 503. A web page of another site cannot reach a local server through its user's browser.
//!
//! Read `server` first: [`serve`] accepts connections and applies everything else to them. `settings`
//! holds the bounds. `places` decides who is served; `body_timeout`, `write_timeout`, `lingering` and `unread` enforce one each;
//! `listen` and `acceptor` accept connections, and `busy_answer` is the 503 for those without a place;
//! `kept_body` reads a body as a whole and counts its memory; `unsent` counts what clients have not read, and `taken` tells
//! when they have all of it.
//! `guard` is the check of `Host` and `Origin`, which a server calls itself, by the names that `authority` parses, and `websocket` sends
//! events over a WebSocket that counts as its connection. `source` tells clients apart by their
//! addresses.
//!
//! ```no_run
//! use axum::{Router, routing};
//! use tokio_util::sync::CancellationToken;
//! use toolhold_connections::{Settings, listen, serve};
//!
//! # async fn run() -> std::io::Result<()> {
//! let listener = listen("127.0.0.1:8080").await?;
//! let router = Router::new().route("/", routing::get(async || "hello"));
//! let stop = CancellationToken::new();
//! serve(listener, router, Settings::new(512), stop).await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod acceptor;
pub mod authority;
mod body_timeout;
mod busy_answer;
mod busy_body;
mod guard;
mod kept_body;
mod lingering;
mod listen;
#[cfg(test)]
mod place_tests;
mod places;
mod server;
mod settings;
mod source;
mod taken;
mod unread;
mod unsent;
pub mod web_origin;
pub mod websocket;
mod write_timeout;

pub use body_timeout::{BodyTooSlow, is_too_slow};
pub use guard::{ForeignHeader, PageGuard, bearer};
pub use kept_body::{KeptBody, KeptBodyError, no_memory};
pub use listen::listen;
pub use server::{Connection, serve, source};
pub use settings::{BodyPace, RefusalObserver, Settings};
pub use taken::when_taken;
pub use unsent::{UnsentAnswers, UnsentBytes, UnsentShare};
