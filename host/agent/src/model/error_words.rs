//! What errors say in words only: how long to wait, and how much would have fitted.

use std::time::Duration;

use serde_json::{Map, Value};

use super::error::ContextOverflow;

/// The wait that a message names: "Please try again in 1m2.5s".
pub(super) fn wait_in(message: &str) -> Option<Duration> {
    let start = message.find("try again in ")? + "try again in ".len();
    let mut rest = &message[start..];
    let mut seconds = None;
    // Hours, minutes, seconds: no message has more parts.
    for _ in 0..4 {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let number = rest[..digits].trim_end_matches('.').parse::<f64>();
        let Ok(number) = number else {
            break;
        };
        rest = rest[digits..].trim_start();
        let unit = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let scale = match &rest[..unit] {
            "ms" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => break,
        };
        *seconds.get_or_insert(0.0) += number * scale;
        rest = &rest[unit..];
    }
    wait(seconds?)
}

/// So many seconds; a wait is not believed beyond a day.
pub(super) fn wait(seconds: f64) -> Option<Duration> {
    const DAY: f64 = 86_400.0;
    Duration::try_from_secs_f64(seconds.min(DAY)).ok()
}

/// The texts before the size of the window and before that of the request, for servers that say them in
/// words only: OpenAI, vLLM, SGLang, TGI, TensorRT-LLM, LM Studio, hosted services.
const WINDOW_AFTER: [&str; 9] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum model length of ",
    "context length (",
    "context length of only ",
    "`max_new_tokens` must be <= ",
    "maximum number of tokens allowed (",
    "exceeds maximum input length (",
    "should not exceed max_num_tokens (",
];
const PROMPT_AFTER: [&str; 10] = [
    "The input (",
    "you requested a total of ",
    "You requested a total of ",
    "you requested ",
    "your request has ",
    "resulted in ",
    "prompt (length ",
    "keep the first ",
    "input token count (",
    "rompt length (",
];

pub(super) fn overflow(
    message: &str,
    code: Option<&str>,
    kind: Option<&str>,
    source: &Map<String, Value>,
) -> Option<ContextOverflow> {
    let count = |key: &str| source.get(key).and_then(Value::as_u64);
    let named = [code, kind].into_iter().flatten().any(|word| {
        matches!(
            word,
            "exceed_context_size_error" | "context_length_exceeded"
        )
    });
    let after = |markers: &[&str]| {
        markers
            .iter()
            .find_map(|marker| number_after(message, marker))
    };
    let window = count("n_ctx").or_else(|| after(&WINDOW_AFTER));
    (named || window.is_some()).then(|| ContextOverflow {
        prompt_tokens: count("n_prompt_tokens").or_else(|| after(&PROMPT_AFTER)),
        window,
    })
}

fn number_after(text: &str, marker: &str) -> Option<u64> {
    let start = text.find(marker)? + marker.len();
    let digits = text[start..].split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_from_words() {
        for (message, ms) in [
            (
                "Rate limit reached. Please try again in 1.2s. Visit",
                Some(1_200),
            ),
            ("try again in 20 seconds", Some(20_000)),
            ("try again in 1m2.5s.", Some(62_500)),
            ("try again in 250ms", Some(250)),
            ("try again in 2h", Some(7_200_000)),
            ("try again in 1e300s", None),
            ("try again in 99999999999999999999h", Some(86_400_000)),
            ("try again in a moment", None),
            ("try again later", None),
        ] {
            let wait = wait_in(message);
            assert_eq!(wait.map(|wait| wait.as_millis()), ms, "{message}");
        }
    }
}
