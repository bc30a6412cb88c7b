//! A plan as a person and as a program read it.

use crate::terminal::columns::{Column, aligned, columns};
use crate::terminal::style;
use crate::terminal::style::{count, line};
use serde_json::{Value, json};
use toolhold_devkit::capacity::{
    Distribution, Inputs, LatencyTerms, Level, Measurement, Plan, SourcedDistribution,
};

/// What was measured.
pub fn levels(measured: &Measurement) -> String {
    if measured.levels.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 8]> = measured
        .levels
        .iter()
        .map(|level| {
            let between = level.between_tokens;
            [
                level.in_flight.to_string(),
                level.requests.to_string(),
                seconds(level.first_token.p50),
                seconds(level.first_token.p95),
                between.map_or("-".into(), |spread| seconds(spread.p50)),
                between.map_or("-".into(), |spread| seconds(spread.p95)),
                number(level.requests_rate),
                number(level.completion_tokens_rate),
            ]
        })
        .collect();
    let headings = [
        "in flight",
        "requests",
        "first token p50",
        "p95",
        "between p50",
        "p95",
        "requests/s",
        "tokens/s",
    ];
    format!("measured\n{}\n", columns(headings, &rows))
}

/// Name, how it is written, and the input.
type InputRow<'a> = (
    &'static str,
    fn(f64) -> String,
    &'a Option<SourcedDistribution>,
);

fn rows(inputs: &Inputs) -> [InputRow<'_>; 13] {
    [
        ("first token", seconds, &inputs.first_token),
        ("between tokens", seconds, &inputs.between_tokens),
        ("prompt tokens", number, &inputs.prompt_tokens),
        ("cached prompt tokens", number, &inputs.cached_tokens),
        ("completion tokens", number, &inputs.completion_tokens),
        ("requests of a run", number, &inputs.requests),
        ("in tools, of a run", seconds, &inputs.in_tools),
        ("calls of tools, of a run", number, &inputs.tool_calls),
        ("host, of a call", seconds, &inputs.call_marshalling),
        ("host, of a request", seconds, &inputs.marshalling),
        ("overhead, of a request", seconds, &inputs.overhead),
        ("in flight, of a replica", number, &inputs.in_flight),
        ("utilisation", number, &inputs.utilisation),
    ]
}

/// Every input, with where it came from.
pub fn inputs(inputs: &Inputs, rate_source: &str) -> String {
    let layout = [
        Column::Left(26),
        Column::Right(9),
        Column::Right(9),
        Column::Right(9),
        Column::Left(0),
    ];
    let head = ["inputs", "mean", "p50", "p95", " from"].map(str::to_owned);
    let known = rows(inputs).into_iter().filter_map(|(name, write, input)| {
        let input = input.as_ref()?;
        let Distribution { mean, p50, p95 } = input.spread;
        let source = format!(" {}", line(&input.source));
        Some([
            format!("  {name}"),
            write(mean),
            write(p50),
            write(p95),
            source,
        ])
    });
    let nothing = String::new;
    let source = format!(" {}", line(rate_source));
    let price = ["  price".into(), nothing(), nothing(), nothing(), source];
    let rows = std::iter::once(head).chain(known).chain([price]);
    aligned(&layout, 1, rows).join("\n") + "\n\n"
}

/// What follows.
pub fn plans(
    plans: &[Plan; 3],
    runs_wanted: Option<f64>,
    currency: &str,
    is_priced: bool,
) -> String {
    let mut rows = vec![["results (--explain says how)", "mean", "p50", "p95"].map(str::to_owned)];
    let mut row = |name: &str, write: &dyn Fn(f64) -> String, of: &dyn Fn(&Plan) -> Option<f64>| {
        let [mean, p50, p95] = plans
            .each_ref()
            .map(|plan| of(plan).map_or("unknown".into(), write));
        rows.push([format!("  {name}"), mean, p50, p95]);
    };
    row("latency of a request", &seconds, &|plan| {
        Some(plan.request_latency)
    });
    row("latency of a run", &seconds, &|plan| Some(plan.run_latency));
    row("requests/s of a busy replica", &number, &|plan| {
        Some(plan.requests_rate)
    });
    row("runs/s of a busy replica", &number, &|plan| {
        Some(plan.runs_rate)
    });
    row("completion tokens/s of it", &number, &|plan| {
        Some(plan.completion_tokens_rate)
    });
    row("completion tokens/h of it", &number, &|plan| {
        Some(plan.completion_tokens_an_hour)
    });
    if let Some(wanted) = runs_wanted {
        let name = format!("replicas for {} runs/s", number(wanted));
        row(&name, &number, &|plan| plan.replicas);
    }
    let currency = if is_priced {
        line(currency)
    } else {
        "money".into()
    };
    row(&format!("cost of a run, {currency}"), &money, &|plan| {
        plan.run_cost
    });
    row(
        &format!("cost of 10^6 tokens, {currency}"),
        &money,
        &|plan| plan.million_tokens_cost,
    );
    row(
        &format!("cost of 10^6 generated, {currency}"),
        &money,
        &|plan| plan.million_generated_cost,
    );
    let layout = [
        Column::Left(32),
        Column::Right(11),
        Column::Right(9),
        Column::Right(9),
    ];
    aligned(&layout, 1, rows).join("\n") + "\n"
}

/// The formula by speeds, with what each of its terms comes to.
pub fn terms(terms: &[LatencyTerms; 3]) -> String {
    let row = |name: &str, write: &dyn Fn(&LatencyTerms) -> String| {
        let [mean, p50, p95] = terms.each_ref().map(write);
        [format!("  {name}"), mean, p50, p95]
    };
    let speed = |rate: Option<f64>| rate.map_or("-".into(), number);
    let rows = [
        ["terms of a run", "mean", "p50", "p95"].map(str::to_owned),
        row("P, prompt tokens/s", &|terms| speed(terms.prefill_rate)),
        row("D, tokens/s of a replica", &|terms| {
            speed(terms.decode_rate)
        }),
        row("S x L_in / P", &|terms| seconds(terms.prefill)),
        row("S x L_out / (D / B)", &|terms| seconds(terms.decode)),
        row("N_tools x (T_tool + T_marshal)", &|terms| {
            seconds(terms.tools)
        }),
        row("S x O", &|terms| seconds(terms.overhead)),
        row("sum", &|terms| seconds(terms.sum())),
    ];
    let layout = [
        Column::Left(32),
        Column::Right(11),
        Column::Right(9),
        Column::Right(9),
    ];
    let formula = "S x (L_in / P + L_out / (D / B) + O) + N_tools x (T_tool + T_marshal)";
    format!("\n{formula}\n{}\n", aligned(&layout, 1, rows).join("\n"))
}

fn seconds(seconds: f64) -> String {
    // Saturates; a plan of centuries is none.
    style::duration((seconds * 1e6).round() as u64)
}

fn number(number: f64) -> String {
    match number {
        n if n >= 1_000.0 => count(n.round() as u64),
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n if n >= 1.0 => format!("{n:.1}"),
        n => format!("{n:.3}"),
    }
}

fn money(amount: f64) -> String {
    if amount >= 0.1 || amount == 0.0 {
        format!("{amount:.2}")
    } else {
        format!("{amount:.6}")
    }
}

pub fn json(
    inputs: &Inputs,
    measured: &Measurement,
    (plans, terms): (&[Plan; 3], &[LatencyTerms; 3]),
    currency: &str,
    rate_source: &str,
) -> Value {
    let known = rows(inputs).into_iter().filter_map(|(name, _, input)| {
        let input = input.as_ref()?;
        let value = json!({"mean": input.spread.mean, "p50": input.spread.p50, "p95": input.spread.p95, "from": input.source});
        Some((name.replace(", ", "_").replace(' ', "_"), value))
    });
    let plan = |plan: &Plan, terms: &LatencyTerms| {
        json!({
            "request_latency_s": plan.request_latency,
            "run_latency_s": plan.run_latency,
            "requests_per_s": plan.requests_rate,
            "runs_per_s": plan.runs_rate,
            "completion_tokens_per_s": plan.completion_tokens_rate,
            "completion_tokens_per_hour": plan.completion_tokens_an_hour,
            "replicas": plan.replicas,
            "run_cost": plan.run_cost,
            "million_tokens_cost": plan.million_tokens_cost,
            "million_generated_cost": plan.million_generated_cost,
            "terms": {
                "prefill_tokens_per_s": terms.prefill_rate,
                "decode_tokens_per_s": terms.decode_rate,
                "prefill_s": terms.prefill,
                "decode_s": terms.decode,
                "tools_s": terms.tools,
                "overhead_s": terms.overhead,
                "sum_s": terms.sum(),
            },
        })
    };
    json!({
        "inputs": known.collect::<serde_json::Map<_, _>>(),
        "price": rate_source,
        "currency": currency,
        "measured": measured.levels.iter().map(level_json).collect::<Vec<_>>(),
        "measured_less": measured.stopped,
        "mean": plan(&plans[0], &terms[0]),
        "p50": plan(&plans[1], &terms[1]),
        "p95": plan(&plans[2], &terms[2]),
    })
}

fn level_json(level: &Level) -> Value {
    let spread =
        |spread: Distribution| json!({"mean": spread.mean, "p50": spread.p50, "p95": spread.p95});
    json!({
        "in_flight": level.in_flight,
        "requests": level.requests,
        "first_token_s": spread(level.first_token),
        "between_tokens_s": level.between_tokens.map(spread),
        "latency_s": spread(level.latency),
        "requests_per_s": level.requests_rate,
        "completion_tokens_per_s": level.completion_tokens_rate,
        "tokens_counted": level.is_counted,
    })
}
