//! Resumes runs of servers that have ended in a living server with the same database.
//!
//! Each server polls for them independently. The database decides which of several servers takes a run: a run
//! is taken only from the holder with which it was seen.

use crate::runs::dispatcher::Dispatcher;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use toolhold_storage::{HolderLoss, Orphan};

/// Poll interval for orphaned runs. A random delay of up to the same time is added, so that servers do not
/// poll at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Grace period of an orphaned run. A server that only lost its connection to the database reconnects within
/// this time, and one that released a run because it could not write takes it back.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// Longest time from an orphaned run to the server that resumes it, unless all servers are busy.
pub(super) const MAX_TAKEOVER_TIME: Duration = Duration::from_secs(10);
/// Time for which the looks must have come without a gap before the end of a lease counts. After an outage of the
/// database, or when this server was frozen itself, other servers need a few seconds to renew their leases.
const STEADY_TIME: Duration = Duration::from_secs(5);
/// Longest time between two looks without a gap.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(4);

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
                // Other servers could not renew their leases meanwhile.
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
                    let why = match orphan.loss {
                        HolderLoss::Gone => "is gone",
                        HolderLoss::Silent => "renews its lease no more",
                    };
                    tracing::warn!(run = %row.id, server = orphan.holder, "resuming a run whose server {why}");
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

/// Runs that no server drives.
#[derive(Debug, Default)]
struct OrphanedRuns {
    known: HashMap<Orphan, OrphanState>,
    looks: Option<SteadyLooks>,
}

/// Looks at the database that came one after the other without a gap.
#[derive(Debug, Clone, Copy)]
struct SteadyLooks {
    since: Instant,
    last: Instant,
}

#[derive(Debug)]
enum OrphanState {
    Seen(Instant),
    /// The run waits for a place here, or cannot be resumed, so that another attempt would fail too.
    Tried,
}

impl OrphanedRuns {
    /// The runs that are to be resumed now, each once for every server that orphaned it: after a grace period, or, if
    /// the lease of the server has ended, at once. The lease was the grace period then.
    fn due(&mut self, alone: Vec<Orphan>, now: Instant) -> Vec<Orphan> {
        let passed = |since| now.saturating_duration_since(since);
        let steady = self.looks.take();
        let steady = steady.filter(|looks| passed(looks.last) <= MAX_LOOK_INTERVAL);
        let since = steady.map_or(now, |looks| looks.since);
        self.looks = Some(SteadyLooks { since, last: now });
        let is_steady = passed(since) >= STEADY_TIME;
        let mut due = Vec::new();
        let mut seen = HashMap::with_capacity(alone.len());
        for orphan in alone {
            let state = self.known.remove(&orphan);
            let state = match state.unwrap_or(OrphanState::Seen(now)) {
                OrphanState::Seen(since)
                    if match orphan.loss {
                        HolderLoss::Gone => passed(since) >= ORPHAN_GRACE,
                        HolderLoss::Silent => is_steady,
                    } =>
                {
                    due.push(orphan.clone());
                    OrphanState::Tried
                }
                state => state,
            };
            seen.insert(orphan, state);
        }
        self.known = seen;
        due
    }

    fn restart_grace(&mut self) {
        self.looks = None;
        self.known
            .retain(|_, state| matches!(state, OrphanState::Tried));
    }

    fn forget(&mut self, orphan: &Orphan) {
        self.known.remove(orphan);
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
            loss: HolderLoss::Gone,
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
        assert_eq!(orphaned.known.len(), 1, "what is no more is not kept");
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
    fn a_run_of_a_frozen_server_is_due_once_the_looks_are_steady() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let frozen = Orphan {
            loss: HolderLoss::Silent,
            ..orphan(1, Some("a"))
        };
        let mut orphaned = OrphanedRuns::default();
        for second in [0, 2, 4] {
            assert_eq!(orphaned.due(vec![frozen.clone()], at(second)), []);
        }
        // This server was frozen, too: the other one has yet to renew its lease.
        for second in [60, 62, 64] {
            assert_eq!(orphaned.due(vec![frozen.clone()], at(second)), []);
        }
        // The database was away.
        orphaned.restart_grace();
        for second in [66, 68, 70] {
            assert_eq!(orphaned.due(vec![frozen.clone()], at(second)), []);
        }
        assert_eq!(orphaned.due(vec![], at(71)), [], "it has renewed its lease");
        let due = orphaned.due(vec![frozen.clone()], at(73));
        assert_eq!(due, std::slice::from_ref(&frozen), "without a further wait");
        assert_eq!(orphaned.due(vec![frozen], at(75)), []);
    }

    #[test]
    fn chance_stays_within_what_it_may_take() {
        assert!((0..100).all(|_| chance(POLL_INTERVAL) <= POLL_INTERVAL));
    }
}
