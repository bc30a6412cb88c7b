//! Statistics as JSON.

use serde_json::{Map, Value, json};
use std::time::Duration;
use toolhold_runtime::stats::{
    GroupStats, Histogram, ModelUsage, RunStats, SideModelStats, StepStats, ToolStats, Tools,
    Totals,
};

pub fn run(run: &str, stats: &RunStats) -> Value {
    let took = stats.took();
    json!({
        "run": run,
        "task": stats.task,
        "model": stats.model,
        "contract": stats.contract,
        "began_ms": stats.began_ms,
        "reason": stats.end.map(|(reason, _)| reason),
        "duration_ms": stats.end.map(|(_, duration)| in_millis(duration)),
        "currency": stats.currency,
        "total": took_json(&took),
        "steps": stats.steps.iter().map(step_json).collect::<Vec<_>>(),
        "side_requests": sides_json(&stats.sides),
        "tools": tools_json(&stats.tools),
    })
}

fn step_json(step: &StepStats) -> Value {
    let mut value = took_json(&step.took);
    if let Value::Object(fields) = &mut value {
        fields.insert("step".into(), step.step.into());
        fields.insert("within".into(), step.within.clone().into());
        fields.insert("model".into(), step.model.clone().into());
        fields.insert("contract".into(), step.contract.into());
        fields.insert(
            "first_token_ms".into(),
            json!(step.first_token.map(in_millis)),
        );
        fields.insert(
            "between_tokens_ms".into(),
            json!(step.between_tokens().map(in_millis)),
        );
        fields.insert(
            "between_pieces_p95_ms".into(),
            json!(step.between_pieces_p95().map(in_millis)),
        );
        fields.insert(
            "last_token_ms".into(),
            json!(step.last_token.map(in_millis)),
        );
    }
    value
}

/// The cost of a reply is null if it is unknown.
fn took_json(took: &ModelUsage) -> Value {
    let is_known = took.unpriced == 0 && took.replies > 0;
    json!({
        "replies": took.replies,
        "replies_uncounted": took.uncounted,
        "replies_unpriced": took.unpriced,
        "replies_failed": took.failed,
        "prompt_tokens": took.prompt,
        "cached_prompt_tokens": took.cached,
        "completion_tokens": took.completion,
        "cost_nano": is_known.then_some(took.cost),
        "calls": took.calls,
        "in_tools_ms": in_millis(took.in_tools),
        "repairs": took.repairs,
        "retries": took.retries,
        "fallbacks": took.fallbacks,
        "hedges": took.hedges,
        "hedges_unpriced": took.unheard,
    })
}

pub fn totals(totals: &Totals, damaged: &[String]) -> Value {
    let groups = totals
        .groups
        .iter()
        .map(|((model, contract), group)| group_json(model, contract, group));
    json!({
        "runs": totals.runs,
        "reasons": totals.reasons,
        "run_ms": percentiles(&totals.run_ms),
        "total": took_json(&totals.took),
        "known_cost_nano": totals.costs,
        "models": groups.collect::<Vec<_>>(),
        "side_requests": sides_json(&totals.sides),
        "tools": tools_json(&totals.tools),
        "left_out": damaged,
    })
}

fn group_json(model: &str, contract: &str, group: &GroupStats) -> Value {
    json!({
        "model": model,
        "contract": contract,
        "requests": group.requests,
        "total": took_json(&group.took),
        "first_token_us": percentiles(&group.first_token_us),
        "between_tokens_us": percentiles(&group.between_tokens_us),
        "last_token_us": percentiles(&group.last_token_us),
        "prompt_tokens": percentiles(&group.prompt),
        "completion_tokens": percentiles(&group.completion),
    })
}

fn sides_json(sides: &SideModelStats) -> Value {
    let all = sides.iter().map(|(side, took)| {
        json!({
            "role": side.role,
            "endpoint": side.endpoint,
            "model": side.model,
            "total": took_json(took),
        })
    });
    all.collect()
}

fn tools_json(tools: &Tools) -> Value {
    let one = |tool: &ToolStats| {
        // Where instructions are not counted, a 0 would read as a measurement.
        let fuel_total =
            (tool.fuel.count() > 0).then(|| u64::try_from(tool.fuel.sum()).unwrap_or(u64::MAX));
        json!({
            "calls": tool.calls,
            "not_made": tool.by_host,
            "errors": tool.errors,
            "duration_us": percentiles(&tool.duration_us),
            "fuel": percentiles(&tool.fuel),
            "fuel_total": fuel_total,
        })
    };
    let all: Map<String, Value> = tools
        .iter()
        .map(|(name, tool)| (name.to_owned(), one(tool)))
        .collect();
    all.into()
}

fn percentiles(numbers: &Histogram) -> Value {
    json!({
        "p50": numbers.percentile(50),
        "p95": numbers.percentile(95),
        "p99": numbers.percentile(99),
    })
}

fn in_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
