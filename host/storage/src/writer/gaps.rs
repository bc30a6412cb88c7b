//! Gaps between the transactions that the writer makes in a SQLite file.
//!
//! Connections of other processes ask for the lock again and again with waits between. While transactions follow each other
//! without a gap, they rarely ask at the moment when the lock is free.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time of transactions that follow each other, after which a gap is made.
const BUSY_TIME: Duration = Duration::from_millis(20);
/// Length of a gap: about a tenth of that time, because others ask once in up to 100 ms.
const GAP: Duration = Duration::from_millis(1);

/// The transactions since the last gap.
pub struct WriteGaps {
    begin: Instant,
    end: Instant,
}

impl WriteGaps {
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            begin: now,
            end: now,
        }
    }

    /// Waits before the next transaction, if those before it leave others no time for theirs.
    pub async fn before_begin(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.end) >= GAP {
            self.begin = now;
        } else if now.duration_since(self.begin) >= BUSY_TIME {
            sleep(GAP).await;
            self.begin = Instant::now();
        }
    }

    /// Notes that the lock is free again.
    pub fn after_end(&mut self) {
        self.end = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const TRANSACTION: Duration = Duration::from_millis(10);
    const TRANSACTIONS: u32 = 100;

    /// How long the transactions wait, with a pause between each two.
    async fn waited(pause: Duration) -> Duration {
        let mut gaps = WriteGaps::new();
        let mut waited = Duration::ZERO;
        for _ in 0..TRANSACTIONS {
            let before = Instant::now();
            gaps.before_begin().await;
            waited += before.elapsed();
            advance(TRANSACTION).await;
            gaps.after_end();
            advance(pause).await;
        }
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_time_between_transactions_without_a_pause() {
        let gaps = waited(Duration::ZERO).await;
        assert!(gaps >= GAP * (TRANSACTIONS / 4), "{gaps:?}");
        assert!(gaps < TRANSACTION * TRANSACTIONS / 4, "{gaps:?}");
        assert_eq!(waited(GAP * 2).await, Duration::ZERO);
    }
}
