//! Time for which the formal end of an answer is waited for: `[DONE]`, or the end of the body.
//!
//! A finish reason alone in its chunk is no proof of the end. Some servers write one behind each call, and generate the next
//! call after it. Others never send the formal end, and keep the connection open. To which of the two an endpoint belongs,
//! its answers tell: one that left the end of the last answer out leaves out that of this one. A text without calls is
//! complete with its finish reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wait where no call may follow: for an answer without calls, and for an endpoint that left the end of its last answer
/// out. Token counts may come in it.
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(2);
/// Wait where another call may follow. It is longer than a call takes that a model generates behind a finish reason, and an
/// endpoint that leaves the end out costs it once.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

/// Memory of how the last answer of an endpoint ended.
#[derive(Debug, Default)]
pub(super) struct LastEnd {
    /// True if its formal end was waited for in vain.
    is_left_out: AtomicBool,
}

impl LastEnd {
    /// The wait for the formal end of an answer. `idle`: the wait between two of its pieces, which is the maximum.
    /// `may_call_again`: the answer has calls, or says so.
    pub(super) fn wait(&self, idle: Duration, may_call_again: bool) -> Duration {
        let is_long = may_call_again && !self.is_left_out.load(Ordering::Relaxed);
        idle.min(if is_long { LONG_WAIT } else { SHORT_WAIT })
    }

    /// Notes that an answer had its formal end, or that it was waited for in vain.
    pub(super) fn note(&self, is_sent: bool) {
        self.is_left_out.store(!is_sent, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_an_end_follows_the_last_answer_and_the_calls_of_this_one() {
        let last_end = LastEnd::default();
        let (idle, short) = (Duration::from_mins(1), Duration::from_millis(100));
        assert_eq!(last_end.wait(idle, true), LONG_WAIT);
        assert_eq!(last_end.wait(idle, false), SHORT_WAIT);
        for (is_sent, expect) in [(false, SHORT_WAIT), (true, LONG_WAIT), (false, SHORT_WAIT)] {
            last_end.note(is_sent);
            assert_eq!(last_end.wait(idle, true), expect);
            assert_eq!(last_end.wait(idle, false), SHORT_WAIT);
            assert_eq!(last_end.wait(short, true), short);
        }
    }
}
