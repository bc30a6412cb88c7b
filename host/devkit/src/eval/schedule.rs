//! The order of attempts, and how many run at a time.

use crate::eval::arm::Arm;
use crate::eval::bench::{Attempt, EvalResources};
use crate::eval::set::{Set, Task};
use crate::eval::store::{AttemptKey, AttemptStore};
use anyhow::Result;
use futures_util::stream::{self, StreamExt as _};
use tokio_util::sync::CancellationToken;

/// A planned attempt.
#[derive(Debug, Clone, Copy)]
pub struct PlannedAttempt<'a> {
    pub arm: &'a Arm,
    pub task: &'a Task,
    pub number: u32,
}

/// All attempts. The configurations alternate at each task, and alternate in being first, so that an endpoint
/// that gets slower or warms up affects all of them alike.
pub fn order<'a>(set: &'a Set, arms: &'a [Arm], times: u32) -> Vec<PlannedAttempt<'a>> {
    let mut planned = Vec::new();
    for number in 1..=times {
        for (index, task) in set.tasks.iter().enumerate() {
            let first = (index + number as usize - 1) % arms.len().max(1);
            let turns = arms.iter().cycle().skip(first).take(arms.len());
            planned.extend(turns.map(|arm| PlannedAttempt { arm, task, number }));
        }
    }
    planned
}

/// Makes the attempts, at most `parallel` at a time, until all are made or `cancel` is cancelled. `on_end` is
/// called with each result; attempts in `store` are reported and not repeated.
///
/// # Errors
/// An attempt could not begin or be recorded. Earlier results are kept.
pub async fn perform(
    bench: &EvalResources,
    planned: Vec<PlannedAttempt<'_>>,
    parallel: usize,
    mut store: Option<AttemptStore>,
    cancel: &CancellationToken,
    mut on_end: impl FnMut(Attempt),
) -> Result<()> {
    let mut left = Vec::new();
    for planned in planned {
        let key = AttemptKey::new(planned.arm, planned.task, planned.number);
        match store
            .as_ref()
            .and_then(|store| store.find(&key, planned.arm))
        {
            Some(attempt) => on_end(attempt),
            None => left.push((planned, key)),
        }
    }
    let mut attempts = stream::iter(left)
        .map(async |(planned, key)| {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            let PlannedAttempt { arm, task, number } = planned;
            let attempt = bench.attempt(arm, task, number, cancel).await?;
            Ok::<_, anyhow::Error>(attempt.map(|attempt| (key, attempt)))
        })
        .buffer_unordered(parallel.max(1));
    while let Some(attempt) = attempts.next().await {
        if let Some((key, attempt)) = attempt? {
            if let Some(store) = &mut store {
                store.put(key, &attempt)?;
            }
            on_end(attempt);
        }
    }
    Ok(())
}
