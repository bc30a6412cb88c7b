//! Which attempts are made, in which order, and how many at a time.

use crate::eval::arm::Arm;
use crate::eval::bench::{Attempt, Bench};
use crate::eval::set::{Set, Task};
use crate::eval::store::{Key, Store};
use anyhow::Result;
use futures_util::stream::{self, StreamExt as _};
use tokio_util::sync::CancellationToken;

/// An attempt that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    pub arm: &'a Arm,
    pub task: &'a Task,
    pub number: u32,
}

/// All attempts. The configurations take turns at each task, and take turns at being first: an endpoint
/// that grows slower, or warms up, does so for all of them.
pub fn order<'a>(set: &'a Set, arms: &'a [Arm], times: u32) -> Vec<Planned<'a>> {
    let mut planned = Vec::new();
    for number in 1..=times {
        for (index, task) in set.tasks.iter().enumerate() {
            let first = (index + number as usize - 1) % arms.len().max(1);
            let turns = arms.iter().cycle().skip(first).take(arms.len());
            planned.extend(turns.map(|arm| Planned { arm, task, number }));
        }
    }
    planned
}

/// Makes the attempts, at most `parallel` at a time, until all are made or `cancel` is. Each is told to
/// `on_end` when it is over; those in `store` are told and not made again.
///
/// # Errors
/// An attempt that could not be begun or recorded. What was made before is kept.
pub async fn perform(
    bench: &Bench,
    planned: Vec<Planned<'_>>,
    parallel: usize,
    mut store: Option<Store>,
    cancel: &CancellationToken,
    mut on_end: impl FnMut(Attempt),
) -> Result<()> {
    let mut left = Vec::new();
    for planned in planned {
        let key = Key::new(planned.arm, planned.task, planned.number);
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
            let Planned { arm, task, number } = planned;
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
