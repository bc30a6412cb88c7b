//! `toolhold stats`: what runs took, read from their records.

use crate::cli::columns::columns;
use crate::cli::style::{self, bold, count, line, plural};
use crate::cli::{Exit, view};
use crate::config::Config;
use crate::stats::{
    GroupStats, Histogram, RunStats, Since, StepStats, Took, ToolStats, Tools, Totals,
};
use crate::storage::journal::{self, RecordError};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;
use toolhold_agent::cost::Amount;

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The run's id, the beginning of it, or last.
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    run: Option<String>,
    /// All runs that began since then: 90m, 2h, 7d, or a date such as 2026-11-20 (UTC).
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Journals that cannot be read and are named; more are counted.
const MAX_NAMED: usize = 20;

pub fn stats(config: &Config, args: &StatsArgs) -> Result<Exit> {
    let state = config.state_folder();
    if let Some(since) = args.since {
        return since_then(&state, since, args.json);
    }
    let path = journal::find(&state, args.run.as_deref().unwrap_or("last"))?;
    let (stats, changed) = of_run(&path)?;
    let run = journal::run_of(&path);
    if args.json {
        println!("{}", run_json(run, &stats));
    } else {
        print!("{}", run_text(run, &stats));
    }
    match changed {
        None => Ok(Exit::Ok),
        Some(line) => {
            let error = RecordError::Changed { path, line };
            eprintln!(
                "{} {}",
                style::warn("not genuine:"),
                style::plain(&error.to_string())
            );
            Ok(Exit::Failed)
        }
    }
}

/// What one run took, and the first line of its record that is not genuine.
fn of_run(path: &Path) -> Result<(RunStats, Option<usize>), RecordError> {
    let mut stats = RunStats::default();
    let scanned = journal::scan(path, |event| stats.take(&event))?;
    Ok((stats, scanned.changed))
}

/// What all runs took together that began since then, and the journals that are damaged.
pub fn gather(state: &Path, since: Since) -> (Totals, Vec<String>) {
    let from_ms = since.at_ms();
    let mut totals = Totals::default();
    let mut damaged = Vec::new();
    for path in journal::list(state) {
        if journal::began_ms(&path).is_some_and(|began| began < from_ms) {
            continue;
        }
        match of_run(&path) {
            // Nothing was written yet, or it has another name than we give.
            Ok((run, _)) if run.began_ms < from_ms || run.contract.is_empty() => {}
            Ok((run, None)) => totals.add(&run),
            Ok((_, Some(line))) => damaged.push(RecordError::Changed { path, line }.to_string()),
            Err(error) => damaged.push(error.to_string()),
        }
    }
    (totals, damaged)
}

fn since_then(state: &Path, since: Since, is_json: bool) -> Result<Exit> {
    let (totals, damaged) = gather(state, since);
    if is_json {
        println!("{}", totals_json(&totals, &damaged));
    } else {
        if totals.runs == 0 && damaged.is_empty() {
            bail!("no run began since then; `toolhold runs` lists them");
        }
        print!("{}", totals_text(&totals));
    }
    for reason in damaged.iter().take(MAX_NAMED) {
        eprintln!("{} {}", style::warn("left out:"), style::plain(reason));
    }
    if damaged.len() > MAX_NAMED {
        let more = damaged.len() - MAX_NAMED;
        eprintln!("{} {more} more", style::warn("left out:"));
    }
    Ok(if damaged.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn run_text(run: &str, stats: &RunStats) -> String {
    let end = match stats.end {
        Some((reason, after)) => format!("{} after {}", view::name(reason), time(Some(after))),
        None => "not over".into(),
    };
    let task: String = stats.task.chars().take(60).collect();
    let mut text = format!(
        "{}  {}\n{} ({} contract), {end}\n\n",
        bold(&line(run)),
        line(&task),
        line(&stats.model),
        stats.contract
    );
    let rows: Vec<[String; 11]> = stats
        .steps
        .iter()
        .map(|step| step_row(stats, step))
        .collect();
    text.push_str(&columns(
        [
            "step",
            "prompt",
            "cached",
            "completion",
            "first token",
            "between",
            "p95",
            "last token",
            "calls",
            "in tools",
            "cost",
        ],
        &rows,
    ));
    text.push('\n');
    let took = stats.took();
    text.push_str(&took_text(&took, &[(stats.currency.clone(), took.cost)]));
    text.push_str(&tools_text(&stats.tools));
    text
}

fn step_row(run: &RunStats, step: &StepStats) -> [String; 11] {
    let took = &step.took;
    let counted = |n: u64| {
        if took.replies > took.uncounted {
            count(n)
        } else {
            "?".into()
        }
    };
    let mut name = step.step.to_string();
    if !step.within.is_empty() {
        name.push_str(&format!(" in {}", line(&step.within)));
    }
    if step.model != run.model {
        name.push_str(&format!(" by {}", line(&step.model)));
    }
    let gap = step.gaps_ms.percentile(95).map(Duration::from_millis);
    [
        name,
        counted(took.prompt),
        counted(took.cached),
        counted(took.completion),
        time(step.first_token),
        time(step.between_tokens()),
        time(gap),
        time(step.last_token),
        took.calls.to_string(),
        if took.calls > 0 {
            time(Some(took.in_tools))
        } else {
            "-".into()
        },
        cost(took),
    ]
}

/// Sums, in sentences.
fn took_text(took: &Took, costs: &[(String, Amount)]) -> String {
    let mut text = format!(
        "tokens    {} prompt ({} from the cache), {} completion{}\n",
        count(took.prompt),
        count(took.cached),
        count(took.completion),
        match took.uncounted {
            0 => String::new(),
            n => format!("; the endpoint did not count those of {}", replies(n)),
        }
    );
    text.push_str(&format!(
        "calls     {}, {} in tools\n",
        plural(took.calls, "call"),
        time(Some(took.in_tools))
    ));
    text.push_str(&format!("cost      {}\n", cost_text(took, costs)));
    let faults = [
        (took.repairs, "repair"),
        (took.retries, "retry"),
        (took.fallbacks, "fallback"),
        (took.failed, "failed reply"),
    ];
    let faults: Vec<String> = faults
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| match (n, what) {
            (1, what) => format!("1 {what}"),
            (n, "retry") => format!("{n} retries"),
            (n, "failed reply") => format!("{n} failed replies"),
            (n, what) => format!("{n} {what}s"),
        })
        .collect();
    if !faults.is_empty() {
        text.push_str(&format!("mended    {}\n", faults.join(", ")));
    }
    text
}

fn cost_text(took: &Took, costs: &[(String, Amount)]) -> String {
    let known = took.replies - took.unpriced.min(took.replies);
    if took.replies == 0 {
        return "nothing: no model replied".into();
    }
    if known == 0 {
        return "unknown: the endpoint had no price (endpoints.NAME.price_per_million or gpu_hour), or counted no \
                tokens"
            .into();
    }
    let sums = costs
        .iter()
        .map(|(currency, amount)| format!("{amount} {}", line(currency)));
    let mut text = sums.collect::<Vec<_>>().join(" + ");
    if took.unpriced > 0 {
        text.push_str(&format!(
            " and what {} cost, which is unknown",
            replies(took.unpriced)
        ));
    }
    if took.failed > 0 {
        text.push_str("; failed replies are not in it");
    }
    text
}

fn replies(n: u64) -> String {
    match n {
        1 => "1 reply".into(),
        n => format!("{n} replies"),
    }
}

fn cost(took: &Took) -> String {
    match (took.replies, took.unpriced) {
        (0, _) => "-".into(),
        (_, 0) => took.cost.to_string(),
        _ => "?".into(),
    }
}

fn tools_text(tools: &Tools) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 7]> = tools
        .iter()
        .map(|(name, tool)| {
            let errors = tool
                .errors
                .iter()
                .map(|(kind, n)| format!("{n} {}", line(kind)));
            [
                line(name),
                tool.calls.to_string(),
                micros(&tool.duration_us, 50),
                micros(&tool.duration_us, 95),
                tool.fuel.percentile(50).map_or("-".into(), count),
                tool.by_host.to_string(),
                match errors.collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => "-".into(),
                    some => some,
                },
            ]
        })
        .collect();
    format!(
        "\n{}",
        columns(
            [
                "tool", "calls", "p50", "p95", "fuel p50", "not made", "errors"
            ],
            &rows
        )
    )
}

fn totals_text(totals: &Totals) -> String {
    let reasons = totals
        .reasons
        .iter()
        .map(|(reason, n)| format!("{n} {}", reason.replace('_', " ")));
    let mut text = format!(
        "{}: {}\n",
        bold(&plural(totals.runs, "run")),
        reasons.collect::<Vec<_>>().join(", ")
    );
    text.push_str(&format!(
        "a run     {} to its end (p50), {} (p95), {} (p99)\n",
        millis(&totals.run_ms, 50),
        millis(&totals.run_ms, 95),
        millis(&totals.run_ms, 99)
    ));
    let costs: Vec<_> = totals.costs.iter().map(|(c, a)| (c.clone(), *a)).collect();
    text.push_str(&took_text(&totals.took, &costs));
    for ((model, contract), group) in &totals.groups {
        text.push_str(&format!(
            "\n{} ({} contract), {}\n",
            bold(&line(model)),
            line(contract),
            plural(group.requests, "request")
        ));
        let row = |name: &str, times: &dyn Fn(u32) -> String| -> [String; 4] {
            [name.to_owned(), times(50), times(95), times(99)]
        };
        let counted = |numbers: &Histogram, p: u32| numbers.percentile(p).map_or("-".into(), count);
        text.push_str(&columns(
            ["", "p50", "p95", "p99"],
            &[
                row("first token", &|p| micros(&group.first_token_us, p)),
                row("between tokens", &|p| micros(&group.between_tokens_us, p)),
                row("last token", &|p| micros(&group.last_token_us, p)),
                row("prompt tokens", &|p| counted(&group.prompt, p)),
                row("completion tokens", &|p| counted(&group.completion, p)),
            ],
        ));
    }
    text.push_str(&tools_text(&totals.tools));
    text
}

fn time(duration: Option<Duration>) -> String {
    duration.map_or("-".into(), |duration| {
        style::duration(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    })
}

fn micros(times: &Histogram, percent: u32) -> String {
    times
        .percentile(percent)
        .map_or("-".into(), style::duration)
}

fn millis(times: &Histogram, percent: u32) -> String {
    let micros = times.percentile(percent).map(|ms| ms.saturating_mul(1_000));
    micros.map_or("-".into(), style::duration)
}

fn run_json(run: &str, stats: &RunStats) -> Value {
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
            json!(step.gaps_ms.percentile(95)),
        );
        fields.insert(
            "last_token_ms".into(),
            json!(step.last_token.map(in_millis)),
        );
    }
    value
}

/// What a reply cost is null where it is not known.
fn took_json(took: &Took) -> Value {
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
    })
}

fn totals_json(totals: &Totals, damaged: &[String]) -> Value {
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

fn tools_json(tools: &Tools) -> Value {
    let one = |tool: &ToolStats| {
        json!({
            "calls": tool.calls,
            "not_made": tool.by_host,
            "errors": tool.errors,
            "duration_us": percentiles(&tool.duration_us),
            "fuel": percentiles(&tool.fuel),
            "fuel_total": u64::try_from(tool.fuel.sum()).unwrap_or(u64::MAX),
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
