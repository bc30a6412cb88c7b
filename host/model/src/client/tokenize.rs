//! Asks an endpoint how many tokens a text is.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{HttpAnswer, OpenAiModel};
use crate::error::ModelError;
use crate::error_body::unreadable;
use crate::model::Model as _;
use crate::tokenizer::{Counter, Form, TokenizeRoute, Tokenizer};
use crate::transport::HttpRequest;

/// Tokenizing a whole window takes milliseconds, but a busy server may queue the request.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

impl OpenAiModel {
    /// How this endpoint counts tokens; `None` if it does not.
    ///
    /// A route is accepted only if it counts more tokens for a longer text: llama.cpp answers vLLM's request
    /// form with 200 and no tokens.
    pub async fn find_tokenizer(&self) -> Result<Option<Tokenizer>, ModelError> {
        for place in [TokenizeRoute::Root, TokenizeRoute::Base] {
            for form in [Form::Prompt, Form::Content, Form::Inputs] {
                let tokenizer = Tokenizer { place, form };
                let answer = self.tokenized(tokenizer, "one").await?;
                if answer.is_unsupported() {
                    break;
                }
                let more = "one two three four five six seven eight";
                let Some(few) = count(&answer).filter(|few| *few > 0) else {
                    continue;
                };
                if count(&self.tokenized(tokenizer, more).await?) > Some(few) {
                    return Ok(Some(tokenizer));
                }
            }
        }
        Ok(None)
    }

    /// Counts the model's tokens of `text`. Waits 10 seconds at most.
    pub async fn count_tokens(&self, with: Tokenizer, text: &str) -> Result<u64, ModelError> {
        let answer = self.tokenized(with, text).await?;
        if !answer.is_success() {
            return Err(self.refused(&answer));
        }
        let error = || unreadable("a count of tokens", &answer.body, None);
        count(&answer).ok_or_else(error)
    }

    async fn tokenized(&self, with: Tokenizer, text: &str) -> Result<HttpAnswer, ModelError> {
        let path = match with.place {
            TokenizeRoute::Root => "../tokenize",
            TokenizeRoute::Base => "tokenize",
        };
        let body = match with.form {
            // Without this, each text would count one token too many: the token that begins a prompt.
            // llama.cpp does not add it, and TGI marks it in its answer.
            Form::Prompt => {
                json!({"model": self.name(), "prompt": text, "add_special_tokens": false})
            }
            Form::Content => json!({"content": text}),
            Form::Inputs => json!({"inputs": text}),
        };
        self.ask(HttpRequest::post(path, body), COUNT_TIMEOUT).await
    }
}

/// Counts tokens at the endpoint of a model, in the form that the endpoint supports.
#[derive(Debug)]
pub(super) struct TokenCounter {
    pub model: OpenAiModel,
    pub with: Tokenizer,
}

impl Counter for TokenCounter {
    fn count<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<u64, ModelError>> {
        self.model.count_tokens(self.with, text).boxed()
    }

    fn tokenizer(&self) -> Option<Tokenizer> {
        Some(self.with)
    }
}

/// `{"count": 3}`, `{"tokens": […]}` or a bare list of tokens.
fn count(answer: &HttpAnswer) -> Option<u64> {
    let value = answer.is_success().then(|| answer.json())??;
    let listed = |tokens: &Value| {
        let tokens = tokens.as_array()?.iter();
        u64::try_from(tokens.filter(|token| !is_special(token)).count()).ok()
    };
    let counted = value.get("count").and_then(Value::as_u64);
    counted
        .or_else(|| listed(value.get("tokens")?))
        .or_else(|| listed(&value))
}

/// Whether TGI marked a token as special, that is, not part of the text.
fn is_special(token: &Value) -> bool {
    let place = |end: &str| token.get(end).and_then(Value::as_u64);
    place("start").is_some() && place("start") == place("stop")
}
