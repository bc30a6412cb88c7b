//! Places for running calls, handed out fairly.
//!
//! The engine's pool has a fixed number of places, and an exhausted pool is an error, so every call
//! takes a place here first. A first-come queue would let one module with a thousand waiting calls
//! starve all others; so waiting calls stand in lanes, one for each module and tenant, and free places
//! go round the lanes. No module holds more places than its own limit. The queue is bounded, and shared in the
//! same spirit: a lane may be as long as what it leaves free of it, so that there is always room for somebody
//! else (the dynamic threshold of Choudhury and Hahne, 1998).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// Who asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane {
    pub module: u64,
    /// Callers of one module that should not starve each other: a tenant, as a hash.
    pub caller: u64,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The deadline passed in the queue.
    Deadline,
    /// The queue is full, or has no more room for this lane.
    Full,
}

/// The places of an engine and the queue before them.
#[derive(Debug)]
pub struct Admission {
    places: usize,
    most_waiting: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: usize,
    waiting: usize,
    /// Of the next to wait.
    number: u64,
    /// Calls of each module that run now.
    running: HashMap<u64, usize>,
    lanes: HashMap<Lane, VecDeque<Waiter>>,
    /// Lanes with somebody in them; the next to be served is in front.
    round: VecDeque<Lane>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// The module's own limit as the call knew it.
    most: usize,
    place: oneshot::Sender<Place>,
}

enum Asked {
    Given(Place),
    Waits(Waiting),
}

/// Somebody in the queue, who is out of it when this is dropped.
struct Waiting {
    admission: Arc<Admission>,
    lane: Lane,
    number: u64,
    place: oneshot::Receiver<Place>,
}

/// The right to run one call; given back when dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    module: u64,
}

impl Admission {
    pub fn new(places: usize, most_waiting: usize) -> Arc<Self> {
        let state = State {
            free: places,
            ..State::default()
        };
        Arc::new(Self {
            places,
            most_waiting,
            state: Mutex::new(state),
        })
    }

    /// All places, taken or not.
    pub fn places(&self) -> usize {
        self.places
    }

    pub fn free(&self) -> usize {
        self.lock().free
    }

    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Waits for a place until `deadline`. At most `most` calls of the lane's module run at a time.
    pub async fn enter(
        self: &Arc<Self>,
        lane: Lane,
        most: usize,
        deadline: Instant,
    ) -> Result<Place, Refusal> {
        match self.ask(lane, most, self.most_waiting)? {
            Asked::Given(place) => Ok(place),
            Asked::Waits(mut waiting) => {
                match timeout_at(deadline.into(), &mut waiting.place).await {
                    Ok(Ok(place)) => Ok(place),
                    Ok(Err(_)) | Err(_) => Err(Refusal::Deadline),
                }
            }
        }
    }

    /// Waits for a place, behind whoever waits in the lane already, for whoever had one and gave it back: one
    /// who was let in is not refused because the queue is full. Whoever calls this bounds how many do.
    pub async fn enter_again(self: &Arc<Self>, lane: Lane, most: usize) -> Place {
        loop {
            match self.ask(lane, most, usize::MAX) {
                Ok(Asked::Given(place)) => return place,
                Ok(Asked::Waits(mut waiting)) => {
                    if let Ok(place) = (&mut waiting.place).await {
                        return place;
                    }
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// A place that is given to somebody who waits but not taken (the caller left, the deadline passed) comes
    /// back when the channel drops it.
    fn ask(
        self: &Arc<Self>,
        lane: Lane,
        most: usize,
        most_waiting: usize,
    ) -> Result<Asked, Refusal> {
        let mut state = self.lock();
        let has_room = state.running.get(&lane.module).copied().unwrap_or(0) < most;
        // Whoever waits for a place goes first; whoever waits for its own module's limit does
        // not stand in anybody's way.
        if has_room && state.free > 0 && !state.lanes.contains_key(&lane) {
            state.take(lane.module);
            return Ok(Asked::Given(self.place(lane.module)));
        }
        let length = state.lanes.get(&lane).map_or(0, VecDeque::len);
        if length >= most_waiting.saturating_sub(state.waiting) {
            return Err(Refusal::Full);
        }
        let (place, receiver) = oneshot::channel();
        let number = state.number;
        state.number += 1;
        state.waiting += 1;
        let queue = state.lanes.entry(lane).or_default();
        queue.push_back(Waiter {
            number,
            most,
            place,
        });
        if length == 0 {
            state.round.push_back(lane);
        }
        Ok(Asked::Waits(Waiting {
            admission: self.clone(),
            lane,
            number,
            place: receiver,
        }))
    }

    fn place(self: &Arc<Self>, module: u64) -> Place {
        Place {
            admission: self.clone(),
            module,
        }
    }

    fn leave(self: &Arc<Self>, module: u64) {
        self.changed(|state| {
            state.free += 1;
            if let Some(count) = state.running.get_mut(&module) {
                *count -= 1;
                if *count == 0 {
                    state.running.remove(&module);
                }
            }
        });
    }

    /// Hands out what places there are after a change.
    fn changed(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut served = Vec::new();
        {
            let mut state = self.lock();
            change(&mut state);
            while let Some((module, waiter)) = state.next() {
                if waiter.place.is_closed() {
                    continue;
                }
                state.take(module);
                served.push((module, waiter));
            }
        }
        // Outside the lock: a caller that has just left drops its place here, which locks again.
        for (module, waiter) in served {
            drop(waiter.place.send(self.place(module)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, module: u64) {
        self.free -= 1;
        *self.running.entry(module).or_default() += 1;
    }

    /// The next waiter that may run, going round the lanes.
    fn next(&mut self) -> Option<(u64, Waiter)> {
        if self.free == 0 {
            return None;
        }
        for _ in 0..self.round.len() {
            let lane = self.round.pop_front()?;
            let running = self.running.get(&lane.module).copied().unwrap_or(0);
            let queue = self.lanes.get_mut(&lane)?;
            let may_run = queue.front().is_some_and(|waiter| running < waiter.most);
            let waiter = if may_run { queue.pop_front() } else { None };
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.round.push_back(lane);
            }
            if let Some(waiter) = waiter {
                self.waiting -= 1;
                return Some((lane.module, waiter));
            }
        }
        None
    }

    /// Takes out who waits no longer, if that one was not served meanwhile.
    fn forget(&mut self, lane: Lane, number: u64) {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        let Some(at) = queue.iter().position(|waiter| waiter.number == number) else {
            return;
        };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            self.lanes.remove(&lane);
            self.round.retain(|other| *other != lane);
        }
    }
}

impl Drop for Waiting {
    /// Whoever stood behind may be let in now, whose own limit is another.
    fn drop(&mut self) {
        let (lane, number) = (self.lane, self.number);
        self.admission.changed(|state| state.forget(lane, number));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.leave(self.module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn lane(module: u64) -> Lane {
        Lane { module, caller: 0 }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn places_go_round_the_modules() {
        let admission = Admission::new(1, 100);
        let held = admission.enter(lane(0), 9, soon()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for module in [1, 1, 1, 1, 2] {
            let (admission, order) = (admission.clone(), order.clone());
            calls.push(tokio::spawn(async move {
                let place = admission.enter(lane(module), 9, soon()).await.unwrap();
                order.lock().unwrap().push(module);
                drop(place);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(admission.waiting(), 5);
        drop(held);
        for call in calls {
            call.await.unwrap();
        }
        // Module 2 came last and does not wait for all of module 1.
        assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1, 1]);
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn a_module_at_its_limit_leaves_places_to_others() {
        let admission = Admission::new(4, 100);
        let _one = admission.enter(lane(1), 1, soon()).await.unwrap();
        let early = Instant::now() + Duration::from_millis(20);
        assert_eq!(
            admission.enter(lane(1), 1, early).await.unwrap_err(),
            Refusal::Deadline
        );
        let _other = admission.enter(lane(2), 1, soon()).await.unwrap();
        assert_eq!(admission.free(), 2);
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_leavers_cost_nothing() {
        let admission = Admission::new(1, 1);
        let held = admission.enter(lane(1), 9, soon()).await.unwrap();
        let waiting = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(lane(1), 9, soon()).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(
            admission.enter(lane(2), 9, soon()).await.unwrap_err(),
            Refusal::Full
        );
        waiting.abort();
        assert!(waiting.await.is_err());
        drop(held);
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
        drop(admission.enter(lane(2), 9, soon()).await.unwrap());
    }

    /// Waits in the lane, and leaves as soon as it has a place.
    async fn waits(
        admission: &Arc<Admission>,
        lane: Lane,
    ) -> tokio::task::JoinHandle<Result<(), Refusal>> {
        let admission = admission.clone();
        let waiting = tokio::spawn(async move { admission.enter(lane, 1, soon()).await.map(drop) });
        tokio::task::yield_now().await;
        waiting
    }

    #[tokio::test]
    async fn who_waits_no_longer_is_in_nobodys_way() {
        let admission = Admission::new(4, 2);
        // Nobody leaves: its module is at its limit.
        let _held = admission.enter(lane(1), 1, soon()).await.unwrap();
        let early = Instant::now() + Duration::from_millis(10);
        let late = admission.enter(lane(1), 1, early).await;
        assert_eq!(late.unwrap_err(), Refusal::Deadline);
        assert_eq!(admission.waiting(), 0);
        let gone = waits(&admission, lane(1)).await;
        assert_eq!(admission.waiting(), 1);
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(admission.waiting(), 0);
        drop(waits(&admission, lane(1)).await);
        assert_eq!(admission.waiting(), 1);
        drop(admission.enter(lane(2), 1, soon()).await.unwrap());
    }

    #[tokio::test]
    async fn who_stood_behind_one_that_left_is_let_in() {
        let admission = Admission::new(2, 9);
        let _held = admission.enter(lane(1), 1, soon()).await.unwrap();
        let first = waits(&admission, lane(1)).await;
        let wider = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(lane(1), 2, soon()).await }
        });
        tokio::task::yield_now().await;
        first.abort();
        assert!(wider.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn no_lane_fills_the_queue() {
        let admission = Admission::new(1, 8);
        let held = admission.enter(lane(0), 9, soon()).await.unwrap();
        let mut waiting = Vec::new();
        for (number, room) in [(1, 4), (2, 2), (3, 1)] {
            for _ in 0..room {
                waiting.push(waits(&admission, lane(number)).await);
            }
            let refused = admission.enter(lane(number), 9, soon()).await;
            assert_eq!(refused.unwrap_err(), Refusal::Full, "lane {number}");
        }
        assert_eq!(admission.waiting(), 7);
        waiting.push(waits(&admission, lane(4)).await);
        assert_eq!(admission.waiting(), 8);
        drop(held);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn whoever_was_in_comes_back_in_turn_and_past_a_full_queue() {
        let admission = Admission::new(1, 1);
        let held = admission.enter(lane(1), 9, soon()).await.unwrap();
        let newcomer = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(lane(1), 9, soon()).await }
        });
        tokio::task::yield_now().await;
        let again = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter_again(lane(1), 9).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(admission.waiting(), 2);
        drop(held);
        let first = newcomer.await.unwrap().unwrap();
        tokio::task::yield_now().await;
        assert!(!again.is_finished(), "whoever came before goes first");
        drop(first);
        drop(again.await.unwrap());
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
    }
}
