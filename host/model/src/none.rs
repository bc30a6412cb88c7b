//! No model, for a run that has none to ask.

use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model};
use futures_util::future::BoxFuture;
use toolhold_protocol::completion::Completion;

/// Placeholder for the model of a run that never asks one: the run of a saved plan (calls that need a model
/// are refused before it starts), or a run that is only to be ended.
#[derive(Debug)]
pub struct NoModel;

impl Model for NoModel {
    fn name(&self) -> &'static str {
        "no model"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ChatRequest,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async {
            Err(ModelError::Config {
                message: "this run has no model to ask".into(),
            })
        })
    }
}
