//! The pinned revision of a model: each reply is compared with it, because a server changes its weights or its software
//! under the same name.

use futures_util::future::BoxFuture;

use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model};
use crate::tokenizer::Counter;
use std::sync::Arc;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// Maximum characters of what an endpoint tells that are shown.
const MAX_TOLD_CHARS: usize = 200;

/// The revision that an operator pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedRevision {
    /// The endpoint's `system_fingerprint`, the model's name in its replies, or both as `MODEL@REVISION`.
    pub revision: String,
    /// True if a reply of another revision is refused. Its pieces are held back until it is whole, because the run acts
    /// on pieces and the revision may come last.
    pub is_required: bool,
}

impl PinnedRevision {
    fn is_told_by(&self, completion: &Completion) -> bool {
        let pinned = self.revision.as_str();
        let (model, revision) = (completion.model.as_deref(), completion.revision());
        let is_both = pinned
            .split_once('@')
            .is_some_and(|(name, version)| model == Some(name) && revision == Some(version));
        is_both || model == Some(pinned) || revision == Some(pinned)
    }
}

/// The model and the revision that a reply tells.
fn told(completion: &Completion) -> Option<String> {
    let text = match (completion.model.as_deref(), completion.revision()) {
        (Some(model), Some(revision)) => format!("{model}@{revision}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => return None,
    };
    Some(text.chars().take(MAX_TOLD_CHARS).collect())
}

/// A model whose replies are compared with its pinned revision.
#[derive(Debug)]
pub(super) struct PinnedModel {
    /// Name of the endpoint in the configuration.
    pub endpoint: String,
    pub pinned: PinnedRevision,
    pub model: Box<dyn Model>,
}

impl PinnedModel {
    async fn compared(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        if self.pinned.is_required {
            return self.required(request, watch).await;
        }
        let completion = self.model.complete(request, watch).await?;
        if !self.pinned.is_told_by(&completion) {
            watch.routing(Routing::OtherRevision {
                endpoint: self.endpoint.clone(),
                pinned: self.pinned.revision.clone(),
                told: told(&completion),
            });
        }
        Ok(completion)
    }

    async fn required(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        let mut held = HeldPieces {
            watch: &mut *watch,
            pieces: Vec::new(),
        };
        let completion = self.model.complete(request, &mut held).await?;
        let pieces = held.pieces;
        if !self.pinned.is_told_by(&completion) {
            return Err(ModelError::OtherRevision {
                endpoint: self.endpoint.clone(),
                pinned: self.pinned.revision.clone(),
                told: told(&completion),
            });
        }
        for piece in pieces {
            watch.delta(piece);
            watch.room().await;
        }
        Ok(completion)
    }
}

impl Model for PinnedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(self.compared(request, watch))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

/// Keeps the pieces of a reply, which the client bounds, and passes on all else.
struct HeldPieces<'a> {
    watch: &'a mut dyn CompletionObserver,
    pieces: Vec<Delta>,
}

impl CompletionObserver for HeldPieces<'_> {
    fn delta(&mut self, delta: Delta) {
        self.pieces.push(delta);
    }

    fn routing(&mut self, routing: Routing) {
        self.watch.routing(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.watch.side_request(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn completion(model: Option<&str>, revision: Option<&str>) -> Completion {
        let revision = revision.map(|revision| ("system_fingerprint".to_owned(), revision.into()));
        Completion {
            model: model.map(str::to_owned),
            extra: Map::from_iter(revision),
            ..Completion::default()
        }
    }

    #[test]
    fn a_revision_is_a_fingerprint_a_model_or_both() {
        for (pinned, model, revision, expected) in [
            ("fp_1", Some("m"), Some("fp_1"), true),
            ("fp_1", Some("m"), Some("fp_2"), false),
            ("fp_1", Some("m"), None, false),
            ("fp_1", None, None, false),
            ("m-2026-01", Some("m-2026-01"), Some("fp_2"), true),
            ("m-2026-01", Some("m"), None, false),
            ("m@fp_1", Some("m"), Some("fp_1"), true),
            ("m@fp_1", Some("n"), Some("fp_1"), false),
            // Some names of models have a version of their own.
            ("m@20260101", Some("m@20260101"), None, true),
        ] {
            let pinned = PinnedRevision {
                revision: pinned.to_owned(),
                is_required: false,
            };
            let found = pinned.is_told_by(&completion(model, revision));
            assert_eq!(found, expected, "{pinned:?} {model:?} {revision:?}");
        }
    }

    #[test]
    fn told_revision_is_short() {
        let long = "x".repeat(10_000);
        let told = told(&completion(Some("m"), Some(&long))).unwrap();
        assert_eq!(told.chars().count(), MAX_TOLD_CHARS);
        assert_eq!(super::told(&completion(None, None)), None);
    }
}
