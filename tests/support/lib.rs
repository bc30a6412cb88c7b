//! What the integration tests share.
#![expect(
    clippy::expect_used,
    reason = "a fixture that cannot be made should say so"
)]

use std::time::{Duration, Instant};

pub mod clock;
pub mod collector;
pub mod endpoint;
pub mod foreign;
pub mod host;
pub mod nested;
pub mod oci;
pub mod postgres;
pub mod rechunk;
pub mod records;
pub mod sandbox;
pub mod server;
pub mod transcript;

/// Sizes are small for each change and large in `cargo xtask test --long`, which sets `TOOLHOLD_TEST_SCALE=whole`.
pub fn scale<T>(short: T, whole: T) -> T {
    let is_whole = std::env::var("TOOLHOLD_TEST_SCALE").is_ok_and(|scale| scale == "whole");
    if is_whole { whole } else { short }
}

/// Far longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Least and longest time between two looks of [`until`].
const LOOKS_APART: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// Looks until there is something. Between two looks passes twice the time that a look takes: a look that starts a process or
/// asks a server would otherwise take the processor from what is waited for.
///
/// # Panics
/// If it takes too long; `what` is said to be missing.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let [least, most] = LOOKS_APART;
    let started = Instant::now();
    loop {
        let looked = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep((looked.elapsed() * 2).clamp(least, most));
    }
}
