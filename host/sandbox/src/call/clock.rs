//! The time of one call. It stands still while a person is asked about a call that the guest makes: people take
//! minutes, and what they may take is bounded where they are asked.

use crate::engine::Pauses;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep_until;
use toolhold_admission::{Lane, Permit};
use toolhold_policy::{CallClock, ClockPause};

/// Runs from the request to the deadline, less its pauses.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    time: Mutex<ClockTime>,
    /// Wakes [`Self::over`] when a pause ends.
    resumed: Notify,
    /// Bounds the number of clocks of the engine that stand still.
    pauses: Arc<Pauses>,
    /// For whom the call is made.
    tenant: Arc<str>,
}

#[derive(Debug)]
struct ClockTime {
    /// If there is no other pause.
    deadline: Instant,
    paused: Duration,
    pause: Option<Pause>,
}

/// The pause that goes on.
#[derive(Debug)]
struct Pause {
    since: Instant,
    /// Guards that are held.
    guards: usize,
    _permit: Permit<Arc<str>>,
}

/// A guard of the pause; the last one that is dropped ends it.
struct PauseGuard(Arc<Clock>);

impl Clock {
    /// A clock that runs for `limit` from now.
    pub fn new(limit: Duration, pauses: Arc<Pauses>, tenant: Arc<str>) -> Self {
        let started = Instant::now();
        Self {
            started,
            time: Mutex::new(ClockTime {
                deadline: started + limit,
                paused: Duration::ZERO,
                pause: None,
            }),
            resumed: Notify::new(),
            pauses,
            tenant,
        }
    }

    /// For whom the call is made.
    pub fn tenant(&self) -> Arc<str> {
        self.tenant.clone()
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// When the time is over, if the clock does not stand still until then.
    pub fn deadline(&self) -> Instant {
        self.time.lock().deadline
    }

    /// The time that passed, without pauses.
    pub fn elapsed(&self) -> Duration {
        let time = self.time.lock();
        let until = time.pause.as_ref().map_or_else(Instant::now, |it| it.since);
        until
            .saturating_duration_since(self.started)
            .saturating_sub(time.paused)
    }

    pub fn is_over(&self) -> bool {
        self.remaining() == Duration::ZERO
    }

    /// Returns when the time is over. A pause during the sleep is seen when the sleep ends: most calls have none,
    /// and pay for no watching.
    pub async fn over(&self) {
        loop {
            // Made before the look at the time, so that no end of a pause is missed.
            let resumed = self.resumed.notified();
            let deadline = {
                let time = self.time.lock();
                time.pause.is_none().then_some(time.deadline)
            };
            match deadline {
                None => resumed.await,
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => sleep_until(deadline.into()).await,
            }
        }
    }
}

impl CallClock for Clock {
    fn remaining(&self) -> Duration {
        let time = self.time.lock();
        let now = time.pause.as_ref().map_or_else(Instant::now, |it| it.since);
        time.deadline.saturating_duration_since(now)
    }

    fn pause(self: Arc<Self>) -> ClockPause {
        {
            let mut time = self.time.lock();
            if let Some(pause) = &mut time.pause {
                pause.guards += 1;
            } else if let Some(permit) = self
                .pauses
                .try_enter(Lane::of(self.tenant.clone()), usize::MAX)
            {
                time.pause = Some(Pause {
                    since: Instant::now(),
                    guards: 1,
                    _permit: permit,
                });
            } else {
                return Box::new(());
            }
        }
        Box::new(PauseGuard(self))
    }
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        let mut time = self.0.time.lock();
        let Some(pause) = &mut time.pause else {
            return;
        };
        pause.guards -= 1;
        if pause.guards == 0 {
            let paused = pause.since.elapsed();
            time.paused += paused;
            time.deadline += paused;
            time.pause = None;
            drop(time);
            self.0.resumed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{sleep, timeout};

    const MOMENT: Duration = Duration::from_millis(40);

    fn clock(limit: Duration, pauses: usize) -> Arc<Clock> {
        Arc::new(Clock::new(limit, Pauses::new(pauses, 0), "".into()))
    }

    #[tokio::test]
    async fn a_pause_moves_the_deadline_and_is_no_time_of_the_call() {
        // Long enough that a busy machine comes to the pauses before it is over.
        const LIMIT: Duration = Duration::from_millis(600);
        let clock = clock(LIMIT, 1);
        let outer = clock.clone().pause();
        let inner = clock.clone().pause();
        let over = tokio::spawn({
            let clock = clock.clone();
            async move { clock.over().await }
        });
        sleep(LIMIT).await;
        drop(outer);
        sleep(MOMENT).await;
        assert!(!clock.is_over() && !over.is_finished());
        assert!(clock.elapsed() < LIMIT, "{:?}", clock.elapsed());
        drop(inner);
        timeout(Duration::from_secs(5), over)
            .await
            .expect("it runs again")
            .unwrap();
        assert!(clock.is_over());
        assert_eq!(clock.pauses.free(), 1);
    }

    #[tokio::test]
    async fn without_room_for_a_pause_it_runs_on() {
        let clock = clock(MOMENT, 0);
        let _pause = clock.clone().pause();
        timeout(Duration::from_secs(5), clock.over())
            .await
            .expect("nothing stopped it");
        assert!(clock.is_over() && clock.elapsed() >= MOMENT);
    }
}
