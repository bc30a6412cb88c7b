//! A limit per minute, of requests or of tokens.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

/// Amounts of the last minute, which together stay within a limit.
///
/// It is exact, because an operator copies the limit that the other side enforces: a bucket ([`FairRate`](crate::FairRate))
/// would let twice as much pass in its first minute.
#[derive(Debug)]
pub struct SlidingWindow {
    /// 0: no limit.
    limit: u64,
    state: Mutex<SlidingWindowState>,
}

#[derive(Debug, Default)]
struct SlidingWindowState {
    entries: VecDeque<WindowEntry>,
    sum: u64,
    next: u64,
}

#[derive(Debug)]
struct WindowEntry {
    number: u64,
    at: Instant,
    amount: u64,
}

/// An amount that was taken; [`SlidingWindow::settle`] corrects it.
#[derive(Debug)]
pub struct WindowCharge(u64);

impl SlidingWindow {
    /// At most `limit` in any minute. 0: not limited.
    pub fn per_minute(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Takes `amount` of this minute's; `None` where there is no limit. More than the whole limit is taken when
    /// there is nothing else in the minute: it would never be possible otherwise.
    ///
    /// # Errors
    /// The time until there may be enough.
    pub fn take(&self, amount: u64) -> Result<Option<WindowCharge>, Duration> {
        if self.limit == 0 {
            return Ok(None);
        }
        let now = Instant::now();
        let mut state = self.lock();
        state.forget(now);
        if !state.entries.is_empty() && state.sum.saturating_add(amount) > self.limit {
            return Err(state.wait(self.limit.saturating_sub(amount), now));
        }
        let number = state.next;
        state.next += 1;
        state.sum = state.sum.saturating_add(amount);
        state.entries.push_back(WindowEntry {
            number,
            at: now,
            amount,
        });
        Ok(Some(WindowCharge(number)))
    }

    /// Corrects an amount that was estimated: `amount` is what it was.
    pub fn settle(&self, taken: &WindowCharge, amount: u64) {
        let mut state = self.lock();
        let Ok(place) = state
            .entries
            .binary_search_by_key(&taken.0, |entry| entry.number)
        else {
            // Its minute is over.
            return;
        };
        let before = std::mem::replace(&mut state.entries[place].amount, amount);
        state.sum = state.sum.saturating_sub(before).saturating_add(amount);
    }

    fn lock(&self) -> MutexGuard<'_, SlidingWindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlidingWindowState {
    fn forget(&mut self, now: Instant) {
        while let Some(first) = self.entries.front() {
            if first.at + MINUTE > now {
                break;
            }
            self.sum = self.sum.saturating_sub(first.amount);
            self.entries.pop_front();
        }
    }

    /// The time until no more than `most` is left of what there is now.
    fn wait(&self, most: u64, now: Instant) -> Duration {
        let mut left = self.sum;
        for entry in &self.entries {
            left = left.saturating_sub(entry.amount);
            if left <= most {
                return (entry.at + MINUTE).saturating_duration_since(now);
            }
        }
        MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_holds_more_than_the_limit() {
        let window = SlidingWindow::per_minute(3);
        for _ in 0..3 {
            window.take(1).unwrap();
            advance(seconds(10)).await;
        }
        // The first was taken half a minute ago.
        assert_eq!(window.take(1).unwrap_err(), seconds(30));
        advance(seconds(30)).await;
        window.take(1).unwrap();
        assert_eq!(window.take(1).unwrap_err(), seconds(10));
        assert_eq!(window.take(2).unwrap_err(), seconds(20));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_reservation_is_returned() {
        let window = SlidingWindow::per_minute(100);
        let taken = window.take(90).unwrap().unwrap();
        assert!(window.take(20).is_err());
        window.settle(&taken, 10);
        window.take(20).unwrap();
        window.settle(&taken, 80);
        assert_eq!(window.take(1).unwrap_err(), seconds(60));
        advance(seconds(61)).await;
        window.take(100).unwrap();
        window.settle(&taken, 100);
        assert!(window.take(1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_minutes_worth_passes_alone() {
        let window = SlidingWindow::per_minute(100);
        window.take(1).unwrap();
        assert_eq!(window.take(500).unwrap_err(), seconds(60));
        advance(seconds(60)).await;
        window.take(500).unwrap();
        assert!(window.take(1).is_err());
        assert!(
            SlidingWindow::per_minute(0)
                .take(u64::MAX)
                .unwrap()
                .is_none()
        );
    }
}
