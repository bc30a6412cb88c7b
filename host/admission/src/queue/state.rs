//! What the queue decides: who gets a free permit, and who may wait.

use super::{Lane, LaneKey, Permit};
use foldhash::quality::RandomState;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use tokio::sync::oneshot;

/// One of so many permits goes to the lane that was served longest ago, whatever its parties hold. The others go to
/// the parties that hold fewest: alone, that would let newcomers pass by the lane of a busy group without end.
pub(super) const TURN: u64 = 4;

/// A queue of fewer permits keeps none for newcomers: it would cost the others too much.
const LEAST_WITH_RESERVE: usize = 16;

/// The most depths that have permits of their own.
pub const MOST_DEPTHS: usize = 4;

/// Permits that are kept for parties that hold none.
fn reserved(permits: usize) -> usize {
    if permits < LEAST_WITH_RESERVE {
        0
    } else {
        permits / 8
    }
}

/// Places of one depth beside those that a group's limit counts.
pub(super) fn group_places_of_depth(group_limit: usize) -> usize {
    (group_limit / 16).max(1)
}

/// A place that a permit takes of a limit, or beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitPlace {
    /// The limit counts it, with those of entries of all depths.
    Counted,
    /// Beside the limit, of one depth, by its number from 0 on. Each depth has its own places. Deeper entries that came to
    /// them, too, would keep less deep ones waiting for as long as there are deeper ones.
    OfDepth(usize),
}

/// The places that a permit takes of the whole queue and of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PermitPlaces {
    of_queue: PermitPlace,
    of_group: PermitPlace,
}

/// A waiter that gets a permit.
#[derive(Debug)]
pub(super) struct Served<G: LaneKey, M: LaneKey> {
    pub lane: Lane<G, M>,
    pub places: PermitPlaces,
    pub waiter: Waiter<G, M>,
}

/// For whom permits and room are kept free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    /// The last permits, which are only for a member and a group that both hold none.
    for_both: usize,
    /// The permits before these, which are for members that hold none.
    for_members: usize,
    /// The permits before these, which are also for groups that hold none.
    for_groups: usize,
    /// Whether members are told apart.
    tells_members: bool,
}

impl Shares {
    pub fn none() -> Self {
        Self {
            for_both: 0,
            for_members: 0,
            for_groups: 0,
            tells_members: false,
        }
    }

    pub fn of_groups(permits: usize) -> Self {
        Self {
            for_groups: reserved(permits),
            ..Self::none()
        }
    }

    pub fn of_members(permits: usize) -> Self {
        let reserved = reserved(permits);
        let (for_both, half) = (reserved / 4, reserved / 2);
        Self {
            for_both,
            for_members: half - for_both,
            for_groups: reserved - half,
            tells_members: true,
        }
    }
}

/// Permits that are kept free for entries that have a depth.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Depths {
    depths: usize,
    /// Permits of each depth.
    each: usize,
}

impl Depths {
    pub fn new(depths: u8, each: usize) -> Self {
        Self {
            depths: usize::from(depths).min(MOST_DEPTHS),
            each,
        }
    }

    fn all(self) -> usize {
        self.depths * self.each
    }

    /// The number of the depth, from 0 on, whose permits an entry of this depth may have; absent if none waits for it.
    fn own(self, depth: u8) -> Option<usize> {
        usize::from(depth).min(self.depths).checked_sub(1)
    }
}

#[derive(Debug)]
pub(super) struct QueueState<G: LaneKey, M: LaneKey> {
    shares: Shares,
    depths: Depths,
    /// Permits without those of depths.
    permits: usize,
    held: HeldPlaces,
    waiting: usize,
    /// The number of the next waiter.
    number: u64,
    /// Permits that waiters got.
    served: u64,
    groups: Parties<G>,
    members: Parties<M>,
    lanes: HashMap<Lane<G, M>, VecDeque<Waiter<G, M>>, RandomState>,
    /// Lanes that are not empty; the one that was served longest ago is in front.
    round: VecDeque<Lane<G, M>>,
}

#[derive(Debug)]
pub(super) struct Waiter<G: LaneKey, M: LaneKey> {
    number: u64,
    /// The group's limit when the waiter came.
    group_limit: usize,
    pub permit: oneshot::Sender<Permit<G, M>>,
}

/// What each party holds, and how many entries of it wait. Parties with neither are forgotten, so that there are no
/// more than permits and places in the queue.
#[derive(Debug)]
struct Parties<K>(HashMap<K, Counts, RandomState>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    held: HeldPlaces,
    waiting: usize,
}

/// Permits that are held, by their places.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct HeldPlaces {
    counted: usize,
    of_depth: [usize; MOST_DEPTHS],
}

impl HeldPlaces {
    fn all(self) -> usize {
        self.counted + self.of_depth.iter().sum::<usize>()
    }

    /// A place of the depth `own`, unless all `places` of it are held.
    fn free_of_depth(self, own: Option<usize>, places: usize) -> Option<PermitPlace> {
        let own = own?;
        let held = *self.of_depth.get(own)?;
        (held < places).then_some(PermitPlace::OfDepth(own))
    }

    fn change(&mut self, place: PermitPlace, change: impl Fn(usize) -> usize) {
        let held = match place {
            PermitPlace::Counted => Some(&mut self.counted),
            PermitPlace::OfDepth(own) => self.of_depth.get_mut(own),
        };
        if let Some(held) = held {
            *held = change(*held);
        }
    }
}

/// Permits that the parties of a lane hold. Ordered by what its member holds, then by what its group does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeldPermits {
    by_member: usize,
    by_group: usize,
}

impl<K: Clone + Eq + Hash> Parties<K> {
    fn of(&self, party: &K) -> Counts {
        self.0.get(party).copied().unwrap_or_default()
    }

    fn change(&mut self, party: &K, change: impl FnOnce(&mut Counts)) {
        let mut counts = match self.0.entry(party.clone()) {
            Entry::Occupied(counts) => counts,
            Entry::Vacant(place) => place.insert_entry(Counts::default()),
        };
        change(counts.get_mut());
        if *counts.get() == Counts::default() {
            counts.remove();
        }
    }
}

impl<G: LaneKey, M: LaneKey> QueueState<G, M> {
    pub fn new(permits: usize, shares: Shares, depths: Depths) -> Self {
        Self {
            shares,
            depths,
            permits,
            held: HeldPlaces::default(),
            waiting: 0,
            number: 0,
            served: 0,
            groups: Parties(HashMap::default()),
            members: Parties(HashMap::default()),
            lanes: HashMap::default(),
            round: VecDeque::new(),
        }
    }

    /// Free permits without those of depths.
    pub fn free(&self) -> usize {
        self.permits - self.held.counted
    }

    pub fn held(&self) -> usize {
        self.held.all()
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether nothing is kept of any party.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.groups.0.is_empty() && self.members.0.is_empty() && self.lanes.is_empty()
    }

    /// Takes a permit, if the lane may have one and has no earlier entry. An entry of another lane that may have it
    /// was served before: [`Self::next`] leaves none.
    pub fn take_now(&mut self, lane: &Lane<G, M>, group_limit: usize) -> Option<PermitPlaces> {
        if self.lanes.contains_key(lane) {
            return None;
        }
        let places = self.may_take(lane, group_limit)?;
        self.take(lane, places);
        Some(places)
    }

    /// Whether the lane's group holds as many permits as it may, or as it may for this member.
    pub fn is_at_limit(&self, lane: &Lane<G, M>, group_limit: usize) -> bool {
        self.group_place(lane, group_limit).is_none()
    }

    /// The place that the lane's group has for it. One that the limit counts is taken before one of those of depths:
    /// these are for entries that would wait for who waits for them.
    fn group_place(&self, lane: &Lane<G, M>, group_limit: usize) -> Option<PermitPlace> {
        let Counts { held, .. } = self.groups.of(&lane.group);
        let is_newcomer = !self.shares.tells_members || self.held_by(lane).by_member == 0;
        let kept = if is_newcomer {
            0
        } else {
            reserved(group_limit)
        };
        if held.counted < group_limit - kept {
            return Some(PermitPlace::Counted);
        }
        let own = self.depths.own(lane.depth);
        held.free_of_depth(own, group_places_of_depth(group_limit))
    }

    fn held_by(&self, lane: &Lane<G, M>) -> HeldPermits {
        HeldPermits {
            by_group: self.groups.of(&lane.group).held.all(),
            by_member: self.members.of(&lane.member).held.all(),
        }
    }

    /// The places that there are for the lane in the queue and in its group.
    fn may_take(&self, lane: &Lane<G, M>, group_limit: usize) -> Option<PermitPlaces> {
        Some(PermitPlaces {
            of_group: self.group_place(lane, group_limit)?,
            of_queue: self.queue_place(lane)?,
        })
    }

    /// The place that the queue has for the lane. Permits of depths are no part of the shares: who waits for the entry
    /// holds one of those already.
    fn queue_place(&self, lane: &Lane<G, M>) -> Option<PermitPlace> {
        if self.is_free_for(lane) {
            return Some(PermitPlace::Counted);
        }
        let own = self.depths.own(lane.depth);
        self.held.free_of_depth(own, self.depths.each)
    }

    fn is_free_for(&self, lane: &Lane<G, M>) -> bool {
        let Shares {
            for_both,
            for_members,
            for_groups,
            ..
        } = self.shares;
        let held = self.held_by(lane);
        let free = self.free();
        free > 0
            && (free > for_both + for_members + for_groups
                || (free > for_both + for_members && held.by_group == 0)
                || (free > for_both && held.by_member == 0)
                || (held.by_group == 0 && held.by_member == 0))
    }

    /// Whether one more entry of the lane may wait, in a queue of `max_waiting`.
    pub fn has_room(&self, lane: &Lane<G, M>, max_waiting: usize) -> bool {
        let room = max_waiting.saturating_sub(self.waiting);
        let has_room = |waiting: usize| waiting < room;
        has_room(self.groups.of(&lane.group).waiting)
            && (!self.shares.tells_members || has_room(self.members.of(&lane.member).waiting))
    }

    /// Adds an entry to the lane. Returns its number.
    pub fn wait(
        &mut self,
        lane: &Lane<G, M>,
        group_limit: usize,
        permit: oneshot::Sender<Permit<G, M>>,
    ) -> u64 {
        let number = self.number;
        self.number += 1;
        self.counts_waiting(lane, |waiting| waiting + 1);
        let queue = self.lanes.entry(lane.clone()).or_default();
        if queue.is_empty() {
            self.round.push_back(lane.clone());
        }
        queue.push_back(Waiter {
            number,
            group_limit,
            permit,
        });
        number
    }

    pub fn give_back(&mut self, lane: &Lane<G, M>, places: PermitPlaces) {
        self.counts_held(lane, places, |held| held - 1);
    }

    /// The next waiter that gets a permit, which is taken for it. Called until there is none.
    pub fn next(&mut self) -> Option<Served<G, M>> {
        loop {
            let (at, places) = self.next_places()?;
            let lane = self.round.remove(at)?;
            let queue = self.lanes.get_mut(&lane)?;
            let waiter = queue.pop_front()?;
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.round.push_back(lane.clone());
            }
            self.counts_waiting(&lane, |waiting| waiting - 1);
            // It left, and has not been forgotten yet.
            if waiter.permit.is_closed() {
                continue;
            }
            self.served += 1;
            self.take(&lane, places);
            return Some(Served {
                lane,
                places,
                waiter,
            });
        }
    }

    /// The lane to be served, by where it is in the round, and the places that it gets.
    fn next_places(&self) -> Option<(usize, PermitPlaces)> {
        if self.held() == self.permits + self.depths.all() {
            return None;
        }
        let mut may_take = self.round.iter().enumerate().filter_map(|(at, lane)| {
            let waiter = self.lanes.get(lane).and_then(VecDeque::front)?;
            let places = self.may_take(lane, waiter.group_limit)?;
            Some(((at, places), lane))
        });
        if self.served % TURN == TURN - 1 {
            return may_take.next().map(|(next, _)| next);
        }
        let mut poorest = None;
        for (next, lane) in may_take {
            let held = self.held_by(lane);
            if held == HeldPermits::default() {
                return Some(next);
            }
            if poorest.is_none_or(|(_, least)| held < least) {
                poorest = Some((next, held));
            }
        }
        poorest.map(|(next, _)| next)
    }

    /// Removes a waiter that left, unless it was served meanwhile.
    pub fn forget(&mut self, lane: &Lane<G, M>, number: u64) {
        let Some(queue) = self.lanes.get_mut(lane) else {
            return;
        };
        let Some(at) = queue.iter().position(|waiter| waiter.number == number) else {
            return;
        };
        queue.remove(at);
        if queue.is_empty() {
            self.lanes.remove(lane);
            self.round.retain(|other| other != lane);
        }
        self.counts_waiting(lane, |waiting| waiting - 1);
    }

    fn take(&mut self, lane: &Lane<G, M>, places: PermitPlaces) {
        self.counts_held(lane, places, |held| held + 1);
    }

    fn counts_held(
        &mut self,
        lane: &Lane<G, M>,
        places: PermitPlaces,
        change: impl Fn(usize) -> usize,
    ) {
        self.held.change(places.of_queue, &change);
        self.groups.change(&lane.group, |counts| {
            counts.held.change(places.of_group, &change);
        });
        // A member has no limit: all that it holds is one sum.
        self.members.change(&lane.member, |counts| {
            counts.held.change(PermitPlace::Counted, &change);
        });
    }

    fn counts_waiting(&mut self, lane: &Lane<G, M>, change: impl Fn(usize) -> usize) {
        self.waiting = change(self.waiting);
        let change = |counts: &mut Counts| counts.waiting = change(counts.waiting);
        self.groups.change(&lane.group, change);
        self.members.change(&lane.member, change);
    }
}
