//! Checks that may take long, on threads of their own: a check of 16 million steps, and twice as many for its faults, would
//! hold up all tasks of the thread that drives it.
//!
//! - **Brief first.** Nearly all checks take microseconds, and a change of threads takes tens of them. So a check begins
//!   where it is, with a few steps, and is made again from its beginning where these did not suffice. A step is no time,
//!   so what it comes to is the same in both places.
//! - **Bounded.** As many long checks are made at a time as there are cores. Others wait in a fair queue with a lane for each
//!   tool, or run: a schema and a value that are dear hold up their own lane first.
//! - **End.** A caller that is dropped leaves the queue. A check that has begun ends by its steps, and keeps its permit until
//!   then.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use toolhold_admission::{FairQueue, Lane, WorkFailure, start_own};
use toolhold_schema::briefly;

/// Steps of checks that are made where their caller is: about 1 ms. A step is a read, an addition and a comparison, which
/// take 5 to 10 ns.
pub(crate) const BRIEF_STEPS: u64 = 128_000;

/// Queue for the long checks of the process: a permit for each of its cores.
static LONG_CHECKS: LazyLock<Arc<FairQueue<String>>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    // Nothing is refused: those who wait are calls and runs, whose number is bounded elsewhere.
    FairQueue::new(cores, usize::MAX)
});

/// Result of `check` for `subject`: at once, or on a thread for long checks, for which the subject is copied. `check`
/// must come to the same each time.
pub async fn checked<S, T>(lane: &str, subject: &S, check: impl Fn(&S) -> T + Send + 'static) -> T
where
    S: Clone + Send + Sync + 'static,
    T: Send + 'static,
{
    if let Some(found) = briefly(BRIEF_STEPS, || check(subject)) {
        return found;
    }
    let subject = subject.clone();
    apart(lane, move || check(&subject)).await
}

/// Does work whose checks may take long on a thread for them. A panic of the work is one of the caller.
pub(crate) async fn apart<T: Send + 'static>(
    lane: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let lane = Lane::of(lane.to_owned());
    let permit = LONG_CHECKS.enter_again(lane, usize::MAX).await;
    let mut done = start_own(move || {
        // Until the thread is free, and not only until the caller is gone.
        let _permit = permit;
        work()
    });
    match done.done().await {
        Ok(done) => done,
        Err(WorkFailure::Panicked { cause }) => resume_unwind(Box::new(cause)),
        // The runtime is shutting down, and drops what waits here.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};
    use toolhold_schema::{CheckError, Validator};

    /// The most that a tick may take, on a slow machine beside other tests.
    const MOST: Duration = Duration::from_secs(30);

    fn numbers(count: u64) -> Value {
        (0..count).map(Value::from).collect()
    }

    fn of_numbers() -> Validator {
        let schema = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
        Validator::new(&schema).unwrap()
    }

    /// The only thread of this runtime ticks, or checks. The check waits for a tick, which never comes on that thread.
    #[tokio::test]
    async fn a_long_check_leaves_its_thread_to_others() {
        let ticks = Arc::<AtomicU64>::default();
        let ticking = ticks.clone();
        let ticker = tokio::spawn(async move {
            loop {
                ticking.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let validator = of_numbers();
        let value = numbers(100_000);
        let ticked = checked("long", &value, move |value: &Value| {
            if let Err(CheckError::TooCostly(_)) = validator.check(value) {
                return false;
            }
            let (before, begun) = (ticks.load(Ordering::Relaxed), Instant::now());
            while ticks.load(Ordering::Relaxed) == before {
                if begun.elapsed() > MOST {
                    return false;
                }
                thread::yield_now();
            }
            true
        });
        assert!(ticked.await, "no tick came while the check was made");
        ticker.abort();
    }

    #[tokio::test]
    async fn a_brief_check_stays_on_its_thread() {
        let here = thread::current().id();
        let validator = of_numbers();
        let value = numbers(100);
        let there = checked("brief", &value, move |value: &Value| {
            validator.check(value).unwrap();
            thread::current().id()
        });
        assert_eq!(there.await, here);
    }

    #[tokio::test]
    async fn a_check_comes_to_the_same_wherever_it_is_made() {
        let schema = json!({"items": {"anyOf": [{"maximum": 9}, {"minimum": 99_990}]}});
        let validator = Arc::new(Validator::new(&schema).unwrap());
        for count in [5, 20, 100_000] {
            let (value, own) = (numbers(count), validator.clone());
            let found = checked("same", &value, move |value: &Value| own.check(value)).await;
            assert_eq!(found, validator.check(&value), "{count}");
        }
    }

    #[tokio::test]
    #[should_panic(expected = "of the check")]
    async fn a_panic_of_a_long_check_is_its_callers() {
        let _: u8 = apart("panics", || panic!("of the check")).await;
    }
}
