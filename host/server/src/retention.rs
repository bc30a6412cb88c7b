//! Deletes runs that ended longer ago than the operator keeps them, entries of the audit log that are older than that, and
//! documents that are older than their collections keep them, and gives back the space of all.

use crate::knowledge::ServedKnowledge;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};
use toolhold_storage::{ExpireError, PrunedBy, Store, now_ms};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);
/// Time between two deletions of entries of the audit log: each reads the whole log before, to verify it.
const AUDIT_INTERVAL: Duration = Duration::from_hours(24);
/// How long documents are kept that came with a run: they are there before the run is.
const ATTACHED_MS: u64 = 60 * 60 * 1_000;
/// Time for which the clock must run steadily before records are deleted by it.
const STEADY_CLOCK_TIME: Duration = Duration::from_hours(1);
/// Largest difference between the clock and the elapsed time that counts as steady.
const CLOCK_TOLERANCE_MS: u64 = 60_000;

/// Deletes records that ended more than `days` days ago, for as long as it is polled.
pub async fn delete_expired(store: &Store, days: NonZeroU32) {
    let mut clock = ClockCheck::started(now_ms(), Instant::now());
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let now = now_ms();
        if clock.is_even(now, Instant::now(), STEADY_CLOCK_TIME) && store.writable().is_ok() {
            delete(store, days, now).await;
        }
    }
}

/// Deletes entries of the audit log that were written more than `days` days ago, for as long as it is polled.
pub async fn delete_expired_audit(store: &Store, days: NonZeroU32) {
    let mut clock = ClockCheck::started(now_ms(), Instant::now());
    let mut last: Option<Instant> = None;
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let (now, at) = (now_ms(), Instant::now());
        let is_even = clock.is_even(now, at, STEADY_CLOCK_TIME);
        let is_due = last.is_none_or(|last| at.saturating_duration_since(last) >= AUDIT_INTERVAL);
        if is_even && is_due && store.writable().is_ok() && expire_audit(store, days, now).await {
            last = Some(at);
        }
    }
}

/// Deletes documents that are older than their collections keep them, and those that came with runs that have ended and
/// with sessions that are gone, for as long as it is polled.
pub async fn delete_expired_documents(store: &Store, knowledge: &ServedKnowledge) {
    let mut clock = ClockCheck::started(now_ms(), Instant::now());
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let now = now_ms();
        if !clock.is_even(now, Instant::now(), STEADY_CLOCK_TIME) || store.writable().is_err() {
            continue;
        }
        match store
            .delete_left_attached(now.saturating_sub(ATTACHED_MS))
            .await
        {
            Ok(collections) if collections > 0 => knowledge.was_deleted(),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "documents of ended runs could not be deleted; they will be later");
            }
        }
        match store.expire_all_documents(now).await {
            Ok(documents) if documents > 0 => {
                knowledge.was_deleted();
                tracing::info!(documents, "deleted documents that are older than keep_days");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "old documents could not be deleted; they will be later");
            }
        }
    }
}

/// Gives the space of deleted records back to the file system, for as long as it is polled.
pub async fn give_back_space(store: &Store) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if store.writable().is_err() {
            continue;
        }
        match store.give_back_space().await {
            Ok(0) => {}
            Ok(bytes) => tracing::info!(bytes, "space of deleted records was given back"),
            Err(error) => {
                tracing::warn!(%error, "space of deleted records could not be given back; it will be later");
            }
        }
    }
}

/// The time `days` days before `now_ms`.
fn before(days: NonZeroU32, now_ms: u64) -> u64 {
    now_ms.saturating_sub(u64::from(days.get()).saturating_mul(DAY_MS))
}

/// Returns false if the next sweep is to try it again.
async fn expire_audit(store: &Store, days: NonZeroU32, now_ms: u64) -> bool {
    let by = PrunedBy::Retention { days: days.get() };
    match store.expire_audit(before(days, now_ms), by).await {
        Ok(0) => true,
        Ok(entries) => {
            tracing::info!(
                entries,
                "deleted entries of the audit log that are older than storage.keep_audit_days"
            );
            true
        }
        Err(error @ ExpireError::NotGenuine { .. }) => {
            tracing::error!(%error, "old entries of the audit log are kept");
            true
        }
        Err(error @ ExpireError::Store(_)) => {
            tracing::warn!(%error, "old entries of the audit log could not be deleted; they will be later");
            false
        }
    }
}

async fn delete(store: &Store, days: NonZeroU32, now_ms: u64) {
    let by = PrunedBy::Retention { days: days.get() };
    match store.prune(before(days, now_ms), by).await {
        Ok(gone) if gone.runs + gone.sessions > 0 => {
            tracing::info!(
                runs = gone.runs,
                sessions = gone.sessions,
                "deleted what is older than storage.keep_days"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "old runs could not be deleted; they will be later"),
    }
}

/// Compares the machine's clock with elapsed time. A clock that was just changed may be corrected, and
/// deleted records do not come back.
#[derive(Debug)]
struct ClockCheck {
    set_ms: u64,
    at: Instant,
}

impl ClockCheck {
    fn started(now_ms: u64, at: Instant) -> Self {
        Self { set_ms: now_ms, at }
    }

    /// Whether the clock was steady for at least this time.
    fn is_even(&mut self, now_ms: u64, at: Instant, long: Duration) -> bool {
        let passed = at.saturating_duration_since(self.at);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let expected = self.set_ms.saturating_add(passed_ms);
        if now_ms.abs_diff(expected) > CLOCK_TOLERANCE_MS {
            *self = Self::started(now_ms, at);
            return false;
        }
        passed >= long
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;
    use toolhold_protocol::bound::BoundTools;
    use toolhold_protocol::event::Seal;
    use toolhold_protocol::event::{Event, EventKind, Journal as _, StopReason};
    use toolhold_protocol::settings::RunRequest;
    use toolhold_storage::{Label, Location};
    use uuid::Uuid;

    #[test]
    fn a_clock_that_was_set_is_not_believed_at_once() {
        let start = Instant::now();
        let minutes = |minutes: u64| start + Duration::from_mins(minutes);
        let hour = Duration::from_hours(1);
        let ms = |minutes: u64| 1_000_000_000 + minutes * 60_000;
        let year = 365 * DAY_MS;
        let mut clock = ClockCheck::started(ms(0), start);
        for (passed, shown, is_even) in [
            (10, ms(10), false),
            (60, ms(60), true),
            // The clock jumps a year ahead and stays there.
            (70, ms(70) + year, false),
            (120, ms(120) + year, false),
            (130, ms(130) + year, true),
            // The clock is corrected.
            (140, ms(140), false),
            (199, ms(199), false),
            (200, ms(200), true),
            // The machine sleeps for two days, and its monotonic clock does, too.
            (210, ms(210) + 2 * DAY_MS, false),
        ] {
            let seen = clock.is_even(shown, minutes(passed), hour);
            assert_eq!(seen, is_even, "{passed} min");
        }
    }

    #[tokio::test]
    async fn days_are_days() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(1))
            .await
            .unwrap();
        let now = 100 * DAY_MS;
        for days_ago in [0, 6, 8, 90] {
            ended(&store, now - days_ago * DAY_MS).await;
        }
        let week = NonZeroU32::new(7).unwrap();
        delete(&store, week, now).await;
        let left = store.runs_before(None, None, 9).await.unwrap();
        let mut ends: Vec<u64> = left
            .iter()
            .map(|run| (now - run.ended.as_ref().unwrap().at_ms) / DAY_MS)
            .collect();
        ends.sort_unstable();
        assert_eq!(ends, [0, 6]);
    }

    /// A run that ends at once.
    async fn ended(store: &Store, at_ms: u64) {
        let run = Uuid::now_v7();
        let mut journal = store.journal(run, Label::default());
        let mut seal = Seal::default();
        let begun = EventKind::Run {
            format: toolhold_protocol::event::FORMAT,
            prompts: toolhold_protocol::event::PROMPTS,
            task: "t".into(),
            model: "m".into(),
            request: Box::new(RunRequest::new(Uuid::now_v7(), "t")),
            tools: BoundTools::default(),
            host: String::new(),
        };
        let done = EventKind::Done {
            reason: StopReason::Cancelled,
            output: serde_json::Value::Null,
            error: None,
            steps: 0,
            calls: 0,
            tokens: 0,
            cost_nano: None,
            duration_ms: 0,
        };
        for (seq, kind) in (0..).zip([begun, done]) {
            let event = Event {
                run,
                seq,
                at_ms,
                kind,
                removed: None,
                seal: Seal::default(),
            };
            let event = event.sealed(&seal).unwrap();
            seal = event.seal.clone();
            journal.append(from_ref(&event)).await.unwrap();
        }
    }
}
