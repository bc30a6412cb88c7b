//! `toolhold plan-capacity`: how much a deployment carries and costs, estimated from what is measured,
//! recorded or given.

use crate::capacity::{
    EXPLANATION, Inputs, Level, Measured, Plan, Probe, Rate, Sourced, Spread, measure,
};
use crate::cli::columns::columns;
use crate::cli::style::{self, count, line, plural};
use crate::cli::{Exit, stats};
use crate::config::{Config, Flags};
use crate::host;
use crate::stats::{GroupStats, Histogram, Since};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use toolhold_agent::cost::{Amount, Price};
use toolhold_agent::model::Model as _;

#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Ask the endpoint a few short requests, 1, 2, 4, … at the same time.
    #[arg(long)]
    measure: bool,
    /// Take what past runs took.
    #[arg(long)]
    from_runs: bool,
    /// Print the formulas, where they are from, and nothing else.
    #[arg(long)]
    explain: bool,
    /// One JSON object.
    #[arg(long, conflicts_with = "explain")]
    json: bool,
    /// Runs per second that are wanted.
    #[arg(long, value_name = "RATE")]
    target_qps: Option<Spread>,
    /// Of a replica's capacity that is planned for: waiting grows as 1 / (1 - U).
    #[arg(long, value_name = "U")]
    utilization: Option<Spread>,
    /// Milliseconds to the first token; here and below as P50 or P50,P95.
    #[arg(long, value_name = "MS")]
    ttft_ms: Option<Spread>,
    /// Milliseconds between two tokens.
    #[arg(long, value_name = "MS")]
    itl_ms: Option<Spread>,
    /// Of one request.
    #[arg(long, value_name = "N")]
    prompt_tokens: Option<Spread>,
    /// Of those, from the endpoint's prefix cache.
    #[arg(long, value_name = "N")]
    cached_tokens: Option<Spread>,
    /// Of one reply.
    #[arg(long, value_name = "N")]
    completion_tokens: Option<Spread>,
    /// To the model, of one run.
    #[arg(long, value_name = "N")]
    requests: Option<Spread>,
    /// Milliseconds in tools, of one run.
    #[arg(long, value_name = "MS")]
    tools_ms: Option<Spread>,
    /// Requests that a replica works on at the same time; of those measured, this number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: Option<u32>,
    /// With --measure: the most requests at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "measure", value_parser = clap::value_parser!(u32).range(1..=256))]
    up_to: u32,
    /// With --measure: the most seconds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "measure", value_parser = clap::value_parser!(u64).range(1..=3600))]
    measure_seconds: u64,
    /// With --from-runs: those that began since then, such as 90m, 7d or 2026-11-20.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "7d",
        requires = "from_runs"
    )]
    since: Since,
    /// The endpoint's URL up to /v1.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model's name at the endpoint.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Which of the configured endpoints is meant; its prices are taken.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
}

/// Of a replica, where nobody says: waiting is threefold there.
const UTILISATION: f64 = 0.7;
/// What is asked where nobody knows how long prompts and replies are.
const PROBE: (f64, f64) = (256.0, 64.0);
/// A measurement is to be short.
const MOST_PROBED: (f64, f64) = (32_768.0, 256.0);

impl CapacityArgs {
    pub fn put(&self, flags: &mut Flags) {
        flags.set("--endpoint", "endpoint", self.endpoint.clone());
        let base_url = self.base_url.clone();
        flags.set("--base-url", "endpoints.{endpoint}.base_url", base_url);
        flags.set("--model", "endpoints.{endpoint}.model", self.model.clone());
    }

    /// What the command line says.
    fn inputs(&self) -> Inputs {
        let given = |flag: &str, spread: Option<Spread>, factor: f64| {
            spread.map(|spread| Sourced::new(spread.times(factor), format!("flag {flag}")))
        };
        let in_flight = self.in_flight.map(|n| Spread::of(f64::from(n)));
        Inputs {
            first_token: given("--ttft-ms", self.ttft_ms, 1e-3),
            between_tokens: given("--itl-ms", self.itl_ms, 1e-3),
            prompt_tokens: given("--prompt-tokens", self.prompt_tokens, 1.0),
            cached_tokens: given("--cached-tokens", self.cached_tokens, 1.0),
            completion_tokens: given("--completion-tokens", self.completion_tokens, 1.0),
            requests: given("--requests", self.requests, 1.0),
            in_tools: given("--tools-ms", self.tools_ms, 1e-3),
            in_flight: given("--in-flight", in_flight, 1.0),
            utilisation: given("--utilization", self.utilization, 1.0),
        }
    }
}

pub async fn plan_capacity(config: &Config, args: CapacityArgs) -> Result<Exit> {
    if args.explain {
        print!("{EXPLANATION}");
        return Ok(Exit::Ok);
    }
    let runs_wanted = args.target_qps.map(|wanted| wanted.p50);
    if runs_wanted.is_some_and(|wanted| wanted <= 0.0) {
        bail!("--target-qps must be above 0");
    }
    let mut inputs = args.inputs();
    let recorded = if args.from_runs {
        of_runs(config, &args)?
    } else {
        Inputs::default()
    };
    let mut measured = Measured::default();
    if args.measure {
        let known = inputs.clone().or(recorded.clone());
        measured = ask(config, &args, &known).await?;
        inputs = inputs.or(of_level(&measured, &args)?);
    }
    let (rate, rate_source) = rate(config);
    let inputs = inputs.or(recorded).or(assumed(config));
    let points = inputs.points().map_err(|reason| anyhow!(reason))?;
    let plans = points.map(|point| Plan::of(&point, rate, runs_wanted));
    if args.json {
        let value = to_json(&inputs, &measured, &plans, config.currency(), &rate_source);
        println!("{value}");
    } else {
        print!("{}", levels_text(&measured));
        print!("{}", inputs_text(&inputs, &rate_source));
        print!(
            "{}",
            plans_text(&plans, &args, config.currency(), rate.is_some())
        );
    }
    Ok(Exit::Ok)
}

/// Asks the configured endpoint.
async fn ask(config: &Config, args: &CapacityArgs, known: &Inputs) -> Result<Measured> {
    let size = |input: &Option<Sourced>, usual: f64, most: f64| {
        let number = input.as_ref().map_or(usual, |input| input.spread.p50);
        number.clamp(1.0, most) as u32
    };
    let probe = Probe {
        prompt_tokens: size(&known.prompt_tokens, PROBE.0, MOST_PROBED.0),
        completion_tokens: size(&known.completion_tokens, PROBE.1, MOST_PROBED.1),
        most_in_flight: args
            .in_flight
            .unwrap_or(args.up_to)
            .max(args.up_to)
            .min(256),
        time: Duration::from_secs(args.measure_seconds),
    };
    let endpoint = config.selected();
    // The measurement ends first, and says so.
    let patience = probe.time.saturating_add(Duration::from_secs(10));
    let model = host::model(endpoint, host::transport(endpoint)?, patience).await?;
    eprintln!(
        "{}",
        style::dim(&style::plain(&format!(
            "asking {} at {} for up to {} s, prompts of about {} tokens, replies of up to {}",
            model.name(),
            model.target(),
            args.measure_seconds,
            probe.prompt_tokens,
            probe.completion_tokens
        )))
    );
    let measured = measure::measure(&model, &probe).await?;
    if let (Some(stopped), true) = (&measured.stopped, measured.levels.is_empty()) {
        bail!("nothing could be measured: {stopped}; give it more --measure-seconds");
    }
    if let Some(stopped) = &measured.stopped {
        eprintln!(
            "{} {}",
            style::warn("measured less:"),
            style::plain(stopped)
        );
    }
    Ok(measured)
}

/// The level that counts: the one that was asked for, or the one with the most tokens per second.
fn of_level(measured: &Measured, args: &CapacityArgs) -> Result<Inputs> {
    let levels = &measured.levels;
    let level = match args.in_flight {
        Some(wanted) => levels.iter().find(|level| level.in_flight == wanted),
        None => levels.iter().max_by(|a, b| {
            a.completion_tokens_rate
                .total_cmp(&b.completion_tokens_rate)
        }),
    };
    let Some(level) = level else {
        let all = levels.iter().map(|level| level.in_flight.to_string());
        bail!(
            "nothing was measured at {} in flight, only at {}; measured are powers of two, with --up-to and within \
             --measure-seconds",
            args.in_flight
                .map_or("any number".into(), |n| n.to_string()),
            match all.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "none".into(),
                some => some,
            }
        );
    };
    let source = format!(
        "measured at {} in flight, {}",
        level.in_flight,
        plural(level.requests, "request")
    );
    let counted = if level.is_counted {
        source.clone()
    } else {
        format!("{source}; the endpoint counts no tokens, pieces were counted")
    };
    let known = |spread: Spread, source: &str| Some(Sourced::new(spread, source));
    let in_flight = match args.in_flight {
        Some(_) => "flag --in-flight",
        None => "measured: the most tokens per second",
    };
    // How long real requests are, runs know better.
    let own = format!("{counted}: its own requests");
    let size = |spread| known(spread, &own).filter(|_| !args.from_runs);
    Ok(Inputs {
        first_token: known(level.first_token, &source),
        between_tokens: level
            .between_tokens
            .and_then(|spread| known(spread, &counted)),
        prompt_tokens: size(level.prompt_tokens),
        completion_tokens: size(level.completion_tokens),
        in_flight: known(Spread::of(f64::from(level.in_flight)), in_flight),
        ..Inputs::default()
    })
}

/// What runs of the past took: of the configured model, or of the one that was asked most.
fn of_runs(config: &Config, args: &CapacityArgs) -> Result<Inputs> {
    let (totals, damaged) = stats::gather(&config.state_folder(), args.since);
    for reason in damaged.iter().take(3) {
        eprintln!("{} {}", style::warn("left out:"), style::plain(reason));
    }
    let wanted = config.selected().model.as_str();
    let group = totals
        .groups
        .iter()
        .filter(|((model, _), _)| wanted.is_empty() || model == wanted)
        .max_by_key(|(_, group)| group.requests);
    let Some(((model, contract), group)) = group else {
        let what = if wanted.is_empty() {
            ""
        } else {
            " of this model"
        };
        bail!(
            "there are no runs{what} since then; give another --since, or --measure the endpoint"
        );
    };
    let source = format!(
        "{} of {} ({} contract)",
        plural(group.requests, "recorded request"),
        line(model),
        line(contract)
    );
    let runs = plural(totals.run_ms.count(), "recorded run");
    let known = |histogram: &Histogram, factor: f64, source: &str| {
        let at = |percent| Some(histogram.percentile(percent)? as f64 * factor);
        let spread = Spread {
            p50: at(50)?,
            p95: at(95)?,
        };
        Some(Sourced::new(spread, source))
    };
    Ok(Inputs {
        first_token: known(&group.first_token_us, 1e-6, &source),
        between_tokens: known(&group.between_tokens_us, 1e-6, &source),
        prompt_tokens: known(&group.prompt, 1.0, &source),
        cached_tokens: cached(group, &source),
        completion_tokens: known(&group.completion, 1.0, &source),
        requests: known(&totals.requests, 1.0, &runs),
        in_tools: known(&totals.in_tools_us, 1e-6, &runs),
        ..Inputs::default()
    })
}

/// The mean share of the prompt that came from the cache, of a usual prompt.
fn cached(group: &GroupStats, source: &str) -> Option<Sourced> {
    let took = &group.took;
    let share = took.cached as f64 / (took.prompt > 0).then_some(took.prompt)? as f64;
    let usual = group.prompt.percentile(50)? as f64;
    Some(Sourced::new(
        Spread::of(usual * share.min(1.0)),
        format!("{source}: their mean share"),
    ))
}

/// What is taken where nothing says otherwise.
fn assumed(config: &Config) -> Inputs {
    let assumed = |number: f64| Some(Sourced::new(Spread::of(number), "assumed"));
    let in_flight = match config.selected().price() {
        Some(Price::Time { in_flight, .. }) if in_flight > 1 => Some(Sourced::new(
            Spread::of(f64::from(in_flight)),
            format!("setting endpoints.{}.gpu_requests", config.endpoint),
        )),
        _ => assumed(1.0),
    };
    Inputs {
        cached_tokens: assumed(0.0),
        requests: assumed(1.0),
        in_tools: assumed(0.0),
        in_flight,
        utilisation: assumed(UTILISATION),
        ..Inputs::default()
    }
}

/// The endpoint's price, and where it is from.
fn rate(config: &Config) -> (Option<Rate>, String) {
    let units = |amount: Amount| amount.nano() as f64 / 1e9;
    let name = &config.endpoint;
    match config.selected().price() {
        None => (
            None,
            format!(
                "unknown: set endpoints.{name}.price_per_million, or endpoints.{name}.gpu_hour"
            ),
        ),
        Some(Price::Tokens {
            prompt,
            cached,
            completion,
        }) => (
            Some(Rate::Tokens {
                prompt: units(prompt),
                cached: units(cached),
                completion: units(completion),
            }),
            format!(
                "{prompt} prompt, {cached} cached, {completion} completion: setting endpoints.{name}.price_per_million"
            ),
        ),
        Some(Price::Time { gpu_hour, gpus, .. }) => (
            Some(Rate::Gpus {
                hour: units(gpu_hour),
                gpus: f64::from(gpus),
            }),
            format!(
                "{gpu_hour} an hour, {}: settings endpoints.{name}.gpu_hour and gpus",
                plural(gpus, "GPU")
            ),
        ),
    }
}

fn levels_text(measured: &Measured) -> String {
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
type Row<'a> = (&'static str, fn(f64) -> String, &'a Option<Sourced>);

fn rows(inputs: &Inputs) -> [Row<'_>; 9] {
    [
        ("first token", seconds, &inputs.first_token),
        ("between tokens", seconds, &inputs.between_tokens),
        ("prompt tokens", number, &inputs.prompt_tokens),
        ("cached prompt tokens", number, &inputs.cached_tokens),
        ("completion tokens", number, &inputs.completion_tokens),
        ("requests of a run", number, &inputs.requests),
        ("in tools, of a run", seconds, &inputs.in_tools),
        ("in flight, of a replica", number, &inputs.in_flight),
        ("utilisation", number, &inputs.utilisation),
    ]
}

fn inputs_text(inputs: &Inputs, rate_source: &str) -> String {
    let known = rows(inputs).into_iter().filter_map(|(name, write, input)| {
        let input = input.as_ref()?;
        let (p50, p95) = (write(input.spread.p50), write(input.spread.p95));
        Some(format!(
            "  {name:<24}{p50:>10}{p95:>10}  {}\n",
            line(&input.source)
        ))
    });
    format!(
        "{:<26}{:>10}{:>10}  from\n{}  {:<24}{:>20}  {}\n\n",
        "inputs",
        "p50",
        "p95",
        known.collect::<String>(),
        "price",
        "",
        line(rate_source)
    )
}

fn plans_text(plans: &[Plan; 2], args: &CapacityArgs, currency: &str, is_priced: bool) -> String {
    let [usual, worst] = plans;
    let mut text = format!(
        "{:<38}{:>12}{:>12}\n",
        "results (--explain says how)", "p50", "p95"
    );
    let mut row = |name: &str, write: &dyn Fn(f64) -> String, of: &dyn Fn(&Plan) -> Option<f64>| {
        let cell = |plan| of(plan).map_or("unknown".into(), write);
        let (p50, p95) = (cell(usual), cell(worst));
        text.push_str(&format!("  {name:<36}{p50:>12}{p95:>12}\n"));
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
    if let Some(wanted) = args.target_qps {
        let name = format!("replicas for {} runs/s", number(wanted.p50));
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
    text
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

fn to_json(
    inputs: &Inputs,
    measured: &Measured,
    plans: &[Plan; 2],
    currency: &str,
    rate_source: &str,
) -> Value {
    let known = rows(inputs).into_iter().filter_map(|(name, _, input)| {
        let input = input.as_ref()?;
        let value = json!({"p50": input.spread.p50, "p95": input.spread.p95, "from": input.source});
        Some((name.replace(", ", "_").replace(' ', "_"), value))
    });
    let plan = |plan: &Plan| {
        json!({
            "request_latency_s": plan.request_latency,
            "run_latency_s": plan.run_latency,
            "requests_per_s": plan.requests_rate,
            "runs_per_s": plan.runs_rate,
            "completion_tokens_per_s": plan.completion_tokens_rate,
            "replicas": plan.replicas,
            "run_cost": plan.run_cost,
            "million_tokens_cost": plan.million_tokens_cost,
        })
    };
    json!({
        "inputs": known.collect::<serde_json::Map<_, _>>(),
        "price": rate_source,
        "currency": currency,
        "measured": measured.levels.iter().map(level_json).collect::<Vec<_>>(),
        "measured_less": measured.stopped,
        "p50": plan(&plans[0]),
        "p95": plan(&plans[1]),
    })
}

fn level_json(level: &Level) -> Value {
    let spread = |spread: Spread| json!({"p50": spread.p50, "p95": spread.p95});
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
