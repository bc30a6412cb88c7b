//! A fair queue for a bounded number of permits.
//!
//! A first-come queue lets one party with a thousand waiting entries starve all others. So entries wait in lanes,
//! and free permits go round the lanes. Lanes belong to groups, and no group holds more permits than its own limit.
//! The queue is bounded, and shared in the same spirit: a lane may be as long as the room that it leaves free, so
//! that others always find some (the dynamic threshold of Choudhury and Hahne, 1998).

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// What tells lanes and groups apart.
pub trait LaneKey: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> LaneKey for T {}

/// Where an entry waits: behind the others of its lane, and beside those of other lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane<G, M = ()> {
    /// What the limit of concurrent permits counts: a module, an owner.
    pub group: G,
    /// Members of one group that should not starve each other: the tenants that call one module.
    pub member: M,
}

impl<G> Lane<G> {
    /// The lane of a group whose members need not be told apart.
    pub fn of(group: G) -> Self {
        Self { group, member: () }
    }
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The deadline passed in the queue.
    Deadline,
    /// The queue is full, or has no more room for this lane.
    Full,
}

/// A fixed number of permits and the queue for them.
#[derive(Debug)]
pub struct FairQueue<G: LaneKey, M: LaneKey = ()> {
    permits: usize,
    max_waiting: usize,
    state: Mutex<QueueState<G, M>>,
}

#[derive(Debug)]
struct QueueState<G: LaneKey, M: LaneKey> {
    free: usize,
    waiting: usize,
    /// The number of the next waiter.
    number: u64,
    /// Permits that each group holds now.
    held: HashMap<G, usize>,
    lanes: HashMap<Lane<G, M>, VecDeque<Waiter<G, M>>>,
    /// Lanes that are not empty; the next to be served is in front.
    round: VecDeque<Lane<G, M>>,
}

#[derive(Debug)]
struct Waiter<G: LaneKey, M: LaneKey> {
    number: u64,
    /// The group's limit when the waiter came.
    group_limit: usize,
    permit: oneshot::Sender<Permit<G, M>>,
}

enum Admitted<G: LaneKey, M: LaneKey> {
    Now(Permit<G, M>),
    Later(QueueEntry<G, M>),
}

/// An entry in the queue; leaves it when dropped.
struct QueueEntry<G: LaneKey, M: LaneKey> {
    queue: Arc<FairQueue<G, M>>,
    lane: Lane<G, M>,
    number: u64,
    permit: oneshot::Receiver<Permit<G, M>>,
}

/// The right to run; given back when dropped.
#[derive(Debug)]
pub struct Permit<G: LaneKey, M: LaneKey = ()> {
    queue: Arc<FairQueue<G, M>>,
    group: G,
}

impl FairQueue<()> {
    /// A queue of one lane, which serves in the order of arrival and may be `max_waiting` entries long: there are
    /// no others to leave room for.
    pub fn in_order(permits: usize, max_waiting: usize) -> Arc<Self> {
        // A lone lane fills half of a queue.
        Self::new(permits, max_waiting.saturating_mul(2))
    }
}

impl<G: LaneKey, M: LaneKey> FairQueue<G, M> {
    /// A queue of at most `max_waiting` entries for `permits`.
    pub fn new(permits: usize, max_waiting: usize) -> Arc<Self> {
        let state = QueueState {
            free: permits,
            waiting: 0,
            number: 0,
            held: HashMap::new(),
            lanes: HashMap::new(),
            round: VecDeque::new(),
        };
        Arc::new(Self {
            permits,
            max_waiting,
            state: Mutex::new(state),
        })
    }

    /// All permits, held or not.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Permits that are not held.
    pub fn free(&self) -> usize {
        self.lock().free
    }

    /// Entries in the queue.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Waits for a permit until `deadline`. The lane's group holds at most `group_limit` permits at a time.
    ///
    /// # Errors
    /// [`QueueRefusal::Full`] at once if the queue has no room for the lane, [`QueueRefusal::Deadline`] if no permit came
    /// in time.
    pub async fn enter(
        self: &Arc<Self>,
        lane: Lane<G, M>,
        group_limit: usize,
        deadline: Instant,
    ) -> Result<Permit<G, M>, QueueRefusal> {
        match self.ask(lane, group_limit, self.max_waiting)? {
            Admitted::Now(permit) => Ok(permit),
            Admitted::Later(mut waiting) => match timeout_at(deadline, &mut waiting.permit).await {
                Ok(Ok(permit)) => Ok(permit),
                Ok(Err(_)) | Err(_) => Err(QueueRefusal::Deadline),
            },
        }
    }

    /// A permit, if one is free and the lane has no earlier entry.
    pub fn try_enter(
        self: &Arc<Self>,
        lane: Lane<G, M>,
        group_limit: usize,
    ) -> Option<Permit<G, M>> {
        match self.ask(lane, group_limit, 0) {
            Ok(Admitted::Now(permit)) => Some(permit),
            Ok(Admitted::Later(_)) | Err(_) => None,
        }
    }

    /// Waits for a permit behind earlier entries of the lane, for a party that held one and gave it back: it is
    /// never refused because the queue is full. The caller bounds the number of such parties.
    pub async fn enter_again(
        self: &Arc<Self>,
        lane: Lane<G, M>,
        group_limit: usize,
    ) -> Permit<G, M> {
        loop {
            match self.ask(lane.clone(), group_limit, usize::MAX) {
                Ok(Admitted::Now(permit)) => return permit,
                Ok(Admitted::Later(mut waiting)) => {
                    if let Ok(permit) = (&mut waiting.permit).await {
                        return permit;
                    }
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// A permit that was given to a waiter and not taken (the caller left, the deadline passed) comes back when
    /// the channel drops it.
    fn ask(
        self: &Arc<Self>,
        lane: Lane<G, M>,
        group_limit: usize,
        max_waiting: usize,
    ) -> Result<Admitted<G, M>, QueueRefusal> {
        let mut state = self.lock();
        let has_room = state.held_by(&lane.group) < group_limit;
        // An entry that waits for a permit is served before this one; an entry that waits for its own group's
        // limit blocks no other lane.
        if has_room && state.free > 0 && !state.lanes.contains_key(&lane) {
            state.take(&lane.group);
            return Ok(Admitted::Now(self.permit(lane.group)));
        }
        let length = state.lanes.get(&lane).map_or(0, VecDeque::len);
        if length >= max_waiting.saturating_sub(state.waiting) {
            return Err(QueueRefusal::Full);
        }
        let (permit, receiver) = oneshot::channel();
        let number = state.number;
        state.number += 1;
        state.waiting += 1;
        let queue = state.lanes.entry(lane.clone()).or_default();
        queue.push_back(Waiter {
            number,
            group_limit,
            permit,
        });
        if length == 0 {
            state.round.push_back(lane.clone());
        }
        Ok(Admitted::Later(QueueEntry {
            queue: self.clone(),
            lane,
            number,
            permit: receiver,
        }))
    }

    fn permit(self: &Arc<Self>, group: G) -> Permit<G, M> {
        Permit {
            queue: self.clone(),
            group,
        }
    }

    fn leave(self: &Arc<Self>, group: &G) {
        self.changed(|state| {
            state.free += 1;
            if let Some(count) = state.held.get_mut(group) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(group);
                }
            }
        });
    }

    /// Hands out the permits that a change set free.
    fn changed(self: &Arc<Self>, change: impl FnOnce(&mut QueueState<G, M>)) {
        let mut served = Vec::new();
        {
            let mut state = self.lock();
            change(&mut state);
            while let Some((group, waiter)) = state.next() {
                if waiter.permit.is_closed() {
                    continue;
                }
                state.take(&group);
                served.push((group, waiter));
            }
        }
        // Outside the lock: a caller that has just left drops its permit here, which locks again.
        for (group, waiter) in served {
            drop(waiter.permit.send(self.permit(group)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<G, M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G: LaneKey, M: LaneKey> QueueState<G, M> {
    fn held_by(&self, group: &G) -> usize {
        self.held.get(group).copied().unwrap_or(0)
    }

    fn take(&mut self, group: &G) {
        self.free -= 1;
        match self.held.get_mut(group) {
            Some(count) => *count += 1,
            None => {
                self.held.insert(group.clone(), 1);
            }
        }
    }

    /// The next waiter that may run, going round the lanes.
    fn next(&mut self) -> Option<(G, Waiter<G, M>)> {
        if self.free == 0 {
            return None;
        }
        for _ in 0..self.round.len() {
            let lane = self.round.pop_front()?;
            let held = self.held_by(&lane.group);
            let queue = self.lanes.get_mut(&lane)?;
            let may_run = queue
                .front()
                .is_some_and(|waiter| held < waiter.group_limit);
            let waiter = if may_run { queue.pop_front() } else { None };
            let group = lane.group.clone();
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.round.push_back(lane);
            }
            if let Some(waiter) = waiter {
                self.waiting -= 1;
                return Some((group, waiter));
            }
        }
        None
    }

    /// Removes a waiter that left, unless it was served meanwhile.
    fn forget(&mut self, lane: &Lane<G, M>, number: u64) {
        let Some(queue) = self.lanes.get_mut(lane) else {
            return;
        };
        let Some(at) = queue.iter().position(|waiter| waiter.number == number) else {
            return;
        };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            self.lanes.remove(lane);
            self.round.retain(|other| other != lane);
        }
    }
}

impl<G: LaneKey, M: LaneKey> Drop for QueueEntry<G, M> {
    /// A waiter behind this one may have another group limit, and run now.
    fn drop(&mut self) {
        let (lane, number) = (&self.lane, self.number);
        self.queue.changed(|state| state.forget(lane, number));
    }
}

impl<G: LaneKey, M: LaneKey> Drop for Permit<G, M> {
    fn drop(&mut self) {
        self.queue.leave(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn lane(group: u64) -> Lane<u64, u64> {
        Lane { group, member: 0 }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn permits_go_round_the_groups() {
        let queue = FairQueue::new(1, 100);
        let held = queue.enter(lane(0), 9, soon()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for group in [1, 1, 1, 1, 2] {
            let (queue, order) = (queue.clone(), order.clone());
            calls.push(tokio::spawn(async move {
                let permit = queue.enter(lane(group), 9, soon()).await.unwrap();
                order.lock().unwrap().push(group);
                drop(permit);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(queue.waiting(), 5);
        drop(held);
        for call in calls {
            call.await.unwrap();
        }
        // Group 2 came last and does not wait for all of group 1.
        assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1, 1]);
        assert_eq!((queue.free(), queue.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn a_group_at_its_limit_leaves_permits_to_others() {
        let queue = FairQueue::new(4, 100);
        let _one = queue.enter(lane(1), 1, soon()).await.unwrap();
        let early = Instant::now() + Duration::from_millis(20);
        assert_eq!(
            queue.enter(lane(1), 1, early).await.unwrap_err(),
            QueueRefusal::Deadline
        );
        let _other = queue.enter(lane(2), 1, soon()).await.unwrap();
        assert_eq!(queue.free(), 2);
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_leavers_cost_nothing() {
        let queue = FairQueue::new(1, 1);
        let held = queue.enter(lane(1), 9, soon()).await.unwrap();
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter(lane(1), 9, soon()).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(
            queue.enter(lane(2), 9, soon()).await.unwrap_err(),
            QueueRefusal::Full
        );
        waiting.abort();
        assert!(waiting.await.is_err());
        drop(held);
        assert_eq!((queue.free(), queue.waiting()), (1, 0));
        drop(queue.enter(lane(2), 9, soon()).await.unwrap());
    }

    /// Waits in the lane, and leaves as soon as it has a permit.
    async fn waits(
        queue: &Arc<FairQueue<u64, u64>>,
        lane: Lane<u64, u64>,
    ) -> tokio::task::JoinHandle<Result<(), QueueRefusal>> {
        let queue = queue.clone();
        let waiting = tokio::spawn(async move { queue.enter(lane, 1, soon()).await.map(drop) });
        tokio::task::yield_now().await;
        waiting
    }

    #[tokio::test]
    async fn a_waiter_that_left_blocks_no_other() {
        let queue = FairQueue::new(4, 2);
        // The permit is never given back: the group is at its limit.
        let _held = queue.enter(lane(1), 1, soon()).await.unwrap();
        let early = Instant::now() + Duration::from_millis(10);
        let late = queue.enter(lane(1), 1, early).await;
        assert_eq!(late.unwrap_err(), QueueRefusal::Deadline);
        assert_eq!(queue.waiting(), 0);
        let gone = waits(&queue, lane(1)).await;
        assert_eq!(queue.waiting(), 1);
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(queue.waiting(), 0);
        drop(waits(&queue, lane(1)).await);
        assert_eq!(queue.waiting(), 1);
        drop(queue.enter(lane(2), 1, soon()).await.unwrap());
    }

    #[tokio::test]
    async fn a_waiter_behind_one_that_left_is_admitted() {
        let queue = FairQueue::new(2, 9);
        let _held = queue.enter(lane(1), 1, soon()).await.unwrap();
        let first = waits(&queue, lane(1)).await;
        let wider = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter(lane(1), 2, soon()).await }
        });
        tokio::task::yield_now().await;
        first.abort();
        assert!(wider.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn no_lane_fills_the_queue() {
        let queue = FairQueue::new(1, 8);
        let held = queue.enter(lane(0), 9, soon()).await.unwrap();
        let mut waiting = Vec::new();
        for (number, room) in [(1, 4), (2, 2), (3, 1)] {
            for _ in 0..room {
                waiting.push(waits(&queue, lane(number)).await);
            }
            let refused = queue.enter(lane(number), 9, soon()).await;
            assert_eq!(refused.unwrap_err(), QueueRefusal::Full, "lane {number}");
        }
        assert_eq!(queue.waiting(), 7);
        waiting.push(waits(&queue, lane(4)).await);
        assert_eq!(queue.waiting(), 8);
        drop(held);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        assert_eq!((queue.free(), queue.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn a_queue_of_one_lane_is_filled_whole() {
        let lane = || Lane::of(());
        for room in [0, 1, 3] {
            let queue = FairQueue::in_order(1, room);
            let held = queue.enter(lane(), 9, soon()).await.unwrap();
            let mut waiting = Vec::new();
            for _ in 0..room {
                let queue = queue.clone();
                waiting.push(tokio::spawn(async move {
                    queue.enter(lane(), 9, soon()).await.map(drop)
                }));
                tokio::task::yield_now().await;
            }
            let refused = queue.enter(lane(), 9, soon()).await;
            assert_eq!(refused.unwrap_err(), QueueRefusal::Full, "room for {room}");
            drop(held);
            for waiting in waiting {
                waiting.await.unwrap().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_returning_party_enters_in_turn_and_past_a_full_queue() {
        let queue = FairQueue::new(1, 1);
        let held = queue.enter(lane(1), 9, soon()).await.unwrap();
        let newcomer = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter(lane(1), 9, soon()).await }
        });
        tokio::task::yield_now().await;
        let again = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter_again(lane(1), 9).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(queue.waiting(), 2);
        drop(held);
        let first = newcomer.await.unwrap().unwrap();
        tokio::task::yield_now().await;
        assert!(!again.is_finished(), "the earlier entry goes first");
        drop(first);
        drop(again.await.unwrap());
        assert_eq!((queue.free(), queue.waiting()), (1, 0));
    }
}
