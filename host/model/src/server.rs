//! What an endpoint reports about itself: readiness, models, server name and version, and context
//! length.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::{HttpAnswer, OpenAiModel};
use crate::error::ModelError;
use crate::error_body::{excerpt, from_status};
use crate::model::Model as _;
use crate::transport::HttpRequest;

/// Time limit of one question about the endpoint; a person or a health check waits for the answer.
const SERVER_QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// A model as the endpoint lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    pub id: String,
    /// The owner; model servers write their own name here (`vllm`, `sglang`, `llamacpp`).
    pub owner: Option<String>,
    /// Tokens of prompt and answer together, where the server says how it runs the model.
    pub context_length: Option<u64>,
    /// Tokens that the model was trained with: the most that a server can have.
    pub trained_length: Option<u64>,
}

/// Whether an endpoint answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Up, but not answering yet; with its own words.
    Loading(String),
    /// It has no health route, so its health is unknown.
    Unsupported,
}

/// The server behind an endpoint, as far as it identifies itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// `vllm`, `sglang`, `llamacpp`, … or the owner that the list of models names.
    pub name: Option<String>,
    pub version: Option<String>,
    /// Tokens of prompt and answer together.
    pub context_length: Option<u64>,
}

impl OpenAiModel {
    /// The models that the endpoint serves, in its order. Waits 5 seconds at most.
    pub async fn models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        let answer = self.about("models").await?;
        // Another status with a list is no answer of an endpoint that speaks this API.
        if answer.status != 200 {
            return Err(self.refused(&answer));
        }
        let list = self.accepted(&answer)?;
        // A bare array is what some hosted services send.
        let Some(models) = list.get("data").unwrap_or(&list).as_array() else {
            return Err(ModelError::NotAnEndpoint {
                url: self.target().to_owned(),
                content_type: "something else than a list of models".into(),
                excerpt: excerpt(&answer.body),
            });
        };
        Ok(models.iter().filter_map(ModelInfo::read).collect())
    }

    /// Names of the models that the endpoint serves, in its order. Waits 5 seconds at most.
    pub async fn list_models(&self) -> Result<Vec<String>, ModelError> {
        let models = self.models().await?;
        Ok(models.into_iter().map(|model| model.id).collect())
    }

    /// Whether the endpoint is ready. Waits 5 seconds at most.
    pub async fn health(&self) -> Result<Health, ModelError> {
        let answer = self.about("../health").await?;
        match answer.status {
            200..=299 => Ok(Health::Ready),
            503 => Ok(Health::Loading(
                from_status(503, &answer.body, None).message,
            )),
            404 | 405 => Ok(Health::Unsupported),
            _ => Err(self.refused(&answer)),
        }
    }

    /// Asks for the server's name, its version and the context length of this model. Facts that the endpoint
    /// does not report are `None`; the only errors are that it does not answer or refuses access. Waits 20
    /// seconds at most.
    pub async fn server(&self) -> Result<ServerInfo, ModelError> {
        let models = match self.models().await {
            Ok(models) => models,
            // Chat may work without it.
            Err(ModelError::Status {
                status: 404 | 405 | 501,
                ..
            }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let own = models.iter().find(|model| model.id == self.name());
        let model = own.or_else(|| models.first());
        let mut server = ServerInfo {
            name: model.and_then(|model| model.owner.clone()),
            version: None,
            context_length: model.and_then(|model| model.context_length),
        };
        // vLLM and Ollama; llama.cpp; TGI; SGLang.
        for path in ["../version", "../props", "../info", "../get_server_info"] {
            if server.version.is_some() && server.context_length.is_some() {
                break;
            }
            if let Ok(answer) = self.about(path).await
                && answer.is_success()
                && let Some(facts) = answer.json()
            {
                server.learn(&facts);
            }
        }
        let trained = model.and_then(|model| model.trained_length);
        server.context_length = server.context_length.or(trained);
        Ok(server)
    }

    async fn about(&self, path: &str) -> Result<HttpAnswer, ModelError> {
        self.ask(HttpRequest::get(path), SERVER_QUERY_TIMEOUT).await
    }
}

impl ModelInfo {
    fn read(model: &Value) -> Option<Self> {
        let first = |places: &[&str]| {
            let mut found = places.iter().filter_map(|place| model.pointer(place));
            found.find_map(|value| value.as_u64().filter(|length| *length > 0))
        };
        Some(Self {
            id: model.get("id")?.as_str()?.to_owned(),
            owner: text(model, "/owned_by"),
            context_length: first(&[
                // vLLM and SGLang; llama.cpp; LM Studio; Groq; OpenRouter and others.
                "/max_model_len",
                "/meta/n_ctx",
                "/loaded_context_length",
                "/context_window",
                "/context_length",
                "/max_context_length",
            ]),
            trained_length: first(&["/meta/n_ctx_train"]),
        })
    }
}

impl ServerInfo {
    /// Adds what one of the servers' own routes says.
    fn learn(&mut self, facts: &Value) {
        let version = text(facts, "/version").or_else(|| text(facts, "/build_info"));
        self.version = self.version.take().or(version);
        let mut lengths = [
            "/default_generation_settings/n_ctx",
            "/max_total_tokens",
            "/context_length",
        ]
        .into_iter()
        .filter_map(|place| facts.pointer(place)?.as_u64())
        .filter(|length| *length > 0);
        self.context_length = self.context_length.or_else(|| lengths.next());
    }
}

/// A text at this place, at most 100 characters of it.
fn text(value: &Value, place: &str) -> Option<String> {
    let text = value.pointer(place)?.as_str()?;
    let text: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_context_length_has_many_names() {
        for (model, expected) in [
            (json!({"id": "m", "max_model_len": 4096}), Some(4096)),
            (
                json!({"id": "m", "meta": {"n_ctx_train": 32768, "n_ctx": 2048}}),
                Some(2048),
            ),
            (json!({"id": "m", "meta": {"n_ctx_train": 32768}}), None),
            (json!({"id": "m", "context_length": 8192}), Some(8192)),
            (
                json!({"id": "m", "max_model_len": 0, "context_window": 16384}),
                Some(16384),
            ),
            (json!({"id": "m", "max_model_len": "4096"}), None),
        ] {
            let info = ModelInfo::read(&model).unwrap();
            assert_eq!(info.context_length, expected, "{model}");
        }
        assert_eq!(ModelInfo::read(&json!({"name": "m"})), None);
    }

    #[test]
    fn each_server_says_who_it_is_in_its_way() {
        for (facts, version, length) in [
            (json!({"version": "0.20.1"}), Some("0.20.1"), None),
            (
                json!({"build_info": "b7000-abc", "default_generation_settings": {"n_ctx": 4096}}),
                Some("b7000-abc"),
                Some(4096),
            ),
            (
                json!({"version": "3.0.0", "max_total_tokens": 2048, "max_input_tokens": 1024}),
                Some("3.0.0"),
                Some(2048),
            ),
            (json!({"version": 7, "context_length": null}), None, None),
            (json!([]), None, None),
        ] {
            let mut server = ServerInfo::default();
            server.learn(&facts);
            assert_eq!(server.version.as_deref(), version, "{facts}");
            assert_eq!(server.context_length, length, "{facts}");
        }
    }
}
