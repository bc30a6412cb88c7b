//! The states of a server's parts, and since when each is in its state.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Parts of a server, in the order of `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPart {
    /// The process itself: whether it takes new runs.
    Serving,
    Database,
    Endpoints,
    Modules,
    Disk,
}

/// State of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartState {
    Ok,
    /// Runs can be begun all the same.
    Degraded,
    /// No run can be begun.
    Failed,
}

impl PartState {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// A moment, on the clock that never jumps and on the one that people read.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

/// Difference of the clocks from which the wall clock counts as set. Between two readings of it a few milliseconds pass.
const CLOCK_STEP: Duration = Duration::from_secs(2);

impl Moment {
    pub fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// The moment of `at`, which is past.
    fn of(at: Instant, now: Self) -> Self {
        let age = now.monotonic.saturating_duration_since(at);
        Self {
            monotonic: at,
            wall: now.wall.checked_sub(age).unwrap_or(now.wall),
        }
    }

    /// Returns this moment on a wall clock that was set since: a time of the clock before would mislead.
    fn corrected(self, now: Self) -> Self {
        let again = Self::of(self.monotonic, now);
        let step = match again.wall.duration_since(self.wall) {
            Ok(step) => step,
            Err(back) => back.duration(),
        };
        if step < CLOCK_STEP { self } else { again }
    }
}

/// State of each part, and when it began. Each look at a part notes the state that it finds.
#[derive(Debug, Default)]
pub struct PartTracker {
    parts: Mutex<[Option<(PartState, Moment)>; 5]>,
}

impl PartTracker {
    /// Notes the state of a part. `began`: when the state began, where that is known. Returns the time at which it began,
    /// or at which it was first seen.
    pub fn note(
        &self,
        part: ServerPart,
        state: PartState,
        began: Option<Instant>,
        now: Moment,
    ) -> SystemTime {
        let mut parts = self.lock();
        let [serving, database, endpoints, modules, disk] = &mut *parts;
        let kept = match part {
            ServerPart::Serving => serving,
            ServerPart::Database => database,
            ServerPart::Endpoints => endpoints,
            ServerPart::Modules => modules,
            ServerPart::Disk => disk,
        };
        let since = match *kept {
            Some((before, since)) if before == state => since.corrected(now),
            _ => began.map_or(now, |at| Moment::of(at, now)),
        };
        *kept = Some((state, since));
        since.wall
    }

    fn lock(&self) -> MutexGuard<'_, [Option<(PartState, Moment)>; 5]> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn later(from: Moment, by: Duration) -> Moment {
        Moment {
            monotonic: from.monotonic + by,
            wall: from.wall + by,
        }
    }

    #[test]
    fn a_state_has_the_time_at_which_it_began() {
        let tracker = PartTracker::default();
        let note = |state, now| tracker.note(ServerPart::Disk, state, None, now);
        let begin = Moment::now();
        assert_eq!(note(PartState::Ok, begin), begin.wall);
        assert_eq!(note(PartState::Ok, later(begin, MINUTE)), begin.wall);
        let changed = later(begin, MINUTE * 2);
        assert_eq!(note(PartState::Degraded, changed), changed.wall);
        assert_eq!(
            note(PartState::Degraded, later(changed, MINUTE)),
            changed.wall
        );
        let again = later(changed, MINUTE * 2);
        assert_eq!(note(PartState::Failed, again), again.wall);
    }

    #[test]
    fn parts_have_states_of_their_own() {
        let tracker = PartTracker::default();
        let begin = Moment::now();
        let end = later(begin, MINUTE);
        tracker.note(ServerPart::Serving, PartState::Ok, None, begin);
        assert_eq!(
            tracker.note(ServerPart::Database, PartState::Failed, None, end),
            end.wall
        );
        let serving = tracker.note(ServerPart::Serving, PartState::Ok, None, end);
        assert_eq!(serving, begin.wall);
    }

    #[test]
    fn an_outage_that_was_noticed_before_keeps_its_begin() {
        let tracker = PartTracker::default();
        let begin = Moment::now();
        let now = later(begin, MINUTE);
        let began = Some(begin.monotonic);
        let since = tracker.note(ServerPart::Database, PartState::Failed, began, now);
        assert_eq!(since, begin.wall);
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_the_time_that_is_shown() {
        let tracker = PartTracker::default();
        let note = |now| tracker.note(ServerPart::Modules, PartState::Ok, None, now);
        let begin = Moment::now();
        note(begin);
        let day = Duration::from_hours(24);
        let set = Moment {
            wall: begin.wall + day,
            ..later(begin, MINUTE)
        };
        assert_eq!(note(set), begin.wall + day - MINUTE);
        let back = Moment {
            wall: begin.wall - day,
            ..later(begin, MINUTE)
        };
        assert_eq!(note(back), begin.wall - day - MINUTE);
    }
}
