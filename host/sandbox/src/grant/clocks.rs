//! Clocks and random numbers as a grant allows them.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::time::{Duration, Instant, SystemTime};
use toolhold_policy::{Clocks, Randomness};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

pub(super) fn apply(
    clocks: Clocks,
    randomness: Randomness,
    start: Instant,
    wasi: &mut WasiCtxBuilder,
) {
    let precision = Duration::from_micros(clocks.precision_us.max(1));
    wasi.wall_clock(WallClock { precision })
        .monotonic_clock(Monotonic { precision, start });
    if let Randomness::Seed(seed) = randomness {
        wasi.secure_random(StdRng::seed_from_u64(seed))
            .insecure_random(StdRng::seed_from_u64(seed.wrapping_add(1)))
            .insecure_random_seed(u128::from(seed));
    }
}

struct WallClock {
    precision: Duration,
}

struct Monotonic {
    precision: Duration,
    /// The call's own, after the queue: what a guest reads tells nothing of how long the machine has been up, nor of how
    /// busy others keep it.
    start: Instant,
}

impl HostWallClock for WallClock {
    fn resolution(&self) -> Duration {
        self.precision
    }

    fn now(&self) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        rounded_down(now.unwrap_or_default(), self.precision)
    }
}

impl HostMonotonicClock for Monotonic {
    fn resolution(&self) -> u64 {
        nanos(self.precision)
    }

    fn now(&self) -> u64 {
        // Never zero, which Go's runtime takes for a broken clock.
        nanos(rounded_down(self.start.elapsed(), self.precision) + self.precision)
    }
}

fn rounded_down(time: Duration, precision: Duration) -> Duration {
    let (time, precision) = (time.as_nanos(), precision.as_nanos().max(1));
    Duration::from_nanos_u128(time - time % precision)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_tick_in_steps() {
        let wall = WallClock {
            precision: Duration::from_millis(10),
        };
        assert_eq!(wall.now().as_nanos() % 10_000_000, 0);
        let monotonic = Monotonic {
            precision: Duration::from_millis(1),
            start: Instant::now(),
        };
        std::thread::sleep(Duration::from_millis(3));
        let now = monotonic.now();
        assert!(now >= 3_000_000 && now.is_multiple_of(1_000_000), "{now}");
    }
}
