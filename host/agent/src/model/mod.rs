//! The model client: everything between a [`ChatRequest`] and a [`Completion`].
//!
//! Read [`chat`] for what is asked, [`client`] for how one completion is driven and timed,
//! `decode` for what servers really answer, [`error`] for what goes wrong and whose move it is
//! then. Bytes come from a [`Transport`]: over HTTP, or from a recording ([`replay`]). The client makes
//! one attempt; [`route`] asks again, elsewhere, or for less.

pub mod chat;
pub mod client;
pub mod error;
pub mod exchange;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod record;
pub mod replay;
pub mod route;
pub mod transport;

mod decode;
pub mod dialect;
pub mod embed;
mod error_body;
mod error_words;
mod extras;
mod json;
mod none;
pub mod probe;
pub mod server;
mod side;
pub mod sse;
pub mod tokenize;
mod tool_calls;
mod usage;

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use chat::{ChatMessage, ChatRequest, ChatTool, Content, Delivery, Role, ToolChoice};
pub use client::{OpenAiModel, Timeouts};
pub use dialect::{Dialect, Verdict};
pub use embed::Embeddings;
pub use error::{ErrorDetail, ModelError, TimeoutPhase};
pub use http::{ApiKey, HttpTransport};
pub use none::NoModel;
pub use record::RecordingTransport;
pub use replay::ReplayTransport;
pub use server::{Health, ModelInfo, Server};
pub(crate) use side::Aside;
pub use side::SideModel;
pub use tokenize::{Counter, Tokenizer};
pub use toolhold_protocol::completion::ContextOverflow;
pub use toolhold_protocol::completion::{ChatToolCall, Completion, Delta, Usage};
pub use toolhold_protocol::routing::{Classifier, Degradation, Routing};
pub use toolhold_protocol::side_request::{SideRequest, SideRole};
pub use transport::{HttpRequest, HttpResponse, Method, Transport, TransportError};

/// A language model: something that completes a chat.
///
/// The loop calls it once a step. Implementations must bound their own waiting and memory, and must
/// be cancel-safe: dropping the returned future ends the generation at the endpoint.
pub trait Model: Send + Sync + Debug {
    /// The name that is shown and recorded.
    fn name(&self) -> &str;

    /// Generates one completion. `watch` is told of every piece in the order it arrived. An error may
    /// follow after pieces were already given out.
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// The model as one run uses it, where that differs: what is decided once in a run is decided there.
    fn session(&self, _: &Session<'_>) -> Option<Arc<dyn Model>> {
        None
    }

    /// What counts tokens as this model does, where its endpoint can.
    fn counter(&self) -> Option<Arc<dyn Counter>> {
        None
    }
}

/// What a model may know of the run that uses it.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The first thing the user says.
    pub task: &'a str,
    /// The class that [`Routing::Classified`] told of this run, before its process ended.
    pub class: Option<&'a str>,
}

/// Whoever is told what happens while a completion is made. Must not block. A closure hears the pieces
/// alone.
pub trait Watch: Send {
    fn delta(&mut self, delta: Delta);

    fn routing(&mut self, _: Routing) {}

    /// Another request was made on the way.
    fn side_request(&mut self, _: SideRequest) {}
}

impl<F: FnMut(Delta) + Send> Watch for F {
    fn delta(&mut self, delta: Delta) {
        self(delta);
    }
}
