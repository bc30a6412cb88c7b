//! The cost of replies: amounts of money, and prices.
//!
//! Money is counted in billionths of whatever unit the operator's currency has, in integers: a price of 0.15
//! for a million tokens is 150 of them for a token, and a sum of a thousand replies is exact. A missing price
//! is unknown; it is never taken for 0.

use crate::completion::Usage;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Of one unit of a currency.
const NANO_PER_UNIT: u64 = 1_000_000_000;
/// Decimals that an amount may have.
const DECIMALS: usize = 9;
const MILLION: u128 = 1_000_000;
const MICROS_PER_HOUR: u128 = 3_600_000_000;

/// An amount of money, in billionths of a currency's unit. On the wire that number.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Amount(u64);

/// Why a text is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AmountError {
    #[error("{text:?} is no amount of money: write digits with a point, such as 0.15")]
    Syntax { text: String },
    #[error("{text} has more than nine decimals")]
    TooFine { text: String },
    #[error("{text} is more than 18 billion")]
    TooLarge { text: String },
}

impl Amount {
    pub const ZERO: Self = Self(0);

    pub const fn nano(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Rounds up, so that fractions cannot pass a cap on money.
    fn ratio(numerator: u128, denominator: u128) -> Self {
        let nano = numerator.div_ceil(denominator.max(1));
        Self(u64::try_from(nano).unwrap_or(u64::MAX))
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    /// Reads `12`, `0.15` or `.5`; no sign, no exponent, nine decimals at most.
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let syntax = || AmountError::Syntax {
            text: text.chars().take(40).collect(),
        };
        let too_large = || AmountError::TooLarge {
            text: text.chars().take(40).collect(),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return Err(syntax());
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > DECIMALS {
            return Err(AmountError::TooFine {
                text: text.chars().take(40).collect(),
            });
        }
        let number = |digits: &str| match digits {
            "" => Ok(0),
            digits => digits.parse::<u64>().map_err(|_| too_large()),
        };
        let nano = number(&format!("{fraction:0<DECIMALS$}"))?;
        let whole = number(whole)?
            .checked_mul(NANO_PER_UNIT)
            .ok_or_else(too_large)?;
        whole.checked_add(nano).map(Self).ok_or_else(too_large)
    }
}

/// `0.05`, `12.00`, `0.000123`: two decimals, and more where there are more.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0 % NANO_PER_UNIT);
        let kept = fraction.trim_end_matches('0').len().max(2);
        write!(
            f,
            "{}.{}",
            self.0 / NANO_PER_UNIT,
            fraction.get(..kept).unwrap_or(&fraction)
        )
    }
}

/// What an endpoint costs, in the currency of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Price {
    /// For a million tokens of each kind.
    Tokens {
        prompt: Amount,
        /// Of prompt tokens that the endpoint had in its prefix cache.
        cached: Amount,
        completion: Amount,
    },
    /// For the time that a reply takes on GPUs which work on `in_flight` replies at a time. The two are
    /// what a throughput comes to.
    Time {
        gpu_hour: Amount,
        gpus: u32,
        in_flight: u32,
    },
}

impl Price {
    /// What one reply costs, rounded up to a billionth. `None` if the endpoint did not report the tokens
    /// that would tell.
    pub fn of(&self, usage: Option<&Usage>, duration: Duration) -> Option<Amount> {
        match *self {
            Self::Tokens {
                prompt,
                cached,
                completion,
            } => {
                let usage = usage?;
                let from_cache = usage
                    .cached_prompt_tokens
                    .unwrap_or(0)
                    .min(usage.prompt_tokens);
                let part = |tokens: u64, price: Amount| u128::from(tokens) * u128::from(price.0);
                let parts = [
                    part(usage.prompt_tokens - from_cache, prompt),
                    part(from_cache, cached),
                    part(usage.completion_tokens, completion),
                ];
                let sum = parts.into_iter().fold(0, u128::saturating_add);
                Some(Amount::ratio(sum, MILLION))
            }
            Self::Time {
                gpu_hour,
                gpus,
                in_flight,
            } => {
                let hourly = u128::from(gpu_hour.0) * u128::from(gpus);
                let worked = duration.as_micros().saturating_mul(hourly);
                let shared = MICROS_PER_HOUR * u128::from(in_flight.max(1));
                Some(Amount::ratio(worked, shared))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_are_read_and_written_exactly() {
        for (text, nano, written) in [
            ("0", 0, "0.00"),
            ("0.15", 150_000_000, "0.15"),
            (".5", 500_000_000, "0.50"),
            ("12", 12_000_000_000, "12.00"),
            ("0.000000001", 1, "0.000000001"),
            ("2.5000000000000", 2_500_000_000, "2.50"),
            ("18446744073.709551615", u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(
                (amount(text).0, amount(text).to_string()),
                (nano, written.into())
            );
        }
        for (text, part) in [
            ("", "no amount"),
            (".", "no amount"),
            ("-1", "no amount"),
            ("1e3", "no amount"),
            ("1,5", "no amount"),
            ("0.0000000001", "nine decimals"),
            ("18446744073.709551616", "18 billion"),
            ("99999999999999999999999", "18 billion"),
        ] {
            let error = text.parse::<Amount>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Worked out by hand.
    #[test]
    fn prices_of_tokens() {
        let price = Price::Tokens {
            prompt: amount("0.15"),
            cached: amount("0.075"),
            completion: amount("0.60"),
        };
        let usage = |prompt, cached, completion| Usage {
            prompt_tokens: prompt,
            cached_prompt_tokens: cached,
            completion_tokens: completion,
        };
        for (usage, expected) in [
            // 1 000 × 0.15 / 10⁶ + 100 × 0.60 / 10⁶
            (usage(1_000, None, 100), "0.00021"),
            // 200 × 0.15 + 800 × 0.075 + 100 × 0.60, all / 10⁶
            (usage(1_000, Some(800), 100), "0.00015"),
            (usage(0, None, 0), "0"),
            // More from the cache than there was: all of it.
            (usage(1_000, Some(9_999), 0), "0.000075"),
            (usage(1_000_000, None, 1_000_000), "0.75"),
        ] {
            assert_eq!(
                price.of(Some(&usage), Duration::ZERO),
                Some(amount(expected))
            );
        }
        assert_eq!(price.of(None, Duration::from_secs(9)), None);
        let fine = Price::Tokens {
            prompt: amount("0.0001"),
            cached: Amount::ZERO,
            completion: Amount::ZERO,
        };
        let cost = fine.of(Some(&usage(1, None, 0)), Duration::ZERO);
        assert_eq!(
            cost,
            Some(Amount(1)),
            "a tenth of a billionth is rounded up"
        );
    }

    /// Worked out by hand: 3.60 an hour is 0.001 a second.
    #[test]
    fn prices_of_time() {
        for (gpus, in_flight, millis, expected) in [
            (1, 1, 1_000, "0.001"),
            (4, 1, 500, "0.002"),
            (1, 8, 4_000, "0.0005"),
            (1, 0, 1_000, "0.001"),
        ] {
            let price = Price::Time {
                gpu_hour: amount("3.60"),
                gpus,
                in_flight,
            };
            let cost = price.of(None, Duration::from_millis(millis));
            assert_eq!(cost, Some(amount(expected)));
        }
    }
}
