//! Reads what endpoints say of the tokens that a completion took.

use serde_json::Value;
use toolhold_protocol::completion::Usage;

/// Reads a `usage` object; `None` when it holds no counts (some servers send `{}` or `null`).
pub(crate) fn from_wire(usage: &Value) -> Option<Usage> {
    let first = |paths: &[&str]| paths.iter().find_map(|path| count(usage.pointer(path)?));
    let prompt = first(&["/prompt_tokens", "/input_tokens"]);
    let completion = first(&["/completion_tokens", "/output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    Some(Usage {
        prompt_tokens: prompt.unwrap_or(0),
        completion_tokens: completion.unwrap_or(0),
        cached_prompt_tokens: first(&[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
        ]),
    })
}

/// Reads the `timings` that llama.cpp sends with or without usage. `prompt_n` leaves out what the
/// cache held.
pub(crate) fn from_timings(timings: &Value) -> Option<Usage> {
    let cached = timings.get("cache_n").and_then(count);
    let prompt = count(timings.get("prompt_n")?)?;
    Some(Usage {
        prompt_tokens: prompt.saturating_add(cached.unwrap_or(0)),
        completion_tokens: count(timings.get("predicted_n")?)?,
        cached_prompt_tokens: cached,
    })
}

/// A count as servers write it; gateways in languages without integers send `12.0`.
fn count(value: &Value) -> Option<u64> {
    /// Beyond it floats leave integers out; and no prompt is that long.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and 2^53"
    )]
    let whole = |float: f64| {
        ((0.0..EXACT).contains(&float) && float.fract() == 0.0).then_some(float as u64)
    };
    value.as_u64().or_else(|| whole(value.as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_counts_cached_tokens_and_ignores_empty_objects() {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 8}});
        assert_eq!(
            from_wire(&usage),
            Some(Usage {
                prompt_tokens: 9,
                completion_tokens: 2,
                cached_prompt_tokens: Some(8)
            })
        );
        for none in [
            json!({}),
            json!(null),
            json!({"prompt_tokens": -1}),
            json!([]),
        ] {
            assert_eq!(from_wire(&none), None, "{none}");
        }
    }

    #[test]
    fn usage_has_many_names() {
        let usage = |prompt_tokens, completion_tokens, cached_prompt_tokens| Usage {
            prompt_tokens,
            completion_tokens,
            cached_prompt_tokens,
        };
        for (wire, expected) in [
            (
                json!({"input_tokens": 9, "output_tokens": 2}),
                usage(9, 2, None),
            ),
            (
                json!({"prompt_tokens": 9.0, "completion_tokens": 2.0}),
                usage(9, 2, None),
            ),
            (
                json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}),
                usage(9, 2, Some(4)),
            ),
            (json!({"completion_tokens": 2}), usage(0, 2, None)),
        ] {
            assert_eq!(from_wire(&wire), Some(expected), "{wire}");
        }
        let timings = json!({"cache_n": 6, "prompt_n": 3, "predicted_n": 2, "predicted_ms": 41.2});
        assert_eq!(from_timings(&timings), Some(usage(9, 2, Some(6))));
        assert_eq!(from_timings(&json!({"prompt_n": 3})), None);
    }
}
