//! Statistics of many runs.

use crate::stats::{Histogram, ModelUsage, RunStats, SideModelStats, Tools};
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_protocol::cost::Amount;

/// Most models, contracts and currencies counted separately: records may name any number.
const MAX_GROUPS: usize = 500;
const OTHERS: &str = "(others)";

/// Sums over runs.
#[derive(Debug, Default)]
pub struct Totals {
    pub runs: u64,
    /// Reasons of ended runs, as on the wire; `not over` for the others.
    pub reasons: BTreeMap<String, u64>,
    pub took: ModelUsage,
    /// By currency, because costs in different currencies cannot be added.
    pub costs: BTreeMap<String, Amount>,
    /// By model and contract.
    pub groups: BTreeMap<(String, String), GroupStats>,
    pub tools: Tools,
    pub sides: SideModelStats,
    /// Requests of each run that is over and made some.
    pub requests: Histogram,
    /// Microseconds in tools of each of those runs.
    pub in_tools_us: Histogram,
    pub run_ms: Histogram,
}

/// The Requests to one model in one contract.
#[derive(Debug, Default)]
pub struct GroupStats {
    pub requests: u64,
    pub took: ModelUsage,
    pub first_token_us: Histogram,
    /// Means, of each reply.
    pub between_tokens_us: Histogram,
    pub last_token_us: Histogram,
    /// Of each reply that was counted.
    pub prompt: Histogram,
    pub completion: Histogram,
}

impl Totals {
    pub fn add(&mut self, run: &RunStats) {
        self.runs += 1;
        let reason = match run.end {
            Some((reason, _)) => reason.name(),
            None => "not over",
        };
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
        let took = run.took();
        self.took.add(&took);
        if took.replies > took.unpriced {
            let currency = bounded(&self.costs, run.currency.clone(), OTHERS.into());
            let cost = self.costs.entry(currency).or_default();
            *cost = cost.plus(took.cost);
        }
        if let Some((_, duration)) = run.end {
            self.run_ms.add(millis(duration));
            // A saved plan asks no model, so it says nothing about what a run asks of one.
            if !run.steps.is_empty() {
                self.requests.add(run.steps.len() as u64);
                self.in_tools_us.add(micros(took.in_tools));
            }
        }
        self.tools.merge(&run.tools);
        self.sides.merge(&run.sides);
        for step in &run.steps {
            let key = (step.model.clone(), step.contract.to_owned());
            let key = bounded(&self.groups, key, (OTHERS.into(), String::new()));
            let group = self.groups.entry(key).or_default();
            group.requests += 1;
            group.took.add(&step.took);
            for (times, time) in [
                (&mut group.first_token_us, step.first_token),
                (&mut group.between_tokens_us, step.between_tokens()),
                (&mut group.last_token_us, step.last_token),
            ] {
                if let Some(time) = time {
                    times.add(micros(time));
                }
            }
            if step.took.replies > step.took.uncounted {
                group.prompt.add(step.took.prompt);
                group.completion.add(step.took.completion);
            }
        }
    }
}

fn bounded<K: Ord, V>(map: &BTreeMap<K, V>, key: K, others: K) -> K {
    if map.len() >= MAX_GROUPS && !map.contains_key(&key) {
        others
    } else {
        key
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
