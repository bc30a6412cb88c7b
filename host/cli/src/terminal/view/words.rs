//! Texts about a run: an answer, the costs of a call, the reason of an end.

use crate::terminal::style::{bytes, count, dim, duration, line};
use serde_json::Value;
use toolhold_policy::text;
use toolhold_protocol::event::StopReason;
use toolhold_protocol::result::ToolUsage;
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
pub fn cost(usage: &ToolUsage) -> String {
    format!(
        "{} · fuel {} · memory {}",
        duration(usage.duration_us),
        count(usage.fuel),
        bytes(usage.memory_bytes)
    )
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
