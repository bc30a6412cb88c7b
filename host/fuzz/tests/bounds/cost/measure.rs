//! What one input costs: processor time of the process and the most memory that was allocated at a time.
//!
//! Processor time and not time, so that other work on the machine changes nothing; of the whole process, because some
//! readers use a thread of their own.

use super::shapes::Shape;
use crate::process_alone;
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Sizes of the inputs, as parts of the largest. Each is judged before the next one is tried, so that a cost that grows
/// with the square ends the test early.
const PARTS: [usize; 4] = [64, 16, 4, 1];
/// How much more a byte of a large input may cost than a byte of a small one.
const GROWTH: f64 = 4.0;
/// Less cannot be measured: caches, and what is built at the first use.
const FLOOR: Duration = Duration::from_millis(1);
/// Memory of any input.
const FIXED_BYTES: usize = 2 << 20;
/// Tries before a measurement counts: page faults and interrupts are processor time, too.
const TRIES: usize = 3;

/// What a place may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Bytes of the largest input.
    pub largest: usize,
    /// Bytes of memory for each byte of input.
    pub memory: usize,
    /// Processor time that any input may take, whatever its size: a budget, where the cost of a byte is not the same in
    /// all inputs.
    pub budget: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Duration,
    memory: usize,
}

/// Feeds inputs of growing size to `read`, and fails where one costs more than its size allows.
pub fn hold(place: &str, bound: Bound, shapes: &[Shape], read: fn(&str)) {
    let _alone = process_alone();
    for (shape, input) in shapes {
        // What is built once.
        read(&input(256));
        let mut least: Option<(usize, Duration)> = None;
        for part in PARTS {
            let text = input(bound.largest / part);
            let allowed = least.map_or(Duration::MAX, |(length, time)| {
                let longer = text.len() as f64 / length.max(1) as f64;
                (time.max(FLOOR).mul_f64(GROWTH * longer.max(1.0))).max(bound.budget)
            });
            let most = FIXED_BYTES + text.len() * bound.memory;
            let mut cost = once(&text, read);
            for _ in 1..TRIES {
                if cost.time <= allowed {
                    break;
                }
                cost.time = cost.time.min(once(&text, read).time);
            }
            let what = || format!("{place}, {shape}: {} bytes", text.len());
            assert!(
                cost.time <= allowed,
                "{} take {:?} of processor time; by the smallest input {allowed:?} are right",
                what(),
                cost.time
            );
            assert!(
                cost.memory <= most,
                "{} take {} bytes of memory; {most} are right",
                what(),
                cost.memory
            );
            least.get_or_insert((text.len(), cost.time));
        }
    }
}

fn once(text: &str, read: fn(&str)) -> Cost {
    ALLOCATOR.reset_peak_usage();
    let (memory, time) = (ALLOCATOR.current_usage(), processor_time());
    read(text);
    Cost {
        time: processor_time().saturating_sub(time),
        memory: ALLOCATOR.peak_usage().saturating_sub(memory),
    }
}

fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[test]
#[should_panic(expected = "of processor time")]
fn what_grows_with_the_square_is_found() {
    let bound = Bound {
        largest: 16 << 10,
        memory: 1,
        budget: Duration::ZERO,
    };
    hold(
        "a square",
        bound,
        &[("letters", |n| "x".repeat(n))],
        |text| {
            for at in 0..text.len() {
                for byte in &text.as_bytes()[..at] {
                    std::hint::black_box(byte);
                }
            }
        },
    );
}

#[test]
#[should_panic(expected = "of memory")]
fn what_keeps_too_much_is_found() {
    let bound = Bound {
        largest: 256 << 10,
        memory: 8,
        budget: Duration::from_secs(10),
    };
    hold(
        "too much",
        bound,
        &[("letters", |n| "x".repeat(n))],
        |text| {
            drop(std::hint::black_box(vec![1_u8; text.len() * 32]));
        },
    );
}
