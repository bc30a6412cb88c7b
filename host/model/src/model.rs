//! The interface between the agent loop and a language model.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::tokenizer::Counter;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// A language model: something that completes a chat.
///
/// The loop calls it once a step. Implementations must bound their own waiting and memory, and must
/// be cancel-safe: dropping the returned future ends the generation at the endpoint.
pub trait Model: Send + Sync + Debug {
    /// The name that is shown and recorded.
    fn name(&self) -> &str;

    /// Generates one completion. `watch` gets every delta in the order of arrival. An error may follow
    /// after deltas were passed on.
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// The model for one run, if it differs from the shared one: decisions made once per run are kept there.
    fn session(&self, _: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        None
    }

    /// The token counter of this model, if its endpoint can count.
    fn counter(&self) -> Option<Arc<dyn Counter>> {
        None
    }
}

/// What a model may know about the run that uses it.
#[derive(Clone, Copy, Debug)]
pub struct RunContext<'a> {
    /// The first user message.
    pub task: &'a str,
    /// The class that [`Routing::Classified`] recorded for this run before a restart.
    pub class: Option<&'a str>,
}

/// Observes a completion while it is generated. Must not block. A closure receives only the deltas.
pub trait CompletionObserver: Send {
    fn delta(&mut self, delta: Delta);

    fn routing(&mut self, _: Routing) {}

    /// Another request was made on the way.
    fn side_request(&mut self, _: SideRequest) {}

    /// Ends when there is room for more pieces. Awaited between two reads of a reply, so that an endpoint is read no faster
    /// than its reply is recorded.
    fn room(&mut self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl<F: FnMut(Delta) + Send> CompletionObserver for F {
    fn delta(&mut self, delta: Delta) {
        self(delta);
    }
}
