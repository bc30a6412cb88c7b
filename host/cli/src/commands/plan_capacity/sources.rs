//! Where the inputs of a plan come from: a measurement, runs of the past, the configuration.

use crate::commands::stats;
use crate::terminal::output;
use crate::terminal::style::{line, plural};
use anyhow::{Result, bail};
use toolhold_devkit::capacity::{Distribution, Inputs, Measurement, Rate, SourcedDistribution};
use toolhold_protocol::cost::{Amount, Price};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{GroupStats, Histogram, Since, Totals};

/// Default utilization of a replica: waiting is threefold there.
const UTILISATION: f64 = 0.7;

/// The level that is used: the requested one, or the one with the most tokens per second.
pub fn level(measured: &Measurement, in_flight: Option<u32>, has_runs: bool) -> Result<Inputs> {
    let levels = &measured.levels;
    let level = match in_flight {
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
            in_flight.map_or("any number".into(), |n| n.to_string()),
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
    let known = |spread: Distribution, source: &str| Some(SourcedDistribution::new(spread, source));
    let chosen = match in_flight {
        Some(_) => "flag --in-flight",
        None => "measured: the most tokens per second",
    };
    // Recorded runs have the real lengths of requests.
    let own = format!("{counted}: its own requests");
    let size = |spread| known(spread, &own).filter(|_| !has_runs);
    Ok(Inputs {
        first_token: known(level.first_token, &source),
        between_tokens: level
            .between_tokens
            .and_then(|spread| known(spread, &counted)),
        prompt_tokens: size(level.prompt_tokens),
        completion_tokens: size(level.completion_tokens),
        in_flight: known(Distribution::of(f64::from(level.in_flight)), chosen),
        ..Inputs::default()
    })
}

/// Statistics of past runs with the configured model, or with the most used one.
pub async fn runs(config: &Configuration, since: Since) -> Result<Inputs> {
    let store = host::store(config).await?;
    let (totals, damaged) = stats::gather(&store, since).await?;
    for reason in damaged.iter().take(3) {
        output::left_out(reason);
    }
    let wanted = config
        .selected()
        .map_or("", |endpoint| endpoint.model.as_str());
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
    let runs = plural(totals.requests.count(), "recorded run");
    let known = |histogram: &Histogram, factor: f64, source: &str| {
        let at = |percent| Some(histogram.percentile(percent)? as f64 * factor);
        let spread = Distribution {
            mean: histogram.sum() as f64 * factor / histogram.count() as f64,
            p50: at(50)?,
            p95: at(95)?,
        };
        Some(SourcedDistribution::new(spread, source))
    };
    Ok(Inputs {
        first_token: known(&group.first_token_us, 1e-6, &source),
        between_tokens: known(&group.between_tokens_us, 1e-6, &source),
        prompt_tokens: known(&group.prompt, 1.0, &source),
        cached_tokens: cached(group, &source),
        completion_tokens: known(&group.completion, 1.0, &source),
        requests: known(&totals.requests, 1.0, &runs),
        in_tools: known(&totals.in_tools_us, 1e-6, &runs),
        tool_calls: calls(&totals, &runs),
        ..Inputs::default()
    })
}

/// The mean number of calls of tools in a run.
fn calls(totals: &Totals, runs: &str) -> Option<SourcedDistribution> {
    let made: u64 = totals.tools.iter().map(|(_, tool)| tool.calls).sum();
    let count = totals.requests.count();
    (count > 0).then(|| {
        let mean = Distribution::of(made as f64 / count as f64);
        SourcedDistribution::new(mean, format!("{runs}: their mean"))
    })
}

/// The mean share of prompts that came from the cache, of prompts.
fn cached(group: &GroupStats, source: &str) -> Option<SourcedDistribution> {
    let took = &group.took;
    let share = took.cached as f64 / (took.prompt > 0).then_some(took.prompt)? as f64;
    let of = |prompt: f64| prompt * share.min(1.0);
    let spread = Distribution {
        mean: of(group.prompt.sum() as f64 / group.prompt.count() as f64),
        p50: of(group.prompt.percentile(50)? as f64),
        p95: of(group.prompt.percentile(95)? as f64),
    };
    Some(SourcedDistribution::new(
        spread,
        format!("{source}: their mean share"),
    ))
}

/// The defaults.
pub fn assumed(config: &Configuration) -> Inputs {
    let assumed = |number: f64| {
        Some(SourcedDistribution::new(
            Distribution::of(number),
            "assumed",
        ))
    };
    let in_flight = match config.routes().price(&config.endpoint) {
        Some(Price::Time { in_flight, .. }) if in_flight > 1 => Some(SourcedDistribution::new(
            Distribution::of(f64::from(in_flight)),
            format!("setting endpoints.{}.gpu_requests", config.endpoint),
        )),
        _ => assumed(1.0),
    };
    Inputs {
        cached_tokens: assumed(0.0),
        requests: assumed(1.0),
        in_tools: assumed(0.0),
        tool_calls: assumed(0.0),
        call_marshalling: assumed(0.0),
        marshalling: assumed(0.0),
        overhead: assumed(0.0),
        in_flight,
        utilisation: assumed(UTILISATION),
        ..Inputs::default()
    }
}

/// The endpoint's price, and its source.
pub fn rate(config: &Configuration) -> (Option<Rate>, String) {
    let units = |amount: Amount| amount.nano() as f64 / 1e9;
    let name = &config.endpoint;
    match config.routes().price(&config.endpoint) {
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
