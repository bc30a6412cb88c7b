//! A circuit breaker: an endpoint that keeps failing is left alone for a while, and then tried once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::later;

/// When an endpoint counts as failing, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// The circuit opens when so many of the last twice as many calls failed within `window`: half of
    /// them, so that one in a hundred never opens it however many calls there are. 0: never.
    pub failures: u32,
    pub window: Duration,
    /// How long the circuit stays open before one call tries the endpoint.
    pub rest: Duration,
}

/// Maximum number of calls that find no connection before the circuit opens, also where the policy allows more failures:
/// a refused connection is certain. More than two, because a server that restarts refuses calls for a moment.
const UNREACHED_CALLS: u32 = 3;

impl Default for BreakerPolicy {
    /// Five, because a restart of a server spoils the calls that were in flight and is no reason to leave
    /// it alone; ten seconds, because it loads a model for longer than that.
    fn default() -> Self {
        Self {
            failures: 5,
            window: Duration::from_secs(30),
            rest: Duration::from_secs(10),
        }
    }
}

#[derive(Debug)]
pub(super) struct Breaker {
    policy: BreakerPolicy,
    state: Mutex<BreakerState>,
}

#[derive(Debug)]
enum BreakerState {
    /// The last calls: when they ended, and how.
    Closed(VecDeque<(Instant, AttemptOutcome)>),
    Open {
        until: Instant,
        is_unreached: bool,
    },
    /// One call tries the endpoint.
    HalfOpen {
        is_unreached: bool,
    },
}

/// Why no call is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenCircuit {
    /// How long the endpoint is still left alone; zero while a call tries it.
    pub wait: Duration,
    /// The last call found no connection.
    pub is_unreached: bool,
}

/// How a call ended, as far as the endpoint's health is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Healthy,
    Failed,
    /// No connection could be opened.
    Unreached,
    /// The endpoint works, and refused this request.
    Refused,
}

/// Whether requests pass a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    Closed,
    /// No request passes for so long; zero: the next request tries the endpoint.
    Open(Duration),
    /// A request tries the endpoint.
    Tried,
}

/// The change of the circuit that an outcome caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerChange {
    Opened { failures: u32, rest: Duration },
    Closed,
}

/// The right to make one call. Dropped without an outcome, the call never happened.
#[derive(Debug)]
pub(super) struct BreakerPermit<'a> {
    breaker: &'a Breaker,
    pub is_trial: bool,
}

impl Breaker {
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            state: Mutex::new(BreakerState::Closed(VecDeque::new())),
        }
    }

    /// Lets a call through.
    ///
    /// # Errors
    /// The endpoint is left alone.
    pub fn pass(&self) -> Result<BreakerPermit<'_>, OpenCircuit> {
        let mut state = self.lock();
        state.check()?;
        let mut is_trial = false;
        if let BreakerState::Open { is_unreached, .. } = *state {
            *state = BreakerState::HalfOpen { is_unreached };
            is_trial = true;
        }
        Ok(BreakerPermit {
            breaker: self,
            is_trial,
        })
    }

    /// Whether a call would be let through.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub fn check(&self) -> Result<(), OpenCircuit> {
        self.lock().check()
    }

    /// Whether requests pass.
    pub fn circuit(&self) -> Circuit {
        match &*self.lock() {
            BreakerState::Closed(_) => Circuit::Closed,
            BreakerState::HalfOpen { .. } => Circuit::Tried,
            BreakerState::Open { until, .. } => {
                Circuit::Open(until.saturating_duration_since(Instant::now()))
            }
        }
    }

    /// Closes the circuit. Returns whether it was open.
    pub fn close(&self) -> bool {
        let mut state = self.lock();
        let was_closed = matches!(*state, BreakerState::Closed(_));
        *state = BreakerState::Closed(VecDeque::new());
        !was_closed
    }

    /// `last`: how the call ended that opens the circuit.
    fn opened(&self, failures: u32, last: AttemptOutcome) -> (BreakerState, BreakerChange) {
        let rest = self.policy.rest;
        let open = BreakerState::Open {
            until: later(rest),
            is_unreached: last == AttemptOutcome::Unreached,
        };
        (open, BreakerChange::Opened { failures, rest })
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerState {
    fn check(&self) -> Result<(), OpenCircuit> {
        let (wait, is_unreached) = match *self {
            Self::Closed(_) => return Ok(()),
            Self::HalfOpen { is_unreached } => (Duration::ZERO, is_unreached),
            Self::Open {
                until,
                is_unreached,
            } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => (left, is_unreached),
            },
        };
        Err(OpenCircuit { wait, is_unreached })
    }
}

impl BreakerPermit<'_> {
    /// The endpoint answers the call, whose end may be minutes away. A trial closes the circuit with that; then the call
    /// counts as every other.
    pub fn is_served(&mut self) -> Option<BreakerChange> {
        if !self.is_trial {
            return None;
        }
        self.is_trial = false;
        *self.breaker.lock() = BreakerState::Closed(VecDeque::new());
        Some(BreakerChange::Closed)
    }

    pub fn report(mut self, outcome: AttemptOutcome) -> Option<BreakerChange> {
        let breaker = self.breaker;
        let mut state = breaker.lock();
        if self.is_trial {
            self.is_trial = false;
            let (next, change) = match outcome {
                AttemptOutcome::Failed | AttemptOutcome::Unreached => breaker.opened(1, outcome),
                AttemptOutcome::Healthy | AttemptOutcome::Refused => {
                    (BreakerState::Closed(VecDeque::new()), BreakerChange::Closed)
                }
            };
            *state = next;
            return Some(change);
        }
        // A call that began before the circuit opened says nothing about how the endpoint is now.
        let BreakerState::Closed(recent) = &mut *state else {
            return None;
        };
        if outcome == AttemptOutcome::Refused || breaker.policy.failures == 0 {
            return None;
        }
        let now = Instant::now();
        recent.push_back((now, outcome));
        let kept = breaker.policy.failures.saturating_mul(2) as usize;
        while recent.len() > kept
            || recent
                .front()
                .is_some_and(|(at, _)| now.duration_since(*at) > breaker.policy.window)
        {
            recent.pop_front();
        }
        let count = |is: &dyn Fn(AttemptOutcome) -> bool| {
            recent.iter().filter(|(_, outcome)| is(*outcome)).count() as u32
        };
        let unreached = count(&|outcome| outcome == AttemptOutcome::Unreached);
        let failures =
            count(&|outcome| outcome == AttemptOutcome::Failed).saturating_add(unreached);
        if failures < breaker.policy.failures && unreached < UNREACHED_CALLS {
            return None;
        }
        let (next, change) = breaker.opened(failures, outcome);
        *state = next;
        Some(change)
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        // The trial was cancelled: the next call is one.
        if self.is_trial {
            let mut state = self.breaker.lock();
            // Unless somebody closed the circuit meanwhile.
            if let BreakerState::HalfOpen { is_unreached } = *state {
                *state = BreakerState::Open {
                    until: Instant::now(),
                    is_unreached,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::AttemptOutcome::{Failed, Healthy, Refused, Unreached};
    use super::*;

    const REST: Duration = Duration::from_secs(10);

    fn breaker() -> Breaker {
        Breaker::new(BreakerPolicy {
            failures: 3,
            window: Duration::from_secs(30),
            rest: REST,
        })
    }

    fn calls(breaker: &Breaker, outcomes: &[AttemptOutcome]) -> Option<BreakerChange> {
        let report = |outcome| breaker.pass().unwrap().report(outcome);
        outcomes.iter().copied().filter_map(report).last()
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_when_half_of_the_last_calls_failed() {
        for (outcomes, opens) in [
            (vec![Failed; 3], true),
            (vec![Failed; 2], false),
            (vec![Failed, Healthy, Failed, Healthy, Failed], true),
            // Never three of six.
            ([Failed, Healthy, Healthy].repeat(20), false),
            (vec![Refused; 50], false),
            (vec![Failed, Refused, Failed, Refused, Failed], true),
            (vec![Unreached, Failed, Unreached], true),
            (vec![Unreached; 2], false),
        ] {
            let breaker = breaker();
            let mut changes = Vec::new();
            for outcome in &outcomes {
                let Ok(passage) = breaker.pass() else { break };
                changes.extend(passage.report(*outcome));
            }
            assert_eq!(!changes.is_empty(), opens, "{outcomes:?}");
            assert_eq!(breaker.pass().is_err(), opens);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_failures_are_forgotten() {
        let breaker = breaker();
        calls(&breaker, &[Failed, Failed]);
        advance(Duration::from_secs(31)).await;
        assert_eq!(calls(&breaker, &[Failed, Failed]), None);
        assert!(calls(&breaker, &[Failed]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_tries_the_endpoint_and_decides() {
        let breaker = breaker();
        let opened = BreakerChange::Opened {
            failures: 3,
            rest: REST,
        };
        assert_eq!(calls(&breaker, &[Failed; 3]), Some(opened));
        advance(Duration::from_secs(4)).await;
        assert_eq!(breaker.pass().unwrap_err().wait, Duration::from_secs(6));
        advance(Duration::from_secs(6)).await;
        let trial = breaker.pass().unwrap();
        assert!(trial.is_trial);
        assert_eq!(breaker.pass().unwrap_err().wait, Duration::ZERO);
        let again = BreakerChange::Opened {
            failures: 1,
            rest: REST,
        };
        assert_eq!(trial.report(Failed), Some(again));
        assert_eq!(breaker.pass().unwrap_err().wait, REST);
        advance(REST).await;
        assert_eq!(
            breaker.pass().unwrap().report(Healthy),
            Some(BreakerChange::Closed)
        );
        assert!(!breaker.pass().unwrap().is_trial);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_a_connection_open_it_whatever_the_policy() {
        let patient = Breaker::new(BreakerPolicy {
            failures: 100,
            ..BreakerPolicy::default()
        });
        assert_eq!(calls(&patient, &[Failed, Unreached, Unreached]), None);
        assert!(calls(&patient, &[Unreached]).is_some());
        assert!(patient.check().unwrap_err().is_unreached);
        advance(REST).await;
        let trial = patient.pass().unwrap();
        let tried = OpenCircuit {
            wait: Duration::ZERO,
            is_unreached: true,
        };
        assert_eq!(patient.check().unwrap_err(), tried);
        // It listens again, and fails.
        trial.report(Failed).unwrap();
        assert!(!patient.check().unwrap_err().is_unreached);
        let never = Breaker::new(BreakerPolicy {
            failures: 0,
            ..BreakerPolicy::default()
        });
        assert_eq!(calls(&never, &[Unreached; 20]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_is_healthy_when_its_answer_begins() {
        let breaker = breaker();
        calls(&breaker, &[Failed; 3]);
        advance(REST).await;
        let mut trial = breaker.pass().unwrap();
        assert_eq!(trial.is_served(), Some(BreakerChange::Closed));
        assert_eq!(trial.is_served(), None, "once");
        assert!(!breaker.pass().unwrap().is_trial, "others pass");
        // It breaks off later, as any call may.
        assert_eq!(trial.report(Failed), None);
        assert!(breaker.check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_was_cancelled_leaves_the_next_call_to_try() {
        let breaker = breaker();
        calls(&breaker, &[Failed; 3]);
        advance(REST).await;
        drop(breaker.pass().unwrap());
        assert!(breaker.pass().unwrap().is_trial);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_begun_before_the_breaker_opened_change_nothing() {
        let breaker = breaker();
        let early = breaker.pass().unwrap();
        calls(&breaker, &[Failed; 3]);
        assert_eq!(early.report(Healthy), None);
        assert!(breaker.pass().is_err());
    }
}
