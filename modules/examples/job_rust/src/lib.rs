//! A job in Rust: work that is longer than a call may be, done piece by piece.
//!
//! What is known of a job stands in a file of the granted directory `/jobs`, and nowhere else: each question about it has an
//! instance of its own. Here a question also does the next piece of the work. Where a service or another program does the
//! work, a question only looks how far it is.

mod primes;
mod store;

use primes::{PIECE, Work};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use toolhold_guest::jobs::{JobState, JobTool, Started};
use toolhold_guest::{Annotations, Error, json};

toolhold_guest::export_jobs!(tools, state, cancel);

/// The granted directory.
const JOBS: &str = "/jobs";

/// Largest number below which primes may be counted; the count takes seconds.
const MOST: u64 = 100_000_000;

fn tools() -> Vec<JobTool> {
    vec![
        JobTool::new(
            "count_primes",
            "Counts the primes below a number. It may take minutes, and continues as a job meanwhile.",
            count_primes,
        )
        .describe(|tool| {
            tool.title("Count primes")
                .annotations(Annotations::IDEMPOTENT)
                .example(
                    "How many primes are there below 100?",
                    json!({ "below": 100 }),
                    json!({ "primes": 25 }),
                    "There are 25 primes below 100.",
                )
                // This one is a job.
                .example(
                    "How many primes are below one million?",
                    json!({ "below": 1_000_000 }),
                    json!({ "primes": 78_498 }),
                    "There are 78,498 primes below one million.",
                )
        }),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The number, up to 100,000,000.
    #[schemars(range(min = 0, max = 100_000_000))]
    below: u64,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Counted {
    primes: u64,
}

fn count_primes(Arguments { below }: Arguments) -> Result<Started<Counted>, Error> {
    if below > MOST {
        return Err(Error::correctable(format!("below is at most {MOST}")));
    }
    let mut work = Work::new(below);
    if below <= PIECE {
        work.advance();
        return Ok(Started::Done(Counted { primes: work.found }));
    }
    store::forget_old(Path::new(JOBS));
    let id = store::new_id();
    store::keep(Path::new(JOBS), &id, work)?;
    Ok(Started::Job(id))
}

fn state(job: &str) -> Result<JobState, Error> {
    let mut work = store::read(Path::new(JOBS), job)?;
    if work.is_over() {
        // Asked again, because the answer was lost.
        return Ok(done(work));
    }
    work.advance();
    store::keep(Path::new(JOBS), job, work)?;
    if work.is_over() {
        return Ok(done(work));
    }
    Ok(JobState::Working {
        done: work.next,
        total: work.below,
        note: format!("{} primes so far", work.found),
    })
}

fn done(work: Work) -> JobState {
    JobState::Done(json!({ "primes": work.found }))
}

fn cancel(job: &str) -> Result<(), Error> {
    store::remove(Path::new(JOBS), job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_number_is_answered_at_once() {
        let counted = count_primes(Arguments { below: 100 });
        assert_eq!(counted, Ok(Started::Done(Counted { primes: 25 })));
    }

    #[test]
    fn a_number_that_is_too_large_is_refused() {
        assert!(count_primes(Arguments { below: MOST + 1 }).is_err());
    }
}
