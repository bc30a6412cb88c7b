//! Resumes runs of servers that have ended in a living server with the same database.
//!
//! Each server polls for them independently. The database decides which of several servers takes a run: a run
//! is taken only from the holder with which it was seen.

use crate::runs::dispatcher::Dispatcher;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use toolhold_storage::{HolderLoss, Orphan, Orphans};
use toolhold_telemetry::ResumeCause;
use uuid::Uuid;

/// Poll interval for orphaned runs. A random delay of up to the same time is added, so that servers do not
/// poll at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Grace period of an orphaned run. A server that only lost its connection to the database reconnects within
/// this time, and one that released a run because it could not write takes it back.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// Longest time from an orphaned run to the server that resumes it, unless all servers are busy.
pub(super) const MAX_TAKEOVER_TIME: Duration = Duration::from_secs(10);
/// Time for which looks without a gap must have shown the same deadline, by the clock of this server, before the end of
/// a lease counts: three renewals. The clock of the database may have been set forward, and after an outage of the
/// database, or when this server was frozen itself, other servers need a few seconds to renew their leases. Shorter than
/// a lease, and counted from its last renewal, so that it delays no takeover from a frozen server.
const SAME_DEADLINE_TIME: Duration = Duration::from_secs(6);
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
            Ok(found) => orphaned.due(found, Instant::now()),
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
                    tracing::warn!(
                        run = %row.id,
                        key = row.key(),
                        server = orphan.holder,
                        "resuming a run whose server {why}"
                    );
                    dispatcher.spawn_resume(row, ResumeCause::Takeover);
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
    known: HashMap<OrphanKey, OrphanState>,
    deadlines: HashMap<String, SeenDeadline>,
    last_look: Option<Instant>,
}

/// A run, and the server that orphaned it. How the server lost the run is no part of it: a frozen one may die later.
type OrphanKey = (Uuid, Option<String>);

/// A deadline of the lease of a server, as looks without a gap showed it.
#[derive(Debug, Clone, Copy)]
struct SeenDeadline {
    deadline_ms: i64,
    since: Instant,
}

#[derive(Debug, Clone, Copy)]
enum OrphanState {
    Seen {
        loss: HolderLoss,
        since: Instant,
    },
    /// The run waits for a place here, or cannot be resumed, so that another attempt would fail too. With the deadline of
    /// its server then: a server that renewed its lease since may have lost the run another time.
    Tried {
        deadline_ms: Option<i64>,
    },
}

impl OrphanedRuns {
    /// The runs that are to be resumed now, each once for every server that orphaned it: after a grace period, or, if
    /// the lease of the server has ended, once it was seen for some time that the server does not renew it.
    fn due(&mut self, found: Orphans, now: Instant) -> Vec<Orphan> {
        let passed = |since: Instant| now.saturating_duration_since(since);
        self.note_deadlines(found.deadlines, now);
        let seen_of = |orphan: &Orphan| {
            let holder = orphan.holder.as_ref()?;
            self.deadlines.get(holder).copied()
        };
        let deadline_of = |orphan: &Orphan| seen_of(orphan).map(|seen| seen.deadline_ms);
        let is_silent = |orphan: &Orphan| {
            let seen = seen_of(orphan);
            seen.is_some_and(|seen| passed(seen.since) >= SAME_DEADLINE_TIME)
        };
        let mut due = Vec::new();
        let mut known = HashMap::with_capacity(found.runs.len());
        for orphan in found.runs {
            let loss = orphan.loss;
            let run = key(&orphan);
            let deadline_ms = deadline_of(&orphan);
            let state = match self.known.get(&run).copied() {
                Some(OrphanState::Tried {
                    deadline_ms: before,
                }) if before.is_none() || deadline_ms.is_none() || before == deadline_ms => {
                    OrphanState::Tried {
                        deadline_ms: before,
                    }
                }
                Some(OrphanState::Seen {
                    loss: before,
                    since,
                }) if before == loss => OrphanState::Seen { loss, since },
                _ => OrphanState::Seen { loss, since: now },
            };
            let is_due = match state {
                OrphanState::Tried { .. } => false,
                OrphanState::Seen { since, .. } => match loss {
                    HolderLoss::Gone => passed(since) >= ORPHAN_GRACE,
                    HolderLoss::Silent => is_silent(&orphan),
                },
            };
            if is_due {
                due.push(orphan);
                known.insert(run, OrphanState::Tried { deadline_ms });
            } else {
                known.insert(run, state);
            }
        }
        self.known = known;
        due
    }

    /// Notes the deadlines of this look. After a gap between two looks, each counts from now on.
    fn note_deadlines(&mut self, deadlines: HashMap<String, i64>, now: Instant) {
        let is_gap = |last: Instant| now.saturating_duration_since(last) > MAX_LOOK_INTERVAL;
        if self.last_look.replace(now).is_none_or(is_gap) {
            self.deadlines.clear();
        }
        let seen = |(holder, deadline_ms): (String, i64)| {
            let before = self.deadlines.get(&holder);
            let before = before.filter(|before| before.deadline_ms == deadline_ms);
            let since = before.map_or(now, |before| before.since);
            (holder, SeenDeadline { deadline_ms, since })
        };
        self.deadlines = deadlines.into_iter().map(seen).collect();
    }

    fn restart_grace(&mut self) {
        self.last_look = None;
        self.known
            .retain(|_, state| matches!(state, OrphanState::Tried { .. }));
    }

    fn forget(&mut self, orphan: &Orphan) {
        self.known.remove(&key(orphan));
    }
}

fn key(orphan: &Orphan) -> OrphanKey {
    (orphan.run, orphan.holder.clone())
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

    fn orphan(run: u128, holder: Option<&str>) -> Orphan {
        Orphan {
            run: Uuid::from_u128(run),
            holder: holder.map(str::to_owned),
            loss: HolderLoss::Gone,
        }
    }

    /// A look that found these runs, of servers without a lease.
    fn found(runs: &[&Orphan]) -> Orphans {
        Orphans {
            runs: runs.iter().copied().cloned().collect(),
            deadlines: HashMap::new(),
        }
    }

    /// A look that found the run of a server whose lease has this deadline.
    fn with_deadline(run: Option<&Orphan>, deadline_ms: i64) -> Orphans {
        Orphans {
            runs: run.into_iter().cloned().collect(),
            deadlines: HashMap::from([("a".to_owned(), deadline_ms)]),
        }
    }

    #[test]
    fn an_orphaned_run_is_due_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, two) = (orphan(1, Some("a")), orphan(2, None));
        let mut orphaned = OrphanedRuns::default();
        assert_eq!(orphaned.due(found(&[&one]), at(0)), []);
        assert_eq!(orphaned.due(found(&[&one, &two]), at(4)), []);
        let due = orphaned.due(found(&[&one, &two]), at(5));
        assert_eq!(due, std::slice::from_ref(&one));
        assert_eq!(orphaned.due(found(&[&one, &two]), at(9)), [two]);
        // It was resumed, and orphaned again.
        assert_eq!(orphaned.due(found(&[]), at(10)), []);
        let again = orphan(1, Some("b"));
        assert_eq!(orphaned.due(found(&[&again]), at(11)), []);
        assert_eq!(orphaned.due(found(&[&again]), at(16)), [again]);
        assert_eq!(orphaned.known.len(), 1, "what is no more is not kept");
    }

    /// A process that reconnects, and a database that was away.
    #[test]
    fn a_process_that_reconnects_in_time_keeps_its_runs() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, tried) = (orphan(1, Some("a")), orphan(2, Some("b")));
        let mut orphaned = OrphanedRuns::default();
        orphaned.due(found(&[&tried]), at(0));
        orphaned.due(found(&[&tried]), at(5));
        assert_eq!(orphaned.due(found(&[&one, &tried]), at(6)), []);
        assert_eq!(orphaned.due(found(&[&tried]), at(8)), []);
        assert_eq!(orphaned.due(found(&[&one, &tried]), at(12)), []);
        orphaned.restart_grace();
        assert_eq!(orphaned.due(found(&[&one, &tried]), at(18)), []);
        assert_eq!(orphaned.due(found(&[&one, &tried]), at(23)), [one]);
    }

    fn silent(run: u128) -> Orphan {
        Orphan {
            loss: HolderLoss::Silent,
            ..orphan(run, Some("a"))
        }
    }

    #[test]
    fn a_run_of_a_frozen_server_is_due_once_its_deadline_stays() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let frozen = silent(1);
        let mut orphaned = OrphanedRuns::default();
        for second in [0, 2, 4] {
            assert_eq!(
                orphaned.due(with_deadline(Some(&frozen), 1), at(second)),
                []
            );
        }
        // This server was frozen, too: the other one has yet to renew its lease.
        for second in [60, 62, 64] {
            assert_eq!(
                orphaned.due(with_deadline(Some(&frozen), 1), at(second)),
                []
            );
        }
        // The database was away.
        orphaned.restart_grace();
        for second in [66, 68, 70] {
            assert_eq!(
                orphaned.due(with_deadline(Some(&frozen), 1), at(second)),
                []
            );
        }
        // It renews its lease, and the clock of the database is set forward between its renewals.
        for (second, deadline) in [(72, 2), (74, 3), (76, 4), (78, 5)] {
            let looked = with_deadline(Some(&frozen), deadline);
            assert_eq!(orphaned.due(looked, at(second)), []);
        }
        // Its lease has not ended yet, and its last renewal is seen.
        for second in [80, 82] {
            assert_eq!(orphaned.due(with_deadline(None, 6), at(second)), []);
        }
        assert_eq!(orphaned.due(with_deadline(Some(&frozen), 6), at(84)), []);
        let due = orphaned.due(with_deadline(Some(&frozen), 6), at(86));
        assert_eq!(due, std::slice::from_ref(&frozen));
        assert_eq!(orphaned.due(with_deadline(Some(&frozen), 6), at(88)), []);
    }

    #[test]
    fn a_run_that_was_tried_is_not_due_again_when_its_frozen_server_dies() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (frozen, gone) = (silent(1), orphan(1, Some("a")));
        let mut orphaned = OrphanedRuns::default();
        for second in [0, 2, 4] {
            assert_eq!(
                orphaned.due(with_deadline(Some(&frozen), 1), at(second)),
                []
            );
        }
        assert_eq!(
            orphaned.due(with_deadline(Some(&frozen), 1), at(6)).len(),
            1
        );
        for second in [8, 12, 16] {
            assert_eq!(orphaned.due(with_deadline(Some(&gone), 1), at(second)), []);
        }
        // It had renewed its lease since.
        for second in [18, 22] {
            assert_eq!(orphaned.due(with_deadline(Some(&gone), 2), at(second)), []);
        }
        assert_eq!(orphaned.due(with_deadline(Some(&gone), 2), at(23)).len(), 1);
    }

    /// A server that wakes may find that it lost its connection, too.
    #[test]
    fn a_run_whose_frozen_server_loses_its_connection_has_the_whole_grace() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (frozen, gone) = (silent(1), orphan(1, Some("a")));
        let mut orphaned = OrphanedRuns::default();
        for second in [0, 2, 4] {
            assert_eq!(
                orphaned.due(with_deadline(Some(&frozen), 1), at(second)),
                []
            );
        }
        assert_eq!(orphaned.due(found(&[&gone]), at(6)), []);
        assert_eq!(orphaned.due(found(&[&gone]), at(10)), []);
        assert_eq!(orphaned.due(found(&[&gone]), at(11)).len(), 1);
    }

    #[test]
    fn chance_stays_within_what_it_may_take() {
        assert!((0..100).all(|_| chance(POLL_INTERVAL) <= POLL_INTERVAL));
    }
}
