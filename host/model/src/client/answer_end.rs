//! Time for which the formal end of an answer is waited for: `[DONE]`, or the end of the body.
//!
//! A finish reason alone in its chunk is no proof of the end. Some servers write one behind each call, and generate the next
//! call after it. Others never send the formal end, and keep the connection open. To which of the two an endpoint belongs,
//! its answers tell: one that sent the end of the last answer has not sent all of this one.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Wait for an endpoint that left the end of its last answer out. Token counts may come in it.
pub(super) const LEFT_OUT_WAIT: Duration = Duration::from_secs(2);
/// Wait for an endpoint of which no answer is known. It is longer than a call takes that a model generates behind a finish
/// reason, and an endpoint that leaves the end out costs it once.
pub(super) const UNKNOWN_WAIT: Duration = Duration::from_secs(10);

/// Values of [`LastEnd`], of which 0 is that no answer is known.
const SENT: u8 = 1;
const LEFT_OUT: u8 = 2;

/// Memory of how the last answer of an endpoint ended.
#[derive(Debug, Default)]
pub(super) struct LastEnd(AtomicU8);

impl LastEnd {
    /// The wait for the formal end of an answer. `idle`: the wait between two of its pieces, which is the maximum.
    pub(super) fn wait(&self, idle: Duration) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            SENT => idle,
            LEFT_OUT => idle.min(LEFT_OUT_WAIT),
            _ => idle.min(UNKNOWN_WAIT),
        }
    }

    /// Notes that an answer had its formal end, or that it was waited for in vain.
    pub(super) fn note(&self, is_sent: bool) {
        let end = if is_sent { SENT } else { LEFT_OUT };
        self.0.store(end, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_an_end_follows_the_last_answer() {
        let last_end = LastEnd::default();
        let (idle, short) = (Duration::from_mins(1), Duration::from_millis(100));
        assert_eq!(last_end.wait(idle), UNKNOWN_WAIT);
        for (is_sent, expect) in [(false, LEFT_OUT_WAIT), (true, idle), (false, LEFT_OUT_WAIT)] {
            last_end.note(is_sent);
            assert_eq!(last_end.wait(idle), expect);
            assert_eq!(last_end.wait(short), short);
        }
    }
}
