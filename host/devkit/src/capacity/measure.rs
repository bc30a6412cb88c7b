//! Measures an endpoint with short requests, 1, 2, 4, … at the same time, within a bounded time.

use crate::capacity::Distribution;
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use toolhold_model::{ChatMessage, ChatRequest, Model, ModelError};
use toolhold_protocol::completion::Delta;

/// Rounds at each level: the fewest that show a spread.
const ROUNDS_PER_LEVEL: u32 = 3;
/// Repeated to reach a prompt's length: most tokenizers make one token of it.
const WORD: &str = " word";

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// Approximate tokens of a prompt.
    pub prompt_tokens: u32,
    /// Most tokens of a reply.
    pub completion_tokens: u32,
    /// The most requests at the same time; rounded down to a power of two.
    pub most_in_flight: u32,
    /// Time limit of the whole measurement.
    pub time: Duration,
}

/// The results of an endpoint.
#[derive(Debug, Default)]
pub struct Measurement {
    /// By requests in flight, fewest first.
    pub levels: Vec<Level>,
    /// Why the measurement ended early, if it did.
    pub stopped: Option<String>,
}

/// At one number of requests in flight. All times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    pub in_flight: u32,
    pub requests: u32,
    pub first_token: Distribution,
    /// Absent if no reply had a second token.
    pub between_tokens: Option<Distribution>,
    pub latency: Distribution,
    pub prompt_tokens: Distribution,
    pub completion_tokens: Distribution,
    /// Per second, all requests together.
    pub requests_rate: f64,
    pub completion_tokens_rate: f64,
    /// Whether the endpoint counted tokens; otherwise pieces were counted.
    pub is_counted: bool,
}

/// One request.
#[derive(Debug, Clone, Copy)]
struct Sample {
    first_token: f64,
    latency: f64,
    prompt_tokens: f64,
    completion_tokens: f64,
    is_counted: bool,
}

/// Runs the measurement. The first request is not counted: it opens the connection and loads the model.
///
/// # Errors
/// The first level failed.
pub async fn measure(model: &dyn Model, probe: &Probe) -> Result<Measurement, ModelError> {
    let deadline = Instant::now() + probe.time;
    let mut measured = Measurement::default();
    let mut number = 0;
    match timeout_at(deadline, ask(model, probe, number)).await {
        Ok(answer) => drop(answer?),
        Err(_) => {
            measured.stopped = Some(format!(
                "not one reply came within {} s",
                probe.time.as_secs()
            ));
            return Ok(measured);
        }
    }
    let mut in_flight = 1;
    while in_flight <= probe.most_in_flight {
        match timeout_at(deadline, level(model, probe, in_flight, &mut number)).await {
            Ok(Ok(level)) => measured.levels.push(level),
            Ok(Err(error)) if in_flight == 1 => return Err(error),
            Ok(Err(error)) => {
                measured.stopped = Some(format!("at {in_flight} in flight: {error}"));
                break;
            }
            Err(_) => {
                let time = probe.time.as_secs();
                measured.stopped = Some(format!("{time} s were over at {in_flight} in flight"));
                break;
            }
        }
        in_flight = in_flight.saturating_mul(2);
    }
    Ok(measured)
}

async fn level(
    model: &dyn Model,
    probe: &Probe,
    in_flight: u32,
    number: &mut u32,
) -> Result<Level, ModelError> {
    let began = Instant::now();
    // Each lane sends its next request at once, so that the number in flight is constant.
    let lanes = (0..in_flight).map(|lane| {
        let first = *number + 1 + lane * ROUNDS_PER_LEVEL;
        async move {
            let mut samples = Vec::new();
            for round in 0..ROUNDS_PER_LEVEL {
                samples.push(ask(model, probe, first + round).await?);
            }
            Ok::<_, ModelError>(samples)
        }
    });
    let lanes = join_all(lanes).await;
    *number += in_flight * ROUNDS_PER_LEVEL;
    let mut samples = Vec::new();
    for lane in lanes {
        samples.extend(lane?);
    }
    Ok(Level::of(
        in_flight,
        &samples,
        began.elapsed().as_secs_f64(),
    ))
}

async fn ask(model: &dyn Model, probe: &Probe, number: u32) -> Result<Sample, ModelError> {
    let words = usize::try_from(probe.prompt_tokens).unwrap_or(usize::MAX);
    // The number comes first, so that the prompt is not in the endpoint's prefix cache.
    let text = format!(
        "{number}: count from 1 to 10000, a number a line, and ignore the rest.{}",
        WORD.repeat(words.saturating_sub(25))
    );
    let mut request = ChatRequest::new("", vec![ChatMessage::user(text)]);
    request.max_tokens = Some(probe.completion_tokens);
    request.temperature = Some(0.0);
    let mut pieces = 0_u32;
    let mut watch = |_: Delta| pieces = pieces.saturating_add(1);
    let completion = model.complete(&request, &mut watch).await?;
    let latency = completion.duration.as_secs_f64();
    let usage = completion.usage;
    Ok(Sample {
        first_token: completion
            .time_to_first_token
            .map_or(latency, |time| time.as_secs_f64()),
        latency,
        prompt_tokens: usage.map_or(f64::from(probe.prompt_tokens), |usage| {
            usage.prompt_tokens as f64
        }),
        completion_tokens: usage.map_or(f64::from(pieces), |usage| usage.completion_tokens as f64),
        is_counted: usage.is_some(),
    })
}

impl Level {
    fn of(in_flight: u32, samples: &[Sample], wall: f64) -> Self {
        let each = |what: fn(&Sample) -> f64| samples.iter().map(what).collect::<Vec<_>>();
        let between = samples
            .iter()
            .filter(|sample| sample.completion_tokens >= 2.0);
        let between = between
            .map(|sample| (sample.latency - sample.first_token) / (sample.completion_tokens - 1.0))
            .collect();
        let written: f64 = each(|sample| sample.completion_tokens).iter().sum();
        let rate = |number: f64| number / wall.max(1e-9);
        Self {
            in_flight,
            requests: u32::try_from(samples.len()).unwrap_or(u32::MAX),
            first_token: spread(each(|sample| sample.first_token)).unwrap_or(Distribution::of(0.0)),
            between_tokens: spread(between),
            latency: spread(each(|sample| sample.latency)).unwrap_or(Distribution::of(0.0)),
            prompt_tokens: spread(each(|sample| sample.prompt_tokens))
                .unwrap_or(Distribution::of(0.0)),
            completion_tokens: spread(each(|sample| sample.completion_tokens))
                .unwrap_or(Distribution::of(0.0)),
            requests_rate: rate(samples.len() as f64),
            completion_tokens_rate: rate(written),
            is_counted: samples.iter().all(|sample| sample.is_counted),
        }
    }
}

/// Percentiles by nearest rank.
fn spread(mut numbers: Vec<f64>) -> Option<Distribution> {
    numbers.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (numbers.len() * percent).div_ceil(100).max(1);
        numbers.get(rank - 1).copied()
    };
    Some(Distribution {
        mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
        p50: at(50)?,
        p95: at(95)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_by_nearest_rank() {
        let numbers: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(
            spread(numbers),
            Some(Distribution {
                mean: 10.5,
                p50: 10.0,
                p95: 19.0
            })
        );
        assert_eq!(spread(vec![7.0]), Some(Distribution::of(7.0)));
        assert_eq!(spread(Vec::new()), None);
    }

    #[test]
    fn a_level_adds_up_what_its_requests_took() {
        let sample = |latency: f64, completion_tokens: f64| Sample {
            first_token: 0.5,
            latency,
            prompt_tokens: 100.0,
            completion_tokens,
            is_counted: true,
        };
        let level = Level::of(
            2,
            &[sample(1.5, 11.0), sample(2.5, 11.0), sample(0.5, 1.0)],
            4.0,
        );
        assert_eq!(level.requests, 3);
        assert_eq!(
            level.between_tokens,
            Some(Distribution {
                mean: f64::midpoint(0.1, 0.2),
                p50: 0.1,
                p95: 0.2
            })
        );
        assert_eq!(
            level.latency,
            Distribution {
                mean: 1.5,
                p50: 1.5,
                p95: 2.5
            }
        );
        assert!((level.requests_rate - 0.75).abs() < 1e-9);
        assert!((level.completion_tokens_rate - 5.75).abs() < 1e-9);
        let silent = Level::of(1, &[sample(0.5, 0.0)], 1.0);
        assert_eq!(silent.between_tokens, None);
    }
}
