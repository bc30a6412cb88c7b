//! The modules, and saved Requests, as MCP tools, over stdio and streamable HTTP: `toolhold mcp`.
//!
//! Two protocols in one: revision 2026-07-28, whose requests each say all about themselves, and those
//! before it, which begin with `initialize`. Which one a message speaks is seen in the message
//! (`revision`); both end in the same call (`call`), under the limits, grants, shields and
//! decision rules of every other call.
//!
//! Written here and not taken from `rmcp`, whose features unify with those of `serde`, `libc` and
//! `futures-util` below wasmtime, which is built in the other order. What it would save is the small part: how many
//! calls there may be, what stops them and who decides about them is this host's either way.
//!
//! Read it in this order: `revision` (what a request says of itself), `catalog` (the tools as
//! they are listed) and `schema` (what of their schemas), `service` (methods), `call` with `decision`, `mask` and
//! `result`, `seams` (what the program brings along), and `request` with `elicitation` (a saved Request that is
//! called). Then who talks: `client_sender` (what a request says while it runs), `in_flight` (requests that can be
//! cancelled), `work` (one in its task, several in a batch), `unread` (answers that clients have not read),
//! `refusals` (rows for calls that no pipeline records), `session` (a client that said `initialize`). Then how:
//! `stdio`, `http`.

mod call;
mod catalog;
mod client_sender;
mod decision;
mod elicitation;
mod http;
mod in_flight;
mod mask;
mod refusals;
mod request;
mod result;
mod revision;
mod schema;
mod seams;
mod service;
mod session;
mod settings;
mod stdio;
mod unread;
mod work;

pub use catalog::FolderRequest;
pub use http::{Bound, serve as serve_http};
pub use mask::Mask;
pub use request::tool_name as request_tool;
pub use seams::{
    CallRecords, Disabled, ModuleHost, RecordedCaller, RecordedClient, RequestCall, RequestRunner,
};
pub use service::{Rules, Service};
pub use settings::{AuditMode, OfferedRequests, Settings};
pub use stdio::serve as serve_stdio;
