//! Resumes runs of servers that have ended in a living server with the same database.
//!
//! Each server polls for them independently. The database decides which of several servers takes a run: a run
//! is taken only from the holder with which it was seen.

use crate::runs::dispatcher::Dispatcher;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use toolhold_storage::Orphan;

/// Poll interval for orphaned runs. A random delay of up to the same time is added, so that servers do not
/// poll at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Grace period of an orphaned run. A server that only lost its connection to the database reconnects within
/// this time, and one that released a run because it could not write takes it back.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// Longest time until another server resumes an orphaned run, unless all servers are busy.
pub(super) const MAX_TAKEOVER_TIME: Duration = Duration::from_secs(10);

/// Takes over orphaned runs until this server drains.
pub async fn take_over(dispatcher: &Dispatcher) {
    let mut orphaned = OrphanedRuns::default();
    while dispatcher
        .waits(POLL_INTERVAL + chance(POLL_INTERVAL))
        .await
    {
        let store = dispatcher.store();
        let found = match store.writable() {
            Ok(()) => store.orphans().await,
            Err(error) => Err(error),
        };
        let due = match found {
            Ok(orphans) => orphaned.due(orphans, Instant::now()),
            Err(error) => {
                // Other servers' pings could not be read meanwhile.
                orphaned.restart_grace();
                if error.outage().is_none() {
                    tracing::warn!(%error, "orphaned runs cannot be looked up");
                }
                continue;
            }
        };
        for orphan in due {
            match store.run(orphan.run).await {
                Ok(Some(row)) => {
                    tracing::warn!(run = %row.id, server = orphan.holder, "resuming a run whose server is gone");
                    dispatcher.spawn_resume(row);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "an orphaned run cannot be read");
                    orphaned.forget(&orphan);
                }
            }
        }
    }
}

/// Runs that no server drives, with the time when they were first seen.
#[derive(Debug, Default)]
struct OrphanedRuns(HashMap<Orphan, OrphanState>);

#[derive(Debug)]
enum OrphanState {
    Seen(Instant),
    /// The run waits for a place here, or cannot be resumed, so that another attempt would fail too.
    Tried,
}

impl OrphanedRuns {
    /// The runs whose grace period is over, each once for every server that orphaned it.
    fn due(&mut self, alone: Vec<Orphan>, now: Instant) -> Vec<Orphan> {
        let mut due = Vec::new();
        let mut seen = HashMap::with_capacity(alone.len());
        for orphan in alone {
            let state = match self.0.remove(&orphan).unwrap_or(OrphanState::Seen(now)) {
                OrphanState::Seen(since)
                    if now.saturating_duration_since(since) >= ORPHAN_GRACE =>
                {
                    due.push(orphan.clone());
                    OrphanState::Tried
                }
                state => state,
            };
            seen.insert(orphan, state);
        }
        self.0 = seen;
        due
    }

    fn restart_grace(&mut self) {
        self.0
            .retain(|_, state| matches!(state, OrphanState::Tried));
    }

    fn forget(&mut self, orphan: &Orphan) {
        self.0.remove(orphan);
    }
}

/// A random time up to this bound.
fn chance(most: Duration) -> Duration {
    // Without randomness all servers poll at the same time, which works as well.
    let part = getrandom::u32().unwrap_or_default();
    most.mul_f64(f64::from(part) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn orphan(run: u128, holder: Option<&str>) -> Orphan {
        Orphan {
            run: Uuid::from_u128(run),
            holder: holder.map(str::to_owned),
        }
    }

    #[test]
    fn an_orphaned_run_is_due_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, two) = (orphan(1, Some("a")), orphan(2, None));
        let mut orphaned = OrphanedRuns::default();
        assert_eq!(orphaned.due(vec![one.clone()], at(0)), []);
        assert_eq!(orphaned.due(vec![one.clone(), two.clone()], at(4)), []);
        let due = orphaned.due(vec![one.clone(), two.clone()], at(5));
        assert_eq!(due, std::slice::from_ref(&one));
        assert_eq!(orphaned.due(vec![one.clone(), two.clone()], at(9)), [two]);
        // It was resumed, and orphaned again.
        assert_eq!(orphaned.due(vec![], at(10)), []);
        let again = orphan(1, Some("b"));
        assert_eq!(orphaned.due(vec![again.clone()], at(11)), []);
        assert_eq!(orphaned.due(vec![again.clone()], at(16)), [again]);
        assert_eq!(orphaned.0.len(), 1, "what is no more is not kept");
    }

    /// A process that reconnects, and a database that was away.
    #[test]
    fn a_process_that_reconnects_in_time_keeps_its_runs() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, tried) = (orphan(1, Some("a")), orphan(2, Some("b")));
        let mut orphaned = OrphanedRuns::default();
        orphaned.due(vec![tried.clone()], at(0));
        orphaned.due(vec![tried.clone()], at(5));
        assert_eq!(orphaned.due(vec![one.clone(), tried.clone()], at(6)), []);
        assert_eq!(orphaned.due(vec![tried.clone()], at(8)), []);
        assert_eq!(orphaned.due(vec![one.clone(), tried.clone()], at(12)), []);
        orphaned.restart_grace();
        assert_eq!(orphaned.due(vec![one.clone(), tried.clone()], at(18)), []);
        assert_eq!(orphaned.due(vec![one.clone(), tried], at(23)), [one]);
    }

    #[test]
    fn chance_stays_within_what_it_may_take() {
        assert!((0..100).all(|_| chance(POLL_INTERVAL) <= POLL_INTERVAL));
    }
}
