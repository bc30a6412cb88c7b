//! The counted results of an evaluation.

use crate::eval::arm::Arm;
use crate::eval::bench::Attempt;
use crate::eval::seen::AttemptCosts;
use crate::eval::set::Set;
use crate::eval::statistics::{sign_test, wilson};
use serde::Serialize;
use toolhold_protocol::event::StopReason;
use toolhold_protocol::settings::Settings;

/// Everything that `toolhold eval --json` prints.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    pub toolhold: &'static str,
    pub planned: usize,
    /// Why the evaluation ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    pub configurations: Vec<Configuration<'a>>,
    pub tasks: Vec<TaskLine<'a>>,
    /// Each configuration against the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison<'a>>,
    pub attempts: &'a [Attempt],
}

#[derive(Debug, Serialize)]
pub struct Configuration<'a> {
    pub name: &'a str,
    pub model: &'a str,
    pub base_url: &'a str,
    pub contract: &'static str,
    pub settings: &'a Settings,
    pub total: Total,
}

/// Sums and means over attempts, failed ones included.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Total {
    pub attempts: usize,
    pub successes: usize,
    pub rate: f64,
    /// 95 %, Wilson.
    pub interval: (f64, f64),
    pub mean_steps: f64,
    pub mean_calls: f64,
    pub mean_tokens: f64,
    pub mean_seconds: f64,
    /// Attempts that ended because the endpoint failed.
    pub endpoint_failures: usize,
    /// Added up.
    pub counts: AttemptCosts,
}

#[derive(Debug, Serialize)]
pub struct TaskLine<'a> {
    pub id: &'a str,
    pub level: u8,
    /// In the order of the configurations.
    pub totals: Vec<Total>,
}

/// One configuration against the first, on the tasks that both attempted.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    pub name: &'a str,
    pub against: &'a str,
    /// Tasks at which it succeeded more often, less often, as often.
    pub better: usize,
    pub worse: usize,
    pub equal: usize,
    /// Of the success rate, over these tasks.
    pub difference: f64,
    /// Exact two-sided sign test over `better` and `worse`.
    pub p: f64,
}

impl<'a> Report<'a> {
    pub fn new(
        set: &'a Set,
        arms: &'a [Arm],
        attempts: &'a [Attempt],
        planned: usize,
        stopped: Option<String>,
    ) -> Self {
        let of = |arm: &Arm, task: Option<&str>| {
            let own = attempts.iter().filter(|attempt| {
                attempt.configuration == arm.name && task.is_none_or(|task| attempt.task == task)
            });
            Total::of(own)
        };
        let configurations = arms.iter().map(|arm| Configuration {
            name: &arm.name,
            model: arm.model.name(),
            base_url: arm.config.place(),
            contract: arm.settings.contract.name(),
            settings: &arm.settings,
            total: of(arm, None),
        });
        let tasks = set.tasks.iter().map(|task| TaskLine {
            id: &task.id,
            level: task.level,
            totals: arms.iter().map(|arm| of(arm, Some(&task.id))).collect(),
        });
        let tasks: Vec<_> = tasks.collect();
        let comparisons = arms.iter().enumerate().skip(1).filter_map(|(index, arm)| {
            let pairs = tasks
                .iter()
                .filter_map(|task| Some((*task.totals.first()?, *task.totals.get(index)?)));
            let against = &arms.first()?.name;
            Some(Comparison::of(&arm.name, against, pairs))
        });
        Self {
            toolhold: env!("CARGO_PKG_VERSION"),
            planned,
            stopped,
            configurations: configurations.collect(),
            comparisons: comparisons.collect(),
            tasks,
            attempts,
        }
    }
}

impl Total {
    fn of<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Self {
        let mut total = Self::default();
        for attempt in attempts {
            total.attempts += 1;
            total.successes += usize::from(attempt.passed);
            let failed = attempt.seen.reason == Some(StopReason::Model);
            total.endpoint_failures += usize::from(failed);
            total.counts.add(&attempt.seen.counts);
        }
        let n = total.attempts.max(1) as f64;
        let counts = total.counts;
        total.rate = total.successes as f64 / n;
        total.interval = wilson(total.successes, total.attempts);
        total.mean_steps = f64::from(counts.steps) / n;
        total.mean_calls = f64::from(counts.calls) / n;
        total.mean_tokens = counts.tokens as f64 / n;
        total.mean_seconds = counts.duration_ms as f64 / 1e3 / n;
        total
    }
}

impl AttemptCosts {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.calls += other.calls;
        self.failed_calls += other.failed_calls;
        self.tokens += other.tokens;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.duration_ms += other.duration_ms;
        self.repairs += other.repairs;
        self.unusable += other.unusable;
        self.retries += other.retries;
        self.fallbacks += other.fallbacks;
    }
}

impl<'a> Comparison<'a> {
    /// `pairs` are the first configuration's and this one's totals at each task.
    fn of(name: &'a str, against: &'a str, pairs: impl Iterator<Item = (Total, Total)>) -> Self {
        let (mut better, mut worse, mut equal, mut sum) = (0, 0, 0, 0.0);
        for (first, own) in pairs.filter(|(first, own)| first.attempts > 0 && own.attempts > 0) {
            // Exact, where the rates of unequal numbers of attempts are not.
            match (own.successes * first.attempts).cmp(&(first.successes * own.attempts)) {
                std::cmp::Ordering::Greater => better += 1,
                std::cmp::Ordering::Less => worse += 1,
                std::cmp::Ordering::Equal => equal += 1,
            }
            sum += own.rate - first.rate;
        }
        let tasks: usize = better + worse + equal;
        Self {
            name,
            against,
            better,
            worse,
            equal,
            difference: sum / tasks.max(1) as f64,
            p: sign_test(better, worse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::seen::RunSummary;

    fn total(successes: usize, attempts: usize) -> Total {
        let attempt = |number: usize| Attempt {
            configuration: "a".into(),
            task: "t".into(),
            number: 1,
            passed: number < successes,
            faults: Vec::new(),
            seen: RunSummary {
                counts: AttemptCosts {
                    steps: 3,
                    tokens: 100,
                    duration_ms: 500,
                    ..AttemptCosts::default()
                },
                ..RunSummary::default()
            },
        };
        Total::of((0..attempts).map(attempt).collect::<Vec<_>>().iter())
    }

    #[test]
    fn attempts_are_counted() {
        let total = total(3, 4);
        assert_eq!((total.successes, total.attempts, total.rate), (3, 4, 0.75));
        assert_eq!((total.mean_steps, total.mean_seconds), (3.0, 0.5));
        assert_eq!(total.counts.tokens, 400);
        assert_eq!(super::Total::of([].iter()).interval, (0.0, 1.0));
    }

    #[test]
    fn tasks_are_paired_and_those_that_one_did_not_attempt_left_out() {
        let pairs = [
            (total(1, 1), total(0, 1)),
            (total(2, 2), total(1, 2)),
            (total(1, 2), total(2, 4)),
            (total(0, 1), total(1, 1)),
            (total(1, 1), total(0, 0)),
        ];
        let found = Comparison::of("b", "a", pairs.into_iter());
        assert_eq!((found.better, found.worse, found.equal), (1, 2, 1));
        assert!((found.difference - (-0.125)).abs() < 1e-9, "{found:?}");
        assert!((found.p - 1.0).abs() < 1e-9);
    }
}
