//! The flags that say which model is asked, for every command that asks one.

use crate::config::{Flags, MODEL_FLAG, presets};
use clap::Args;

#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// URL of the endpoint up to /v1.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Name of the model at the endpoint [default: the first that it lists], or PRESET:MODEL for a well-known endpoint,
    /// such as openai:gpt-4.1 or ollama:llama3.2.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Variable, or stored secret, that holds the endpoint's key; needed where --base-url replaces a configured address.
    #[arg(long, value_name = "VARIABLE")]
    api_key_env: Option<String>,
    /// Name of a configured endpoint or pool, of a preset, or router [default: the setting endpoint].
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
}

impl EndpointArgs {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        let key = self.api_key_env.clone();
        flags.set("--api-key-env", "endpoints.{endpoint}.api_key_env", key);
        // Another address, or endpoint, may have a model of that name.
        let is_alone = self.base_url.is_none() && self.endpoint.is_none();
        let preset = self.model.as_deref().filter(|_| is_alone);
        if let Some((preset, model)) = preset.and_then(presets::split) {
            flags.set(MODEL_FLAG, "endpoint", Some(preset));
            flags.set(MODEL_FLAG, format!("endpoints.{preset}.model"), Some(model));
            return;
        }
        flags.set("--endpoint", "endpoint", self.endpoint.clone());
        for (flag, leaf, value) in [
            ("--base-url", "base_url", &self.base_url),
            (MODEL_FLAG, "model", &self.model),
        ] {
            let key = format!("endpoints.{{endpoint}}.{leaf}");
            flags.set(flag, key, value.clone());
        }
    }

    /// Resolves conflicts between the flags.
    pub fn given(&self) -> Option<&'static str> {
        [
            ("--base-url", self.base_url.is_some()),
            ("--model", self.model.is_some()),
            ("--endpoint", self.endpoint.is_some()),
            ("--api-key-env", self.api_key_env.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}
