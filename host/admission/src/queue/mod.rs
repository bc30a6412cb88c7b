//! A fair queue for a bounded number of permits.
//!
//! A first-come queue lets one party with a thousand waiting entries starve all others, and permits that are held for
//! long are lost to others however they are queued. So entries wait in lanes, the parties that lanes belong to are
//! counted, and `state` decides by these counts who gets a permit and who may wait.

#[cfg(test)]
mod depth_tests;
#[cfg(test)]
mod properties;
mod state;
#[cfg(test)]
mod tests;

pub use state::MOST_DEPTHS;
use state::{Depths, PermitPlaces, QueueState, Served, Shares, Waiter};
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
    /// Members that should not starve each other, in one group and over all groups: the tenants that call modules.
    pub member: M,
    /// The number of holders of permits that wait, one for the other, for this entry: 0 if none does.
    pub depth: u8,
}

impl<G> Lane<G> {
    /// The lane of a group whose members need not be told apart.
    pub fn of(group: G) -> Self {
        Self {
            group,
            member: (),
            depth: 0,
        }
    }
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The deadline passed in the queue.
    Deadline,
    /// The deadline passed while the lane's group held as many permits as it may, or as it may for the lane's member.
    GroupLimit,
    /// The queue is full, or has no more room for this lane's group or member.
    Full,
}

/// A fixed number of permits and the queue for them.
///
/// - **Shares.** A free permit goes to the waiting lane whose member holds fewest permits; of equal ones, to the lane
///   whose group holds fewest; then to the one that was served longest ago. This is max-min fairness, as far as permits
///   cannot be taken back: when others wait, none gets a permit that a poorer one could use.
/// - **Bound.** Every fourth permit goes to the lane that was served longest ago, of those that may take it. So the
///   first entry of a lane that may take a permit gets one after at most four permits for each lane before it.
/// - **Floor.** The last eighth of the permits is only for groups that hold none. Where members are told apart, half of
///   it is only for members that hold none, and half of that for a member and a group that both do; of a group's own
///   limit, the last eighth is only for members that hold none. A lone party uses all others. A queue, or a limit, of
///   fewer than 16 permits keeps none back.
/// - **Room.** A group may have as many waiting entries as it leaves free for others (the dynamic threshold of
///   Choudhury and Hahne, 1998); so may a member, where members are told apart.
/// - **Depth.** Where holders of permits wait for further entries, each depth has some permits of its own, for its entries
///   that find no other ([`with_depths`](Self::with_depths)). The deepest wait for nothing and end, so all go on. A
///   group's limit has the same: beside the permits that it counts, a sixteenth of it (at least one) for each depth.
///   Entries of all depths come to the other permits by the same order, and none to those of another depth. So none
///   waits for deeper ones, or for less deep ones, without end.
#[derive(Debug)]
pub struct FairQueue<G: LaneKey, M: LaneKey = ()> {
    /// Permits without those of depths.
    permits: usize,
    max_waiting: usize,
    state: Mutex<QueueState<G, M>>,
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
    lane: Lane<G, M>,
    places: PermitPlaces,
}

impl FairQueue<()> {
    /// A queue of one lane, which serves in the order of arrival and may be `max_waiting` entries long: there are
    /// no others to leave room or permits for.
    pub fn in_order(permits: usize, max_waiting: usize) -> Arc<Self> {
        // A lone lane fills half of a queue.
        Self::with_shares(permits, max_waiting.saturating_mul(2), Shares::none())
    }
}

impl<G: LaneKey> FairQueue<G> {
    /// A queue of at most `max_waiting` entries for `permits`, which groups share.
    pub fn new(permits: usize, max_waiting: usize) -> Arc<Self> {
        Self::with_shares(permits, max_waiting, Shares::of_groups(permits))
    }
}

impl<G: LaneKey, M: LaneKey> FairQueue<G, M> {
    /// A queue of at most `max_waiting` entries for `permits`, which groups and members share.
    pub fn of_members(permits: usize, max_waiting: usize) -> Arc<Self> {
        Self::with_shares(permits, max_waiting, Shares::of_members(permits))
    }

    /// A queue as [`of_members`](Self::of_members) makes it, with `each` further permits for each depth of 1 to `depths`,
    /// which is at most [`MOST_DEPTHS`]. An entry that is deeper has those of the last.
    pub fn with_depths(permits: usize, max_waiting: usize, depths: u8, each: usize) -> Arc<Self> {
        let shares = Shares::of_members(permits);
        Self::of_state(permits, max_waiting, shares, Depths::new(depths, each))
    }

    fn with_shares(permits: usize, max_waiting: usize, shares: Shares) -> Arc<Self> {
        Self::of_state(permits, max_waiting, shares, Depths::default())
    }

    fn of_state(permits: usize, max_waiting: usize, shares: Shares, depths: Depths) -> Arc<Self> {
        Arc::new(Self {
            permits,
            max_waiting,
            state: Mutex::new(QueueState::new(permits, shares, depths)),
        })
    }

    /// All permits, held or not, but those of depths.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Permits that are not held, but those of depths.
    pub fn free(&self) -> usize {
        self.lock().free()
    }

    /// Permits that are held, those of depths among them.
    pub fn held(&self) -> usize {
        self.lock().held()
    }

    /// Entries in the queue.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Waits for a permit until `deadline`. The lane's group holds at most `group_limit` permits at a time, and those of
    /// depths.
    ///
    /// # Errors
    /// [`QueueRefusal::Full`] at once if the queue has no room for the lane, [`QueueRefusal::Deadline`] or
    /// [`QueueRefusal::GroupLimit`] if no permit came in time.
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
                Ok(Err(_)) | Err(_) => Err(self.late(&waiting.lane, group_limit)),
            },
        }
    }

    /// Why a lane got no permit until its deadline.
    fn late(&self, lane: &Lane<G, M>, group_limit: usize) -> QueueRefusal {
        if self.lock().is_at_limit(lane, group_limit) {
            QueueRefusal::GroupLimit
        } else {
            QueueRefusal::Deadline
        }
    }

    /// A permit, if one is free for the lane and the lane has no earlier entry.
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
        if let Some(places) = state.take_now(&lane, group_limit) {
            return Ok(Admitted::Now(self.permit(lane, places)));
        }
        if !state.has_room(&lane, max_waiting) {
            return Err(QueueRefusal::Full);
        }
        let (permit, receiver) = oneshot::channel();
        let number = state.wait(&lane, group_limit, permit);
        Ok(Admitted::Later(QueueEntry {
            queue: self.clone(),
            lane,
            number,
            permit: receiver,
        }))
    }

    fn permit(self: &Arc<Self>, lane: Lane<G, M>, places: PermitPlaces) -> Permit<G, M> {
        Permit {
            queue: self.clone(),
            lane,
            places,
        }
    }

    /// Hands out the permits that a change set free.
    fn changed(self: &Arc<Self>, change: impl FnOnce(&mut QueueState<G, M>)) {
        let mut served = Vec::new();
        {
            let mut state = self.lock();
            change(&mut state);
            while let Some(next) = state.next() {
                served.push(next);
            }
        }
        // Outside the lock: a caller that has just left drops its permit here, which locks again.
        for Served {
            lane,
            places,
            waiter: Waiter { permit, .. },
        } in served
        {
            drop(permit.send(self.permit(lane, places)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<G, M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (lane, places) = (&self.lane, self.places);
        self.queue.changed(|state| state.give_back(lane, places));
    }
}
