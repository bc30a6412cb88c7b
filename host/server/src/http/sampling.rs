//! How the endpoint picks tokens, as clients of the APIs say it.

use crate::http::agent::limit_replies;
use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use toolhold_protocol::settings::Settings;
use utoipa::ToSchema;

/// The highest temperature of the own APIs, whose endpoints differ.
pub const MAX_TEMPERATURE: f64 = 100.0;
/// The highest temperature of OpenAI's APIs.
pub const OPENAI_MAX_TEMPERATURE: f64 = 2.0;

/// Passed on to the model's endpoint, which may know only some of it. `stop` is not here: a reply has a form, which a
/// stop sequence would break.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    #[schema(minimum = 0, maximum = 100)]
    pub temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    #[schema(minimum = 1)]
    top_k: Option<u32>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    #[schema(exclusive_minimum = 0)]
    repetition_penalty: Option<f64>,
    seed: Option<i64>,
    /// The most tokens of one reply of the model; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// Another way to say the first three.
    strategy: Option<SamplingStrategy>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SamplingStrategy {
    /// Temperature 0.
    Greedy {},
    TopP {
        temperature: Option<f64>,
        top_p: Option<f64>,
    },
    TopK {
        top_k: u32,
    },
}

impl SamplingParams {
    /// Adds what the request says beside.
    ///
    /// # Errors
    /// A value is given twice.
    pub fn with(mut self, temperature: Option<f64>, top_p: Option<f64>) -> Result<Self, ApiError> {
        let strategy = match self.strategy.take() {
            None => Self::default(),
            Some(SamplingStrategy::Greedy {}) => Self {
                temperature: Some(0.0),
                ..Self::default()
            },
            Some(SamplingStrategy::TopP { temperature, top_p }) => Self {
                temperature,
                top_p,
                ..Self::default()
            },
            Some(SamplingStrategy::TopK { top_k }) => Self {
                top_k: Some(top_k),
                ..Self::default()
            },
        };
        self.temperature = once(
            "temperature",
            [self.temperature, strategy.temperature, temperature],
        )?;
        self.top_p = once("top_p", [self.top_p, strategy.top_p, top_p])?;
        self.top_k = once("top_k", [self.top_k, strategy.top_k])?;
        Ok(self)
    }

    /// # Errors
    /// A value is out of its range.
    pub fn put(&self, settings: &mut Settings) -> Result<(), ApiError> {
        put_temperature(settings, self.temperature, MAX_TEMPERATURE)?;
        put_seed(settings, self.seed);
        put_top_p(settings, self.top_p)?;
        let sampling = &mut settings.sampling;
        if self.top_k == Some(0) {
            return Err(ApiError::invalid("top_k must be at least 1").of("top_k"));
        }
        sampling.top_k = self.top_k;
        sampling.min_p = within("min_p", self.min_p, "from 0 to 1", |it| {
            (0.0..=1.0).contains(&it)
        })?;
        put_penalties(settings, self.frequency_penalty, self.presence_penalty)?;
        let sampling = &mut settings.sampling;
        sampling.repetition_penalty = within(
            "repetition_penalty",
            self.repetition_penalty,
            "more than 0",
            |it| it > 0.0,
        )?;
        limit_replies(settings, "sampling_params.max_tokens", self.max_tokens)
    }
}

/// # Errors
/// It is out of its range: endpoints take an `f32`, and a record holds no infinite number.
pub fn put_temperature(
    settings: &mut Settings,
    temperature: Option<f64>,
    most: f64,
) -> Result<(), ApiError> {
    let is_usable = |it: f64| (0.0..=most).contains(&it);
    let range = format!("from 0 to {most}");
    let temperature = within("temperature", temperature, &range, is_usable)?;
    settings.temperature = temperature.map(|it| it as f32).or(settings.temperature);
    Ok(())
}

/// A client's seed goes before the agent's.
pub fn put_seed(settings: &mut Settings, seed: Option<i64>) {
    if let Some(seed) = seed {
        settings.seed = Some(seed.into());
    }
}

/// # Errors
/// It is out of its range.
pub fn put_top_p(settings: &mut Settings, top_p: Option<f64>) -> Result<(), ApiError> {
    let is_share = |it: f64| (0.0..=1.0).contains(&it);
    let top_p = within("top_p", top_p, "from 0 to 1", is_share)?;
    settings.sampling.top_p = top_p.or(settings.sampling.top_p);
    Ok(())
}

/// # Errors
/// One is out of its range.
pub fn put_penalties(
    settings: &mut Settings,
    frequency: Option<f64>,
    presence: Option<f64>,
) -> Result<(), ApiError> {
    let is_penalty = |it: f64| (-2.0..=2.0).contains(&it);
    let range = "from -2 to 2";
    let frequency = within("frequency_penalty", frequency, range, is_penalty)?;
    let presence = within("presence_penalty", presence, range, is_penalty)?;
    let sampling = &mut settings.sampling;
    sampling.frequency_penalty = frequency.or(sampling.frequency_penalty);
    sampling.presence_penalty = presence.or(sampling.presence_penalty);
    Ok(())
}

fn within(
    name: &str,
    value: Option<f64>,
    range: &str,
    is_within: impl Fn(f64) -> bool,
) -> Result<Option<f64>, ApiError> {
    match value {
        Some(value) if !is_within(value) => {
            Err(ApiError::invalid(format!("{name} must be {range}")).of(name))
        }
        value => Ok(value),
    }
}

fn once<T, const N: usize>(name: &str, given: [Option<T>; N]) -> Result<Option<T>, ApiError> {
    let mut given = given.into_iter().flatten();
    let value = given.next();
    if given.next().is_some() {
        let message = format!("{name} is given twice; leave one away");
        return Err(ApiError::invalid(message).of(name));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn put(params: Value) -> Result<Settings, String> {
        let params: SamplingParams =
            serde_json::from_value(params).map_err(|error| error.to_string())?;
        let mut settings = Settings::default();
        let params = params.with(None, None);
        let done = params.and_then(|params| params.put(&mut settings));
        done.map_err(|error| error.body().error.message)?;
        Ok(settings)
    }

    #[test]
    fn what_a_client_says_of_sampling_is_put_into_the_settings() {
        let asked = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 40, "presence_penalty": -1, "seed": 7, "max_tokens": 100});
        let settings = put(asked).unwrap();
        assert_eq!(settings.temperature, Some(0.5));
        assert_eq!((settings.seed, settings.max_tokens), (Some(7.into()), 100));
        assert_eq!(
            json!(settings.sampling),
            json!({"top_p": 0.9, "top_k": 40, "presence_penalty": -1.0})
        );
        let nucleus = json!({"strategy": {"type": "top_p", "temperature": 0.7, "top_p": 0.95}});
        let settings = put(nucleus).unwrap();
        assert_eq!(settings.temperature, Some(0.7));
        assert_eq!(settings.sampling.top_p, Some(0.95));
        let greedy = put(json!({"strategy": {"type": "greedy"}})).unwrap();
        assert_eq!(greedy.temperature, Some(0.0));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (params, reason) in [
            (json!({"top_p": -0.1}), "top_p must be from 0 to 1"),
            (json!({"top_p": 1.5}), "from 0 to 1"),
            (
                json!({"temperature": -1}),
                "temperature must be from 0 to 100",
            ),
            (
                json!({"temperature": 1e39}),
                "temperature must be from 0 to 100",
            ),
            (json!({"top_k": 0}), "top_k must be at least 1"),
            (json!({"frequency_penalty": 3}), "from -2 to 2"),
            (json!({"max_tokens": 0}), "must be at least 1"),
            (json!({"stop": ["x"]}), "unknown field `stop`"),
            (
                json!({"temperature": 1, "strategy": {"type": "greedy"}}),
                "temperature is given twice",
            ),
        ] {
            let refused = put(params).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
