//! The limits of one endpoint, shared by all runs of the process: concurrent requests, requests and tokens
//! per minute, and a bounded queue in which the owners of runs take turns.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolhold_admission::{
    FairQueue, Lane, LaneKey, Permit, QueueRefusal, SlidingWindow, WindowCharge,
};

use super::later;

/// The limits of an endpoint. 0 means no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointLimits {
    pub concurrent_requests: usize,
    pub requests_per_minute: u64,
    /// Tokens of prompts and answers; an estimate counts until the endpoint reports the number.
    pub tokens_per_minute: u64,
    /// Requests that may wait, one owner's up to half of them; more are refused at once.
    pub waiting_requests: usize,
    /// How long a request may wait.
    pub queue_timeout: Duration,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            concurrent_requests: 0,
            requests_per_minute: 0,
            tokens_per_minute: 0,
            waiting_requests: 1_024,
            queue_timeout: Duration::from_mins(2),
        }
    }
}

#[derive(Debug)]
pub(super) struct Admission {
    limits: EndpointLimits,
    /// One permit, for the request that is next: it waits for a place and for its share of the minute, and
    /// all others wait behind it. So many small requests do not keep a large one waiting, and a request that
    /// leaves while it waits has taken nothing. The turn goes round among the owners of requests that wait: one with
    /// a thousand of them is one before the first of any other.
    turn: Arc<FairQueue<Arc<str>>>,
    /// In the order of turns: whoever has the turn takes the next free place, or it would hold up the others.
    places: Arc<FairQueue<()>>,
    requests: SlidingWindow,
    tokens: SlidingWindow,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    Queue { waiting: usize },
    Timeout { wait: Option<Duration> },
}

/// The right to send one request, until dropped.
#[derive(Debug)]
pub(super) struct AdmissionPermit {
    _permit: Permit<()>,
    tokens: Option<WindowCharge>,
}

/// The only limit is the queue's.
const NO_LIMIT: usize = usize::MAX;

impl Admission {
    pub fn new(limits: EndpointLimits) -> Self {
        let places = match limits.concurrent_requests {
            0 => usize::MAX,
            places => places,
        };
        Self {
            // The request whose turn it is waits as well.
            turn: FairQueue::new(1, limits.waiting_requests.saturating_sub(1)),
            places: FairQueue::in_order(places, 1),
            requests: SlidingWindow::per_minute(limits.requests_per_minute),
            tokens: SlidingWindow::per_minute(limits.tokens_per_minute),
            limits,
        }
    }

    /// A place, if there is one right now and no request waits for it.
    pub fn try_enter(&self, owner: &Arc<str>, tokens: u64) -> Option<AdmissionPermit> {
        let _turn = self.turn.try_enter(Lane::of(owner.clone()), NO_LIMIT)?;
        let permit = self.places.try_enter(Lane::of(()), NO_LIMIT)?;
        let tokens = self.take(tokens).ok()?;
        Some(AdmissionPermit {
            _permit: permit,
            tokens,
        })
    }

    /// Waits for a permit: first come, first served among the requests of an owner, whose turn comes as often as that
    /// of any other.
    pub async fn enter(
        &self,
        owner: &Arc<str>,
        tokens: u64,
    ) -> Result<AdmissionPermit, NotAdmitted> {
        if let Some(place) = self.try_enter(owner, tokens) {
            return Ok(place);
        }
        if self.limits.waiting_requests == 0 {
            return Err(NotAdmitted::Queue { waiting: 0 });
        }
        let deadline = later(self.limits.queue_timeout);
        let _turn = self.wait(&self.turn, owner.clone(), deadline).await?;
        let permit = self.wait(&self.places, (), deadline).await?;
        loop {
            match self.take(tokens) {
                Ok(tokens) => {
                    return Ok(AdmissionPermit {
                        _permit: permit,
                        tokens,
                    });
                }
                // The window cannot have room before the deadline.
                Err(wait) if Instant::now() + wait > deadline => {
                    return Err(NotAdmitted::Timeout { wait: Some(wait) });
                }
                Err(wait) => sleep(wait).await,
            }
        }
    }

    async fn wait<G: LaneKey>(
        &self,
        queue: &Arc<FairQueue<G>>,
        owner: G,
        deadline: Instant,
    ) -> Result<Permit<G>, NotAdmitted> {
        let entered = queue.enter(Lane::of(owner), NO_LIMIT, deadline).await;
        entered.map_err(|refusal| match refusal {
            QueueRefusal::Full => NotAdmitted::Queue {
                waiting: self.limits.waiting_requests,
            },
            QueueRefusal::Deadline | QueueRefusal::GroupLimit => {
                NotAdmitted::Timeout { wait: None }
            }
        })
    }

    /// Takes of both, or of none. The caller has the turn.
    fn take(&self, tokens: u64) -> Result<Option<WindowCharge>, Duration> {
        let taken = self.tokens.take(tokens)?;
        match self.requests.take(1) {
            Ok(_) => Ok(taken),
            Err(wait) => {
                if let Some(taken) = taken {
                    self.tokens.settle(&taken, 0);
                }
                Err(wait)
            }
        }
    }

    /// Requests that wait, the one whose turn it is included.
    pub fn waiting(&self) -> usize {
        self.turn.waiting() + self.places.waiting()
    }

    /// The request had this many tokens.
    pub fn settle(&self, place: &AdmissionPermit, tokens: u64) {
        if let Some(taken) = &place.tokens {
            self.tokens.settle(taken, tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn admission(change: impl FnOnce(&mut EndpointLimits)) -> Arc<Admission> {
        let mut limits = EndpointLimits::default();
        change(&mut limits);
        Arc::new(Admission::new(limits))
    }

    fn one() -> Arc<str> {
        "one".into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_with_many_requests_is_one_before_the_next() {
        let admission = admission(|limits| limits.concurrent_requests = 1);
        let held = admission.enter(&one(), 0).await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let wait = |owner: &'static str| {
            let (admission, served) = (admission.clone(), served.clone());
            tokio::spawn(async move {
                let entered = admission.enter(&owner.into(), 0).await;
                if entered.is_ok() {
                    served.lock().unwrap().push(owner);
                }
            })
        };
        let many: Vec<_> = (0..600).map(|_| wait("one")).collect();
        sleep(Duration::from_millis(1)).await;
        let refused = many.iter().filter(|it| it.is_finished()).count();
        assert_eq!(refused, 600 - 513, "half of the queue is left to others");
        let other = wait("other");
        sleep(Duration::from_millis(1)).await;
        drop(held);
        other.await.unwrap();
        for one in many {
            one.await.unwrap();
        }
        // One had the turn already.
        let served = served.lock().unwrap();
        let before = served.iter().position(|it| *it == "other");
        assert!(before.is_some_and(|before| before <= 2), "{before:?}");
        assert_eq!(served.len(), 514);
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_handed_on_in_order_and_the_queue_is_bounded() {
        let admission = admission(|limits| {
            limits.concurrent_requests = 1;
            limits.waiting_requests = 2;
        });
        let held = admission.enter(&one(), 0).await.unwrap();
        assert!(admission.try_enter(&one(), 0).is_none());
        let queue = |admission: &Arc<Admission>| {
            let admission = admission.clone();
            tokio::spawn(async move { admission.enter(&one(), 0).await })
        };
        let (first, second) = (queue(&admission), queue(&admission));
        tokio::task::yield_now().await;
        let refused = admission.enter(&one(), 0).await.unwrap_err();
        assert_eq!(refused, NotAdmitted::Queue { waiting: 2 });
        drop(held);
        let first = first.await.unwrap().unwrap();
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_too_long_is_refused() {
        let admission = admission(|limits| {
            limits.concurrent_requests = 1;
            limits.queue_timeout = Duration::from_secs(3);
        });
        let _held = admission.enter(&one(), 0).await.unwrap();
        let started = Instant::now();
        let refused = admission.enter(&one(), 0).await.unwrap_err();
        assert_eq!(refused, NotAdmitted::Timeout { wait: None });
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_minutes_requests_are_spread_over_minutes() {
        let admission = admission(|limits| limits.requests_per_minute = 2);
        let started = Instant::now();
        let mut at = Vec::new();
        for _ in 0..5 {
            drop(admission.enter(&one(), 0).await.unwrap());
            at.push(started.elapsed().as_secs());
        }
        assert_eq!(at, [0, 0, 60, 60, 120]);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_longer_than_the_deadline_is_refused_at_once() {
        let admission = admission(|limits| {
            limits.tokens_per_minute = 100;
            limits.queue_timeout = Duration::from_secs(30);
        });
        let place = admission.enter(&one(), 90).await.unwrap();
        let started = Instant::now();
        let refused = admission.enter(&one(), 20).await.unwrap_err();
        assert_eq!(
            refused,
            NotAdmitted::Timeout {
                wait: Some(Duration::from_mins(1))
            }
        );
        assert_eq!(started.elapsed(), Duration::ZERO);
        // The answer was shorter than it might have been.
        admission.settle(&place, 30);
        admission.enter(&one(), 20).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_the_queue_has_taken_nothing() {
        let admission = admission(|limits| {
            limits.concurrent_requests = 1;
            limits.requests_per_minute = 2;
        });
        let held = admission.enter(&one(), 0).await.unwrap();
        for _ in 0..10 {
            let leaves =
                tokio::time::timeout(Duration::from_secs(1), admission.enter(&one(), 0)).await;
            assert!(leaves.is_err());
        }
        assert_eq!((admission.turn.waiting(), admission.turn.free()), (0, 1));
        assert_eq!(admission.places.waiting(), 0);
        drop(held);
        assert!(admission.try_enter(&one(), 0).is_some());
    }
}
