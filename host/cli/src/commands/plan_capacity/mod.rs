//! `toolhold plan-capacity`: how much a deployment carries and costs, estimated from what is measured,
//! recorded or given.

mod shown;
mod sources;

use crate::commands::endpoint::EndpointArgs;
use crate::config::Flags;
use crate::exit::Exit;
use crate::terminal::output::{self, NoteMark};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::time::Duration;
use toolhold_devkit::capacity::{
    Distribution, EXPLANATION, Inputs, LatencyTerms, Measurement, Plan, Probe, SourcedDistribution,
    Speeds, measure,
};
use toolhold_model::Model as _;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::Since;

#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Measure the endpoint with short requests, 1, 2, 4, … at the same time.
    #[arg(long)]
    measure: bool,
    /// Take the inputs from the records of past runs.
    #[arg(long)]
    from_runs: bool,
    /// Print only the formulas and their sources.
    #[arg(long)]
    explain: bool,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "explain")]
    json: bool,
    /// Target load, in runs per second.
    #[arg(long, value_name = "RATE")]
    target_qps: Option<f64>,
    /// Planned share of a replica's capacity, 0 to 1; waiting grows as 1 / (1 - U).
    #[arg(long, value_name = "U")]
    utilization: Option<Distribution>,
    /// Milliseconds to the first token, as P50 or P50,P95 (also in the options below).
    #[arg(long, value_name = "MS")]
    ttft_ms: Option<Distribution>,
    /// Milliseconds between two tokens.
    #[arg(long, value_name = "MS")]
    itl_ms: Option<Distribution>,
    /// Prompt tokens that a replica reads in a second (P), in the place of --ttft-ms.
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "ttft_ms")]
    prefill_rate: Option<f64>,
    /// Tokens that a replica writes in a second, all requests together (D), in the place of --itl-ms.
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "itl_ms")]
    decode_rate: Option<f64>,
    /// Prompt tokens of one request.
    #[arg(long, value_name = "N")]
    prompt_tokens: Option<Distribution>,
    /// Prompt tokens of one request that come from the endpoint's prefix cache.
    #[arg(long, value_name = "N")]
    cached_tokens: Option<Distribution>,
    /// Completion tokens of one reply.
    #[arg(long, value_name = "N")]
    completion_tokens: Option<Distribution>,
    /// Requests to the model in one run.
    #[arg(long, value_name = "N")]
    requests: Option<Distribution>,
    /// Milliseconds that one run spends in tools.
    #[arg(long, value_name = "MS")]
    tools_ms: Option<Distribution>,
    /// Calls of tools in one run.
    #[arg(long, value_name = "N")]
    tool_calls: Option<Distribution>,
    /// Milliseconds of one call of a tool, in the place of --tools-ms.
    #[arg(long, value_name = "MS", conflicts_with = "tools_ms")]
    tool_ms: Option<Distribution>,
    /// Milliseconds of the host itself for one call of a tool: marshalling
    #[arg(long, value_name = "MS")]
    call_marshal_ms: Option<Distribution>,
    /// Milliseconds of the host itself for one request: composing, checking, marshalling
    #[arg(long, value_name = "MS")]
    marshal_ms: Option<Distribution>,
    /// Milliseconds of other overhead of one request that are not in the time to the first token
    #[arg(long, value_name = "MS")]
    overhead_ms: Option<Distribution>,
    /// Requests that a replica processes at the same time; with --measure, selects this measured level.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: Option<u32>,
    /// With --measure: maximum number of requests at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "measure", value_parser = clap::value_parser!(u32).range(1..=256))]
    up_to: u32,
    /// With --measure: maximum duration of the measurement, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "measure", value_parser = clap::value_parser!(u64).range(1..=3600))]
    measure_seconds: u64,
    /// With --from-runs: only runs that began since then, such as 90m, 7d or 2026-11-20.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "7d",
        requires = "from_runs"
    )]
    since: Since,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

/// Prompt and reply tokens of a probe where their usual lengths are unknown.
const DEFAULT_PROBE_TOKENS: (f64, f64) = (256.0, 64.0);
/// Most tokens of a probe, which keeps a measurement short.
const MAX_PROBE_TOKENS: (f64, f64) = (32_768.0, 256.0);

impl CapacityArgs {
    pub fn put(&self, flags: &mut Flags) {
        self.endpoint.put(flags);
    }

    /// The inputs of the command line.
    fn inputs(&self) -> Inputs {
        let given = |flag: &str, spread: Option<Distribution>, factor: f64| {
            spread.map(|spread| {
                SourcedDistribution::new(spread.times(factor), format!("flag {flag}"))
            })
        };
        let in_flight = self.in_flight.map(|n| Distribution::of(f64::from(n)));
        Inputs {
            first_token: given("--ttft-ms", self.ttft_ms, 1e-3),
            between_tokens: given("--itl-ms", self.itl_ms, 1e-3),
            prompt_tokens: given("--prompt-tokens", self.prompt_tokens, 1.0),
            cached_tokens: given("--cached-tokens", self.cached_tokens, 1.0),
            completion_tokens: given("--completion-tokens", self.completion_tokens, 1.0),
            requests: given("--requests", self.requests, 1.0),
            in_tools: given("--tools-ms", self.tools_ms, 1e-3),
            tool_calls: given("--tool-calls", self.tool_calls, 1.0),
            call_marshalling: given("--call-marshal-ms", self.call_marshal_ms, 1e-3),
            marshalling: given("--marshal-ms", self.marshal_ms, 1e-3),
            overhead: given("--overhead-ms", self.overhead_ms, 1e-3),
            in_flight: given("--in-flight", in_flight, 1.0),
            utilisation: given("--utilization", self.utilization, 1.0),
        }
    }
}

/// A speed, above 0.
fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected a number of tokens per second, above 0".into()),
    }
}

pub async fn plan_capacity(config: &Configuration, args: CapacityArgs) -> Result<Exit> {
    if args.explain {
        print!("{EXPLANATION}");
        return Ok(Exit::Ok);
    }
    let runs_wanted = args.target_qps;
    if runs_wanted.is_some_and(|wanted| !wanted.is_finite() || wanted <= 0.0) {
        bail!("--target-qps must be a number above 0");
    }
    let mut inputs = args.inputs();
    let recorded = if args.from_runs {
        sources::runs(config, args.since).await?
    } else {
        Inputs::default()
    };
    let mut measured = Measurement::default();
    if args.measure {
        let known = inputs.clone().or(recorded.clone());
        measured = ask(config, &args, &known).await?;
        inputs = inputs.or(sources::level(&measured, args.in_flight, args.from_runs)?);
    }
    let (price, rate_source) = sources::rate(config);
    let speeds = Speeds {
        prefill: args.prefill_rate,
        decode: args.decode_rate,
        call: args.tool_ms.map(|spread| spread.times(1e-3)),
    };
    let inputs = inputs.or(recorded).or(sources::assumed(config)).at(&speeds);
    let points = inputs.points().map_err(|reason| anyhow!(reason))?;
    let terms = points.map(|point| LatencyTerms::of(&point));
    let plans = points.map(|point| Plan::of(&point, price, runs_wanted));
    if args.json {
        let value = shown::json(
            &inputs,
            &measured,
            (&plans, &terms),
            config.currency(),
            &rate_source,
        );
        output::json_line(&value)?;
    } else {
        print!("{}", shown::levels(&measured));
        print!("{}", shown::inputs(&inputs, &rate_source));
        print!(
            "{}",
            shown::plans(&plans, runs_wanted, config.currency(), price.is_some())
        );
        print!("{}", shown::terms(&terms));
    }
    Ok(Exit::Ok)
}

/// Measures the configured endpoint.
async fn ask(config: &Configuration, args: &CapacityArgs, known: &Inputs) -> Result<Measurement> {
    let size = |input: &Option<SourcedDistribution>, usual: f64, most: f64| {
        let number = input.as_ref().map_or(usual, |input| input.spread.p50);
        number.clamp(1.0, most) as u32
    };
    let probe = Probe {
        prompt_tokens: size(
            &known.prompt_tokens,
            DEFAULT_PROBE_TOKENS.0,
            MAX_PROBE_TOKENS.0,
        ),
        completion_tokens: size(
            &known.completion_tokens,
            DEFAULT_PROBE_TOKENS.1,
            MAX_PROBE_TOKENS.1,
        ),
        most_in_flight: args
            .in_flight
            .unwrap_or(args.up_to)
            .max(args.up_to)
            .min(256),
        time: Duration::from_secs(args.measure_seconds),
    };
    let Some(endpoint) = config.selected() else {
        bail!(
            "{:?} is no single endpoint; name the one to measure with --endpoint",
            config.endpoint
        );
    };
    // The measurement ends first, and reports its reason.
    let patience = probe.time.saturating_add(Duration::from_secs(10));
    let model = host::model(
        endpoint,
        host::transport(endpoint, config.api_key(endpoint))?,
        patience,
    )
    .await?;
    output::remark(&format!(
        "asking {} at {} for up to {} s, prompts of about {} tokens, replies of up to {}",
        model.name(),
        model.target(),
        args.measure_seconds,
        probe.prompt_tokens,
        probe.completion_tokens
    ));
    let measured = measure::measure(&model, &probe).await?;
    if let (Some(stopped), true) = (&measured.stopped, measured.levels.is_empty()) {
        bail!("nothing could be measured: {stopped}; give it more --measure-seconds");
    }
    if let Some(stopped) = &measured.stopped {
        output::note(NoteMark::Warn("measured less:"), stopped);
    }
    Ok(measured)
}
