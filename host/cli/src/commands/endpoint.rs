//! The flags that say which model is asked, for every command that asks one.

use crate::config::Flags;
use clap::Args;

#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// URL of the endpoint up to /v1.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Name of the model at the endpoint [default: the first that it lists].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Name of a configured endpoint or pool, or router [default: the setting endpoint].
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
}

impl EndpointArgs {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        flags.set("--endpoint", "endpoint", self.endpoint.clone());
        for (flag, leaf, value) in [
            ("--base-url", "base_url", &self.base_url),
            ("--model", "model", &self.model),
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
        ]
        .into_iter()
        .find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}
