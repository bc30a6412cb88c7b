//! Texts about a run: an answer, the costs of a call, the reason of an end.

use crate::terminal::style::{bytes, count, dim, duration, line};
use serde_json::Value;
use toolhold_policy::text;
use toolhold_protocol::advisor::{Council, VoteOutcome};
use toolhold_protocol::event::StopReason;
use toolhold_protocol::result::{Cached, ToolUsage};
use toolhold_protocol::shield::{Judgement, Ruling};
use toolhold_protocol::side_request::{SideRequest, SideRole};
use toolhold_protocol::window::{Part, TokensByPart};

/// Most characters of a result on the screen; the journal has the whole.
const MAX_RESULT_CHARS: usize = 600;

/// A plain string as it is, anything else as JSON.
pub fn answer(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

/// JSON that is safe on a terminal and readable by a program: control characters are written as JSON escapes.
pub(super) fn plain_json(value: &Value) -> String {
    text::json(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// 1.2 ms · fuel 35.1 k · 1.1 MiB.
/// What a call took, or where its result is from; empty if no tool was called, or if that is not known.
pub fn took(usage: &ToolUsage, by_host: bool, cached: Option<&Cached>) -> String {
    match cached {
        Some(cached) => format!(
            "cached, {} old",
            duration(cached.age_ms.saturating_mul(1_000))
        ),
        None if by_host || usage.duration_us == 0 => String::new(),
        None => duration(usage.duration_us),
    }
}

pub fn cost(usage: &ToolUsage) -> String {
    let took = duration(usage.duration_us);
    let memory = bytes(usage.memory_bytes);
    // Where instructions are not counted, a 0 would read as a measurement.
    if usage.fuel == 0 {
        return format!("{took} · memory {memory}");
    }
    format!("{took} · fuel {} · memory {memory}", count(usage.fuel))
}

pub fn name(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Output => "output",
        StopReason::Planned => "planned",
        StopReason::Incomplete => "not all of the plan",
        StopReason::ToolCalls => "calls are the client's",
        StopReason::MaxSteps => "step limit",
        StopReason::TokenBudget => "token budget",
        StopReason::MaxCost => "cost limit",
        StopReason::MaxToolCalls => "tool call limit",
        StopReason::Timeout => "timeout",
        StopReason::Cancelled => "cancelled",
        StopReason::Model => "endpoint failure",
        StopReason::Unusable => "unusable replies",
        StopReason::Blocked => "blocked by a shield",
    }
}

pub(super) fn shown(value: &Value) -> String {
    cut(&line(&value.to_string()))
}

/// Most characters of the arguments, and of the result, in the line of a call.
const MAX_IN_LINE_CHARS: usize = 160;

/// The beginning of a text in the line of a call.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(MAX_IN_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The beginning of a text, as far as it fits.
pub(super) fn cut(text: &str) -> String {
    let kept: String = text.chars().take(MAX_RESULT_CHARS).collect();
    match text.chars().count().saturating_sub(MAX_RESULT_CHARS) {
        0 => kept,
        missing => format!("{kept}{}", dim(&format!(" … {missing} more characters"))),
    }
}

pub(super) fn tokens(
    prompt: Option<u64>,
    completion: Option<u64>,
    first_token_ms: Option<u64>,
    duration_ms: u64,
) -> String {
    let counted = match (prompt, completion) {
        (Some(prompt), Some(completion)) => {
            format!("{} → {} tokens", count(prompt), count(completion))
        }
        _ => "tokens not counted by the endpoint".into(),
    };
    let first = first_token_ms.map_or(String::new(), |ms| {
        format!(", first after {}", duration(ms.saturating_mul(1_000)))
    });
    format!(
        "{counted}, {}{first}",
        duration(duration_ms.saturating_mul(1_000))
    )
}

/// The other models that were asked, and why.
pub(super) fn side(request: &SideRequest) -> String {
    let SideRequest {
        role,
        endpoint,
        model,
        usage,
        duration_ms,
        ..
    } = request;
    let who = if endpoint == model {
        model.clone()
    } else {
        format!("{model} at {endpoint}")
    };
    let took = match usage {
        Some(usage) => tokens(
            Some(usage.prompt_tokens),
            Some(usage.completion_tokens),
            None,
            *duration_ms,
        ),
        None if role.is_complete() => tokens(None, None, None, *duration_ms),
        None => duration(duration_ms.saturating_mul(1_000)),
    };
    let what = match role {
        SideRole::Shield => "screened by",
        SideRole::Router => "routed by",
        SideRole::Summary => "summed up by",
        SideRole::Hedge => "overtaken:",
    };
    format!("{what} {who}: {took}")
}

/// The size of a request. Numbers that the endpoint did not count are marked as estimates.
pub(super) fn budget(
    window: Option<u64>,
    reply: u64,
    parts: &TokensByPart,
    exact: &[Part],
) -> String {
    let of = window.map_or_else(
        || "a window of unknown size".to_owned(),
        |window| format!("a window of {}", count(window)),
    );
    let marked = |is_exact: bool| if is_exact { "" } else { "≈ " };
    let each: Vec<String> = parts
        .iter()
        .map(|(part, tokens)| {
            let mark = marked(exact.contains(&part));
            format!("{} {mark}{}", part.name(), count(tokens))
        })
        .collect();
    let all = parts.iter().all(|(part, _)| exact.contains(&part));
    let legend = if all {
        "counted by the endpoint"
    } else if exact.is_empty() {
        "all estimated"
    } else {
        "≈ is an estimate, the rest counted by the endpoint"
    };
    format!(
        "  {}{} tokens, and {} for the reply, of {of}: {} ({legend})",
        marked(all),
        count(parts.total()),
        count(reply),
        each.join(" · ")
    )
}

/// What a shield said. One that lets something pass is not shown.
pub(super) fn ruling(judgement: &Judgement) -> Option<String> {
    let said = match judgement.verdict {
        Ruling::Pass => return None,
        Ruling::Redact => "redacted",
        Ruling::Block => "blocked",
        Ruling::FailedPass => "gave no verdict and let pass",
        Ruling::FailedBlock => "gave no verdict and so blocked",
    };
    let place = judgement.place.name().replace('_', " ");
    let tool = judgement.tool.as_deref();
    let of = tool.map_or(String::new(), |tool| format!(" of {tool}"));
    Some(format!(
        "shield {} {said} the {place}{of}: {}",
        judgement.shield, judgement.reason
    ))
}

/// Each advisor with its votes and its text, then the result, a line each.
pub(super) fn said_by(council: &Council) -> Vec<String> {
    let opinions = council.opinions.iter().map(|opinion| {
        let of = opinion.instance.as_ref();
        let of = of.map_or(String::new(), |instance| format!(" ({instance})"));
        let votes = opinion.votes.iter();
        let votes: Vec<String> = votes
            .map(|vote| format!("{} {}", vote.tool, vote.weight))
            .collect();
        let words = opinion.fields.iter().filter(|(name, _)| *name != "calls");
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name}: {}", answer(value)))
            .collect();
        let text = format!("{}{of}: {}", opinion.advisor, votes.join(", "));
        format!("{}  {}", line(&text), line(&words.join("; ")))
    });
    let tallies = council.tallies();
    let tallies = tallies.iter().map(|tally| {
        let of = tally.instance.as_ref();
        let of = of.map_or(String::new(), |instance| format!(" ({instance})"));
        let outcome = match &tally.outcome {
            VoteOutcome::Winner { tool, sum } => format!("{tool} with {sum}"),
            VoteOutcome::Tie { tools, sum } => {
                format!("{} with {sum} each", tools.join(" and "))
            }
            VoteOutcome::Undecided => "nothing".into(),
        };
        format!("council{of}: {}", line(&outcome))
    });
    opinions.chain(tallies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of a tool is as long as the tool likes.
    #[test]
    fn a_long_result_is_shown_by_its_beginning() {
        let long = "\u{202e}x".repeat(100_000);
        let value = Value::from(long.as_str());
        for text in [shown(&value), cut(&long)] {
            let chars = text.chars().count();
            assert!(chars < MAX_RESULT_CHARS + 60, "{chars}");
            assert!(text.contains("more characters"), "{text}");
        }
        let begun = beginning(&long);
        assert_eq!(begun.chars().count(), MAX_IN_LINE_CHARS + 1);
    }

    #[test]
    fn fuel_is_left_out_where_it_is_not_counted() {
        let usage = |fuel| ToolUsage {
            duration_us: 1_200,
            fuel,
            memory_bytes: 1 << 20,
            ..ToolUsage::default()
        };
        assert_eq!(
            cost(&usage(35_100)),
            "1.2 ms · fuel 35.1 k · memory 1.0 MiB"
        );
        assert_eq!(cost(&usage(0)), "1.2 ms · memory 1.0 MiB");
    }
}
