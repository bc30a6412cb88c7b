//! The start of a period: `90m`, `2026-11-20`, `2026-11-20T08:00:00+01:00`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::TimeZone;
use std::str::FromStr;
use thiserror::Error;

/// A moment, as a user wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// This many seconds ago.
    Ago(u64),
    /// Milliseconds since 1970 (UTC).
    At(u64),
}

/// A text that is not a moment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is neither a time ago, such as 90m, 2h or 7d, nor a date, such as 2026-11-20 or \
     2026-11-20T08:00:00Z (UTC if nothing else is said)"
)]
pub struct SinceError {
    text: String,
}

impl Since {
    /// In milliseconds since 1970.
    pub fn at_ms(self) -> u64 {
        match self {
            Self::Ago(seconds) => now_ms().saturating_sub(seconds.saturating_mul(1_000)),
            Self::At(at_ms) => at_ms,
        }
    }
}

impl FromStr for Since {
    type Err = SinceError;

    fn from_str(text: &str) -> Result<Self, SinceError> {
        let text = text.trim();
        let found = ago(text).map(Self::Ago);
        found
            .or_else(|| date(text).map(Self::At))
            .ok_or_else(|| SinceError {
                text: text.chars().take(60).collect(),
            })
    }
}

/// Milliseconds since 1970 (UTC).
pub fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

fn ago(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let number = text.get(..text.len() - 1)?;
    let is_digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| number.parse::<u64>().ok()?.checked_mul(unit))?
}

/// A date, or a date and a time, in UTC unless it has an offset.
fn date(text: &str) -> Option<u64> {
    let at = text.parse::<Timestamp>().ok().or_else(|| {
        let at: DateTime = text.parse().ok()?;
        Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    u64::try_from(at.as_millisecond()).ok()
}

/// The moment as HTTP writes dates. A moment after the last one that has a date is shown as that one.
pub fn date_text(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&at.unwrap_or(Timestamp::MAX))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        for (text, expected) in [
            ("90s", Since::Ago(90)),
            ("2h", Since::Ago(7_200)),
            (" 7d ", Since::Ago(604_800)),
            ("1970-01-01", Since::At(0)),
            // The value of `date -u -d … +%s`.
            ("2000-02-29", Since::At(951_782_400_000)),
            ("2026-11-20", Since::At(1_795_132_800_000)),
            ("2026-11-20T08:30:00Z", Since::At(1_795_163_400_000)),
            ("2026-11-20T08:30:00+01:00", Since::At(1_795_159_800_000)),
            ("2026-11-20 08:30:00", Since::At(1_795_163_400_000)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "h",
            "2",
            "-2h",
            "2.5h",
            "2026-13-01",
            "2026-02-30",
            "08:30:00",
            "yesterday",
            "1900-01-01",
            "99999999999999999999h",
            "é",
        ] {
            let error = text.parse::<Since>().unwrap_err().to_string();
            assert!(error.contains("neither"), "{text}");
        }
    }

    #[test]
    fn ago_counts_from_now() {
        let now = Since::Ago(0).at_ms();
        assert!(now - Since::Ago(60).at_ms() >= 59_000);
        assert_eq!(Since::Ago(u64::MAX).at_ms(), 0);
    }

    #[test]
    fn any_moment_can_be_shown() {
        for (at_ms, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (u64::MAX, "Thu, 30 Dec 9999 22:00:00 GMT"),
        ] {
            assert_eq!(date_text(at_ms), text);
        }
    }
}
