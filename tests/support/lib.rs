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

/// Far longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Looks until there is something.
///
/// # Panics
/// If it takes too long; `what` is said to be missing.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}
