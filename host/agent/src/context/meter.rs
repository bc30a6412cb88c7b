//! How many tokens a text is, as far as that can be known without the model's tokenizer.

/// Assumed bytes per token: common tokenizers rarely go below this for JSON and prose, so an
/// estimate errs on the safe side.
const BYTES_PER_TOKEN: f64 = 3.0;
/// Plausible bytes per token of an endpoint's count. Outside of this range it counted something
/// else.
const PLAUSIBLE_BYTES_PER_TOKEN: std::ops::RangeInclusive<f64> = 1.0..=8.0;
/// Minimum tokens of a prompt to learn from: a shorter one is mostly the chat template's own
/// tokens.
const MIN_TOKENS: u64 = 32;

/// Estimates until the endpoint has counted, and then goes by its last count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenMeter {
    bytes_per_token: f64,
    is_taught: bool,
}

impl Default for TokenMeter {
    fn default() -> Self {
        Self {
            bytes_per_token: BYTES_PER_TOKEN,
            is_taught: false,
        }
    }
}

impl TokenMeter {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate of a positive number that is far below 2^52"
    )]
    pub fn tokens(&self, bytes: usize) -> u64 {
        (bytes as f64 / self.bytes_per_token).ceil() as u64
    }

    /// About how many bytes so many tokens are.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate of a positive number that is far below 2^52"
    )]
    pub fn bytes(&self, tokens: u64) -> usize {
        (tokens as f64 * self.bytes_per_token) as usize
    }

    /// The endpoint counted `tokens` for a prompt of so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    pub fn observe(&mut self, bytes: usize, tokens: u64) {
        if tokens < MIN_TOKENS {
            return;
        }
        let ratio = bytes as f64 / tokens as f64;
        if PLAUSIBLE_BYTES_PER_TOKEN.contains(&ratio) {
            self.bytes_per_token = ratio;
            self.is_taught = true;
        }
    }

    /// Whether it goes by a count.
    pub fn is_taught(&self) -> bool {
        self.is_taught
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_by_what_the_endpoint_counted() {
        let mut meter = TokenMeter::default();
        assert_eq!(meter.tokens(3_000), 1_000);
        meter.observe(10, 5);
        assert!(!meter.is_taught());
        meter.observe(4_000, 1_000);
        assert!(meter.is_taught());
        assert_eq!(meter.tokens(4_000), 1_000);
        for (bytes, tokens) in [(10, 5), (100_000, 100), (100, 1_000)] {
            meter.observe(bytes, tokens);
            assert_eq!(meter.tokens(4_000), 1_000, "{bytes} bytes, {tokens} tokens");
        }
    }
}
