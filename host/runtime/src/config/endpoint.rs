//! `[endpoints.NAME]`: a model behind a server, and the handling of its failures.

use crate::config::price::{Money, TokenPrices, one};
use crate::config::surroundings::ConfigFault;
use serde::Deserialize;
use std::time::Duration;
use toolhold_model::chat::FieldNames;
use toolhold_model::route::{
    BreakerPolicy, EndpointLimits, EndpointPolicy, PinnedRevision, RetryPolicy,
};
use toolhold_protocol::contract::Contract;

/// A model behind an OpenAI-compatible server.
#[derive(Debug, Clone, Deserialize)]
pub struct EndpointTable {
    /// Base URL up to and including `/v1`.
    pub base_url: String,
    /// Empty: the first model that the endpoint lists.
    pub model: String,
    /// The revision of the model that replies must tell; empty: any.
    #[serde(default)]
    revision: String,
    #[serde(default)]
    other_revision: OtherRevisionAction,
    pub api_key_env: String,
    pub contract: ContractChoice,
    /// Whether replies are streamed.
    pub stream: bool,
    /// Additional fields of every request.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// What the server calls fields of a request.
    #[serde(default)]
    pub fields: FieldNames,
    pub images: ImageChoice,
    pub connect_timeout_ms: u64,
    pub first_token_timeout_ms: u64,
    pub idle_timeout_ms: u64,
    /// Prompt and reply together, in tokens; 0: unknown.
    pub(super) window: u64,
    /// Its share of a pool's runs.
    pub weight: u32,
    attempts: u32,
    backoff_ms: u64,
    retry_wait_ms: u64,
    /// 0: never.
    hedge_after_ms: u64,
    breaker_failures: u32,
    /// Mentioned in the default file, as the keys of tables that users name are.
    #[serde(default = "max_rest_ms")]
    max_rest_ms: u64,
    /// Mentioned as well.
    #[serde(default = "refused_wait_ms")]
    refused_wait_ms: u64,
    concurrent_requests: usize,
    queue_timeout_ms: u64,
    requests_per_minute: u64,
    tokens_per_minute: u64,
    #[serde(default)]
    pub price_per_million: TokenPrices,
    /// Zero: no price.
    #[serde(default)]
    pub gpu_hour: Money,
    #[serde(default = "one")]
    pub gpus: u32,
    #[serde(default = "one")]
    pub gpu_requests: u32,
}

/// How the model is asked for calls and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContractChoice {
    /// The contract that `toolhold doctor --probe` found to work; the schema contract without a probe.
    Auto,
    Schema,
    Tools,
    Simple,
}

impl ContractChoice {
    /// The configured contract; `None` if probing decides.
    pub fn fixed(self) -> Option<Contract> {
        match self {
            Self::Auto => None,
            Self::Schema => Some(Contract::Schema),
            Self::Tools => Some(Contract::Tools),
            Self::Simple => Some(Contract::Simple),
        }
    }
}

/// The consequence of a reply of another revision than the pinned one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OtherRevisionAction {
    /// An event of the run.
    #[default]
    Report,
    /// An error in the place of the reply.
    Refuse,
}

/// Whether the model takes images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be true, false or \"auto\"")]
pub enum ImageChoice {
    Taken(bool),
    /// They are sent, and the endpoint says whether it takes them.
    Asked(Auto),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
}

#[cfg(test)]
impl EndpointTable {
    /// The default with the overrides of `text`.
    pub fn of_test(text: &str) -> Result<Self, toml::de::Error> {
        let defaults: toml::Table = include_str!("default.toml").parse()?;
        let mut table = defaults["endpoints"]["default"]
            .as_table()
            .cloned()
            .unwrap_or_default();
        table.extend(text.parse::<toml::Table>()?);
        toml::Value::Table(table).try_into()
    }
}

impl EndpointTable {
    pub fn policy(&self) -> EndpointPolicy {
        EndpointPolicy {
            limits: EndpointLimits {
                concurrent_requests: self.concurrent_requests,
                requests_per_minute: self.requests_per_minute,
                tokens_per_minute: self.tokens_per_minute,
                queue_timeout: Duration::from_millis(self.queue_timeout_ms),
                ..EndpointLimits::default()
            },
            breaker: BreakerPolicy {
                failures: self.breaker_failures,
                ..BreakerPolicy::default()
            },
            max_rest: Duration::from_millis(self.max_rest_ms),
            window: Some(self.window).filter(|tokens| *tokens > 0),
            price: self.price(),
            refuses_images: self.images == ImageChoice::Taken(false),
            revision: self.pinned_revision(),
        }
    }

    fn pinned_revision(&self) -> Option<PinnedRevision> {
        (!self.revision.is_empty()).then(|| PinnedRevision {
            revision: self.revision.clone(),
            is_required: self.other_revision == OtherRevisionAction::Refuse,
        })
    }

    /// Makes it an endpoint of another model, for which the pinned revision does not hold.
    pub(super) fn with_model(mut self, model: &str) -> Self {
        if self.model != model {
            self.revision.clear();
            model.clone_into(&mut self.model);
        }
        self
    }

    /// Whether requests are sent without a temperature.
    pub fn leaves_out_temperature(&self) -> bool {
        self.fields.temperature.as_deref() == Some("")
    }

    /// Time without a piece of a reply after which the request is sent a second time.
    pub fn hedge_after(&self) -> Option<Duration> {
        hedge_after(self.hedge_after_ms)
    }

    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: self.attempts,
            backoff: Duration::from_millis(self.backoff_ms),
            total_wait: Duration::from_millis(self.retry_wait_ms),
            unreached_wait: Duration::from_millis(self.refused_wait_ms),
            ..RetryPolicy::default()
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        if self.attempts == 0 {
            let reason = "must be at least 1; 1 is no retry";
            return Err(ConfigFault::new("attempts", reason));
        }
        if self.max_rest_ms == 0 {
            let reason =
                "must be at least 1; an endpoint that asks for a rest is asked again after it";
            return Err(ConfigFault::new("max_rest_ms", reason));
        }
        if self.revision.trim() != self.revision {
            let reason = "begins or ends with a space, so that no reply tells it";
            return Err(ConfigFault::new("revision", reason));
        }
        if self.revision.is_empty() && self.other_revision == OtherRevisionAction::Refuse {
            let reason = "there is no revision to compare replies with; set it as well";
            return Err(ConfigFault::new("other_revision", reason));
        }
        if self.weight == 0 {
            let reason = "must be at least 1; what should get nothing is taken out of its pools";
            return Err(ConfigFault::new("weight", reason));
        }
        Ok(())
    }
}

/// Keys of `[endpoints.NAME]` that the default file only mentions.
pub const ENDPOINT_KEYS: [&str; 4] = [
    "max_rest_ms",
    "other_revision",
    "refused_wait_ms",
    "revision",
];

fn max_rest_ms() -> u64 {
    60_000
}

fn refused_wait_ms() -> u64 {
    2_000
}

/// 0: never.
pub(super) fn hedge_after(after_ms: u64) -> Option<Duration> {
    (after_ms > 0).then(|| Duration::from_millis(after_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_sent_images_unless_it_takes_none() {
        for (value, refuses) in [("true", false), ("\"auto\"", false), ("false", true)] {
            let table = EndpointTable::of_test(&format!("images = {value}")).unwrap();
            assert_eq!(table.policy().refuses_images, refuses, "{value}");
        }
        let error = EndpointTable::of_test("images = \"no\"").unwrap_err();
        assert!(error.to_string().contains("true, false or"), "{error}");
    }
}
