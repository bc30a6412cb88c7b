//! Counting tokens where the endpoint can. It is no part of the OpenAI API: each server has a route and a
//! form of its own, so the form is looked for once and kept in the [`Dialect`](crate::dialect::Dialect).

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// Counts tokens as the model reads them.
pub trait Counter: Send + Sync + Debug {
    /// How many tokens `text` is, without those that a chat template puts around it. Must bound its own
    /// waiting.
    fn count<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<u64, ModelError>>;

    /// How an endpoint is asked for it, if one is. Endpoints of the same model that are asked alike count
    /// alike.
    fn tokenizer(&self) -> Option<Tokenizer> {
        None
    }
}

/// Where an endpoint counts tokens, and how it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokenizer {
    pub place: TokenizeRoute,
    pub form: Form,
}

/// The route, seen from the base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizeRoute {
    /// `/tokenize`
    Root,
    /// `/v1/tokenize`
    Base,
}

/// The name that the text has in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// vLLM and SGLang; with the model's name.
    Prompt,
    /// llama.cpp.
    Content,
    /// TGI.
    Inputs,
}
