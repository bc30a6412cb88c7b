//! Statistics for people.

use crate::terminal::columns::columns;
use crate::terminal::style;
use crate::terminal::style::{bold, count, line, plural};
use crate::terminal::view;
use std::fmt::Write as _;
use std::time::Duration;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::side_request::SideRole;
use toolhold_runtime::stats::{
    Histogram, ModelUsage, RunStats, SideModelStats, StepStats, Tools, Totals,
};

/// One run, step by step.
pub fn run(run: &str, stats: &RunStats) -> String {
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
    let headings = [
        "step",
        "prompt",
        "cached",
        "completion",
        "first token",
        "between",
        "between p95",
        "last token",
        "calls",
        "in tools",
        "cost",
    ];
    let rows = stats.steps.iter().map(|step| step_row(stats, step));
    text.push_str(&columns(headings, &rows.collect::<Vec<_>>()));
    text.push('\n');
    let took = stats.took();
    text.push_str(&took_text(&took, &[(stats.currency.clone(), took.cost)]));
    text.push_str(&sides_text(&stats.sides));
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
        let _ = write!(name, " in {}", line(&step.within));
    }
    if step.model != run.model {
        let _ = write!(name, " by {}", line(&step.model));
    }
    [
        name,
        counted(took.prompt),
        counted(took.cached),
        counted(took.completion),
        time(step.first_token),
        time(step.between_tokens()),
        time(step.between_pieces_p95()),
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
fn took_text(took: &ModelUsage, costs: &[(String, Amount)]) -> String {
    let mut text = format!(
        "tokens    {} prompt ({} from the cache), {} completion{}\n",
        count(took.prompt),
        count(took.cached),
        count(took.completion),
        match took.uncounted {
            0 => String::new(),
            n => format!(
                "; the endpoint did not count those of {}",
                plural(n, "reply")
            ),
        }
    );
    let _ = match took.calls {
        0 => writeln!(text, "calls     none"),
        n => {
            let (calls, in_tools) = (plural(n, "call"), time(Some(took.in_tools)));
            writeln!(text, "calls     {calls}, {in_tools} in tools")
        }
    };
    let _ = writeln!(text, "cost      {}", cost_text(took, costs));
    let faults = [
        (took.repairs, "repair"),
        (took.retries, "retry"),
        (took.fallbacks, "fallback"),
        (took.hedges, "hedge"),
        (took.failed, "failed reply"),
    ];
    let faults: Vec<String> = faults
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| plural(n, what))
        .collect();
    if !faults.is_empty() {
        let _ = writeln!(text, "mended    {}", faults.join(", "));
    }
    text
}

fn cost_text(took: &ModelUsage, costs: &[(String, Amount)]) -> String {
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
        let replies = plural(took.unpriced, "reply");
        let _ = write!(text, " and what {replies} cost, which is unknown");
    }
    if took.failed > 0 {
        text.push_str("; replies that failed before they began are not in it");
    }
    if took.unheard > 0 {
        text.push_str("; requests that were overtaken are not in it");
    }
    text
}

fn cost(took: &ModelUsage) -> String {
    match (took.replies, took.unpriced) {
        (0, _) => "-".into(),
        (_, 0) => took.cost.to_string(),
        _ => "?".into(),
    }
}

/// Other models that were asked, and their statistics.
fn sides_text(sides: &SideModelStats) -> String {
    let mut text = String::new();
    for (side, took) in sides.iter() {
        let what = match side.role {
            SideRole::Shield => "screened",
            SideRole::Router => "routed",
            SideRole::Summary => "summed up",
            SideRole::Hedge => "overtaken",
        };
        let name = if side.endpoint == side.model {
            line(&side.model)
        } else {
            format!("{} at {}", line(&side.model), line(&side.endpoint))
        };
        let _ = writeln!(
            text,
            "{what:<9} {name}: {}, {} prompt, {} completion, cost {}",
            plural(took.replies + took.hedges, "request"),
            count(took.prompt),
            count(took.completion),
            if took.unpriced + took.unheard > 0 {
                "unknown".to_owned()
            } else {
                took.cost.to_string()
            }
        );
    }
    text
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
    let headings = [
        "tool", "calls", "p50", "p95", "fuel p50", "not made", "errors",
    ];
    format!("\n{}", columns(headings, &rows))
}

/// All runs, and their models and tools.
pub fn totals(totals: &Totals) -> String {
    let reasons = totals
        .reasons
        .iter()
        .map(|(reason, n)| format!("{n} {}", reason.replace('_', " ")));
    let mut text = format!(
        "{}: {}\n",
        bold(&plural(totals.runs, "run")),
        reasons.collect::<Vec<_>>().join(", ")
    );
    let _ = writeln!(
        text,
        "a run     {} to its end (p50), {} (p95), {} (p99)",
        millis(&totals.run_ms, 50),
        millis(&totals.run_ms, 95),
        millis(&totals.run_ms, 99)
    );
    let costs: Vec<_> = totals.costs.iter().map(|(c, a)| (c.clone(), *a)).collect();
    text.push_str(&took_text(&totals.took, &costs));
    text.push_str(&sides_text(&totals.sides));
    for ((model, contract), group) in &totals.groups {
        let _ = writeln!(
            text,
            "\n{} ({} contract), {}",
            bold(&line(model)),
            line(contract),
            plural(group.requests, "request")
        );
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
