//! Inputs of the formulas, each number with its source.

use crate::capacity::formulas::{OperatingPoint, Quantities};
use std::str::FromStr;
use thiserror::Error;

/// A number's mean, median and 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
}

/// Why a text is not a [`Distribution`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpreadError {
    #[error("{0:?} is no number; write one, or two as P50,P95")]
    Number(String),
    #[error("{0} is below zero")]
    Negative(String),
    #[error("the p95, {p95}, is below the p50, {p50}")]
    Order { p50: String, p95: String },
}

/// A spread, and a description of its source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedDistribution {
    pub spread: Distribution,
    pub source: String,
}

/// Every input of a [`OperatingPoint`]; unknown ones are absent.
pub type Inputs = Quantities<Option<SourcedDistribution>>;

impl Distribution {
    pub fn of(number: f64) -> Self {
        Self {
            mean: number,
            p50: number,
            p95: number,
        }
    }

    /// The results of `of` for the means, the medians and the 95th percentiles.
    #[must_use]
    pub fn with(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            mean: of(self.mean, other.mean),
            p50: of(self.p50, other.p50),
            p95: of(self.p95, other.p95),
        }
    }

    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            p50: self.p50 * factor,
            p95: self.p95 * factor,
        }
    }
}

/// Speeds, and the time of a call, that are given in the place of times of requests and runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speeds {
    /// Prompt tokens per second that a replica reads, above 0.
    pub prefill: Option<f64>,
    /// Tokens per second that a replica writes, all requests together, above 0.
    pub decode: Option<f64>,
    /// Seconds of one call of a tool.
    pub call: Option<Distribution>,
}

/// Parses `120`, or `120,300` for p50 and p95; the mean is then the p50.
impl FromStr for Distribution {
    type Err = SpreadError;

    fn from_str(text: &str) -> Result<Self, SpreadError> {
        let number = |part: &str| match part.trim().parse::<f64>() {
            Ok(number) if number < 0.0 => Err(SpreadError::Negative(part.trim().to_owned())),
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(SpreadError::Number(part.trim().to_owned())),
        };
        let Some((p50, p95)) = text.split_once(',') else {
            return number(text).map(Self::of);
        };
        let spread = Self {
            mean: number(p50)?,
            p50: number(p50)?,
            p95: number(p95)?,
        };
        if spread.p95 < spread.p50 {
            return Err(SpreadError::Order {
                p50: p50.trim().to_owned(),
                p95: p95.trim().to_owned(),
            });
        }
        Ok(spread)
    }
}

impl SourcedDistribution {
    pub fn new(spread: Distribution, source: impl Into<String>) -> Self {
        Self {
            spread,
            source: source.into(),
        }
    }
}

impl Inputs {
    /// Fills unknown inputs from `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            first_token: self.first_token.or(others.first_token),
            between_tokens: self.between_tokens.or(others.between_tokens),
            prompt_tokens: self.prompt_tokens.or(others.prompt_tokens),
            cached_tokens: self.cached_tokens.or(others.cached_tokens),
            completion_tokens: self.completion_tokens.or(others.completion_tokens),
            requests: self.requests.or(others.requests),
            in_tools: self.in_tools.or(others.in_tools),
            tool_calls: self.tool_calls.or(others.tool_calls),
            call_marshalling: self.call_marshalling.or(others.call_marshalling),
            marshalling: self.marshalling.or(others.marshalling),
            overhead: self.overhead.or(others.overhead),
            in_flight: self.in_flight.or(others.in_flight),
            utilisation: self.utilisation.or(others.utilisation),
        }
    }

    /// Puts the times that follow from speeds in the place of others. Column by column, as the formulas are.
    #[must_use]
    pub fn at(mut self, speeds: &Speeds) -> Self {
        if let (Some(rate), Some(prompt), Some(cached)) =
            (speeds.prefill, &self.prompt_tokens, &self.cached_tokens)
        {
            let times = prompt
                .spread
                .with(cached.spread, |prompt, cached| (prompt - cached) / rate);
            let source = format!("flag --prefill-rate: {rate} prompt tokens/s");
            self.first_token = Some(SourcedDistribution::new(times, source));
        }
        if let (Some(rate), Some(batch)) = (speeds.decode, &self.in_flight) {
            let source = format!("flag --decode-rate: {rate} tokens/s of a replica");
            let times = batch.spread.times(1.0 / rate);
            self.between_tokens = Some(SourcedDistribution::new(times, source));
        }
        if let (Some(call), Some(calls)) = (speeds.call, &self.tool_calls) {
            let times = calls.spread.with(call, |calls, call| calls * call);
            self.in_tools = Some(SourcedDistribution::new(times, "flag --tool-ms, by calls"));
        }
        self
    }

    /// The points at the means, at p50 and at p95, or the flags of missing or invalid inputs.
    pub fn points(&self) -> Result<[OperatingPoint; 3], String> {
        let all = [
            ("--ttft-ms", &self.first_token),
            ("--itl-ms", &self.between_tokens),
            ("--prompt-tokens", &self.prompt_tokens),
            ("--cached-tokens", &self.cached_tokens),
            ("--completion-tokens", &self.completion_tokens),
            ("--requests", &self.requests),
            ("--tools-ms", &self.in_tools),
            ("--tool-calls", &self.tool_calls),
            ("--call-marshal-ms", &self.call_marshalling),
            ("--marshal-ms", &self.marshalling),
            ("--overhead-ms", &self.overhead),
            ("--in-flight", &self.in_flight),
            ("--utilization", &self.utilisation),
        ];
        let missing = all.iter().filter(|(_, input)| input.is_none());
        let missing: Vec<&str> = missing.map(|(flag, _)| *flag).collect();
        if !missing.is_empty() {
            return Err(format!(
                "nothing says {}: give them, or --measure the endpoint, or take them --from-runs",
                missing.join(", ")
            ));
        }
        let at = |which: fn(Distribution) -> f64| {
            self.map(|input| input.as_ref().map_or(0.0, |input| which(input.spread)))
        };
        let points = [
            at(|spread| spread.mean),
            at(|spread| spread.p50),
            at(|spread| spread.p95),
        ];
        for point in &points {
            point.check()?;
        }
        Ok(points)
    }
}

impl OperatingPoint {
    fn check(&self) -> Result<(), String> {
        for (flag, number, least) in [
            ("--completion-tokens", self.completion_tokens, 1.0),
            ("--requests", self.requests, 1.0),
            ("--in-flight", self.in_flight, 1.0),
        ] {
            if number < least {
                return Err(format!("{flag} is {number}, and must be at least {least}"));
            }
        }
        if self.first_token <= 0.0 {
            return Err("--ttft-ms is 0, and no reply comes at once".into());
        }
        if self.utilisation <= 0.0 || self.utilisation > 1.0 {
            return Err(format!(
                "--utilization is {}, and must be above 0 and at most 1",
                self.utilisation
            ));
        }
        if self.cached_tokens > self.prompt_tokens {
            return Err(format!(
                "--cached-tokens is {}, more than the {} tokens of the prompt",
                self.cached_tokens, self.prompt_tokens
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(number: f64) -> SourcedDistribution {
        SourcedDistribution::new(Distribution::of(number), "a test")
    }

    type Change = fn(&mut Inputs);

    fn inputs() -> Inputs {
        Inputs {
            first_token: Some(known(0.1)),
            between_tokens: Some(known(0.01)),
            prompt_tokens: Some(known(100.0)),
            cached_tokens: Some(known(0.0)),
            completion_tokens: Some(known(10.0)),
            requests: Some(known(1.0)),
            in_tools: Some(known(0.0)),
            tool_calls: Some(known(0.0)),
            call_marshalling: Some(known(0.0)),
            marshalling: Some(known(0.0)),
            overhead: Some(known(0.0)),
            in_flight: Some(known(1.0)),
            utilisation: Some(known(0.7)),
        }
    }

    #[test]
    fn spreads_are_read() {
        for (text, p50, p95) in [("120", 120.0, 120.0), ("1.5, 3", 1.5, 3.0), ("0", 0.0, 0.0)] {
            let mean = p50;
            assert_eq!(text.parse(), Ok(Distribution { mean, p50, p95 }), "{text}");
        }
        for (text, part) in [
            ("", "no number"),
            ("x", "no number"),
            ("NaN", "no number"),
            ("inf", "no number"),
            ("1,", "no number"),
            ("-1", "below zero"),
            ("3,1", "below the p50"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn missing_and_impossible_parts_are_named() {
        assert!(inputs().points().is_ok());
        let cases: [(Change, &str); 6] = [
            (|i| i.first_token = None, "nothing says --ttft-ms:"),
            (|i| i.first_token = Some(known(0.0)), "--ttft-ms is 0"),
            (
                |i| i.completion_tokens = Some(known(0.5)),
                "--completion-tokens is 0.5",
            ),
            (|i| i.utilisation = Some(known(1.1)), "--utilization is 1.1"),
            (|i| i.utilisation = Some(known(0.0)), "--utilization is 0"),
            (
                |i| i.cached_tokens = Some(known(101.0)),
                "more than the 100 tokens",
            ),
        ];
        for (change, part) in cases {
            let mut inputs = inputs();
            change(&mut inputs);
            let error = inputs.points().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn times_follow_from_speeds() {
        let given = Inputs {
            first_token: None,
            in_flight: Some(known(8.0)),
            tool_calls: Some(known(3.0)),
            ..inputs()
        };
        let speeds = Speeds {
            prefill: Some(500.0),
            decode: Some(400.0),
            call: Some(Distribution::of(0.5)),
        };
        let found = given.at(&speeds);
        let p50 = |input: Option<SourcedDistribution>| input.unwrap().spread.p50;
        // 100 / 500, 8 / 400, 3 x 0.5.
        for (found, expected) in [
            (p50(found.first_token), 0.2),
            (p50(found.between_tokens), 0.02),
            (p50(found.in_tools), 1.5),
        ] {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        assert_eq!(inputs().at(&Speeds::default()), inputs());
    }

    #[test]
    fn the_first_source_of_an_input_wins() {
        let flags = Inputs {
            requests: Some(SourcedDistribution::new(Distribution::of(3.0), "a flag")),
            ..Inputs::default()
        };
        let merged = flags.or(inputs());
        assert_eq!(merged.requests.unwrap().source, "a flag");
        assert_eq!(merged.in_flight.unwrap().source, "a test");
    }
}
