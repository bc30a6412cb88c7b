//! Prices of an endpoint: `price_per_million`, or `gpu_hour` with `gpus` and `gpu_requests`.

use crate::config::endpoint::EndpointTable;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use toolhold_protocol::cost::{Amount, Price};

/// An amount of money, as a number or a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Money(pub Amount);

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MoneyVisitor)
    }
}

struct MoneyVisitor;

impl Visitor<'_> for MoneyVisitor {
    type Value = Money;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of money, which is a number such as 0.15")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Money, E> {
        text.parse().map(Money).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Money, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Money, E> {
        self.visit_str(&number.to_string())
    }

    /// The shortest decimal that means this number is what was written.
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Money, E> {
        self.visit_str(&number.to_string())
    }
}

/// Prices of a million tokens.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrices {
    prompt: Option<Money>,
    cached: Option<Money>,
    completion: Option<Money>,
}

pub fn one() -> u32 {
    1
}

impl EndpointTable {
    /// The price of its replies, if one is configured.
    pub fn price(&self) -> Option<Price> {
        if let TokenPrices {
            prompt: Some(prompt),
            cached,
            completion: Some(completion),
        } = &self.price_per_million
        {
            return Some(Price::Tokens {
                prompt: prompt.0,
                cached: cached.unwrap_or(*prompt).0,
                completion: completion.0,
            });
        }
        (!self.gpu_hour.0.is_zero()).then_some(Price::Time {
            gpu_hour: self.gpu_hour.0,
            gpus: self.gpus,
            in_flight: self.gpu_requests,
        })
    }

    /// What is wrong with it: the key, and the reason.
    pub(super) fn price_fault(&self) -> Option<(&'static str, String)> {
        let TokenPrices {
            prompt,
            cached,
            completion,
        } = &self.price_per_million;
        let is_begun = prompt.is_some() || cached.is_some() || completion.is_some();
        for (name, price) in [("prompt", prompt), ("completion", completion)] {
            if is_begun && price.is_none() {
                return Some(("price_per_million", format!("{name} is missing")));
            }
        }
        if is_begun && !self.gpu_hour.0.is_zero() {
            let reason = "there is a price_per_million as well; a reply has one price";
            return Some(("gpu_hour", reason.into()));
        }
        for (key, number) in [("gpus", self.gpus), ("gpu_requests", self.gpu_requests)] {
            if number == 0 {
                return Some((key, "must be at least 1".into()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn prices_are_read_as_they_were_written() {
        let tokens = |cached: &str| Price::Tokens {
            prompt: amount("0.15"),
            cached: amount(cached),
            completion: amount("2"),
        };
        for (text, price) in [
            ("", None),
            ("price_per_million = {}", None),
            ("gpu_hour = 0", None),
            (
                "price_per_million = { prompt = 0.15, completion = 2 }",
                Some(tokens("0.15")),
            ),
            (
                "price_per_million = { prompt = \"0.15\", cached = 0, completion = 2.0 }",
                Some(tokens("0")),
            ),
            (
                "gpu_hour = 2.49\ngpus = 8",
                Some(Price::Time {
                    gpu_hour: amount("2.49"),
                    gpus: 8,
                    in_flight: 1,
                }),
            ),
        ] {
            let endpoint = EndpointTable::of_test(text).unwrap();
            assert_eq!(endpoint.price(), price, "{text}");
            assert_eq!(endpoint.price_fault(), None, "{text}");
        }
    }

    #[test]
    fn half_a_price_is_none() {
        for (text, expected) in [
            (
                "price_per_million = { prompt = 1 }",
                "completion is missing",
            ),
            (
                "price_per_million = { cached = 1, completion = 1 }",
                "prompt is missing",
            ),
            (
                "price_per_million = { prompt = 1, completion = 1 }\ngpu_hour = 1",
                "as well",
            ),
            ("gpu_hour = 1\ngpus = 0", "at least 1"),
        ] {
            let (_, reason) = EndpointTable::of_test(text).unwrap().price_fault().unwrap();
            assert!(reason.contains(expected), "{text}: {reason}");
        }
        for (text, expected) in [
            ("gpu_hour = -1", "no amount of money"),
            (
                "gpu_hour = true",
                "boolean `true`, expected an amount of money",
            ),
            ("price_per_million = { promt = 1 }", "promt"),
        ] {
            let error = EndpointTable::of_test(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
