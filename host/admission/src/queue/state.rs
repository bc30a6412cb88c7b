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

/// The kind of place of its group that a permit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupPlace {
    /// The group's limit counts it.
    Counted,
    /// Beside the limit, for entries that holders of permits wait for.
    OfDepth,
}

/// A waiter that gets a permit.
#[derive(Debug)]
pub(super) struct Served<G: LaneKey, M: LaneKey> {
    pub lane: Lane<G, M>,
    pub place: GroupPlace,
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

/// Permits that are kept free for deeper entries.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Depths {
    pub depths: u8,
    /// Permits of each depth.
    pub each: usize,
}

impl Depths {
    /// Permits that an entry of this depth leaves to deeper ones.
    fn below(self, depth: u8) -> usize {
        usize::from(self.depths.saturating_sub(depth)) * self.each
    }

    fn all(self) -> usize {
        self.below(0)
    }

    /// Places of a group, beside those that its limit counts, that an entry of this depth may come to.
    fn of_group(self, depth: u8, group_limit: usize) -> usize {
        let depths = usize::from(depth.min(self.depths));
        depths.saturating_mul(group_places_of_depth(group_limit))
    }
}

#[derive(Debug)]
pub(super) struct QueueState<G: LaneKey, M: LaneKey> {
    shares: Shares,
    depths: Depths,
    /// All permits, those of depths among them.
    permits: usize,
    free: usize,
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
    held: usize,
    /// Permits of `held` that the limit of the group does not count.
    of_depth: usize,
    waiting: usize,
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
        let permits = permits + depths.all();
        Self {
            shares,
            depths,
            permits,
            free: permits,
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
        self.free.saturating_sub(self.depths.all())
    }

    pub fn held(&self) -> usize {
        self.permits - self.free
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
    pub fn take_now(&mut self, lane: &Lane<G, M>, group_limit: usize) -> Option<GroupPlace> {
        if self.lanes.contains_key(lane) {
            return None;
        }
        let place = self.may_take(lane, group_limit)?;
        self.take(lane, place);
        Some(place)
    }

    /// Whether the lane's group holds as many permits as it may, or as it may for this member.
    pub fn is_at_limit(&self, lane: &Lane<G, M>, group_limit: usize) -> bool {
        self.group_place(lane, group_limit).is_none()
    }

    /// The place that the lane's group has for it. One that the limit counts is taken before one of those of depths:
    /// these are for entries that would wait for who waits for them.
    fn group_place(&self, lane: &Lane<G, M>, group_limit: usize) -> Option<GroupPlace> {
        let Counts { held, of_depth, .. } = self.groups.of(&lane.group);
        let is_newcomer = !self.shares.tells_members || self.members.of(&lane.member).held == 0;
        let kept = if is_newcomer {
            0
        } else {
            reserved(group_limit)
        };
        if held - of_depth < group_limit - kept {
            Some(GroupPlace::Counted)
        } else if of_depth < self.depths.of_group(lane.depth, group_limit) {
            Some(GroupPlace::OfDepth)
        } else {
            None
        }
    }

    fn held_by(&self, lane: &Lane<G, M>) -> HeldPermits {
        HeldPermits {
            by_group: self.groups.of(&lane.group).held,
            by_member: self.members.of(&lane.member).held,
        }
    }

    /// The place that the lane's group has for it, if there is a free permit for the lane, too.
    fn may_take(&self, lane: &Lane<G, M>, group_limit: usize) -> Option<GroupPlace> {
        let place = self.group_place(lane, group_limit)?;
        self.is_free_for(lane).then_some(place)
    }

    fn is_free_for(&self, lane: &Lane<G, M>) -> bool {
        let Shares {
            for_both,
            for_members,
            for_groups,
            ..
        } = self.shares;
        let held = self.held_by(lane);
        // The permits of depths are no part of the shares: who waits for the entry holds one of those already.
        if lane.depth > 0 && self.free > self.depths.below(lane.depth) {
            return true;
        }
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

    pub fn give_back(&mut self, lane: &Lane<G, M>, place: GroupPlace) {
        self.free += 1;
        self.counts_held(lane, place, |held| held - 1);
    }

    /// The next waiter that gets a permit, which is taken for it. Called until there is none.
    pub fn next(&mut self) -> Option<Served<G, M>> {
        loop {
            let (at, place) = self.next_place()?;
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
            self.take(&lane, place);
            return Some(Served {
                lane,
                place,
                waiter,
            });
        }
    }

    /// The lane to be served, by where it is in the round, and the place that it gets of its group.
    fn next_place(&self) -> Option<(usize, GroupPlace)> {
        if self.free == 0 {
            return None;
        }
        let mut may_take = self.round.iter().enumerate().filter_map(|(at, lane)| {
            let waiter = self.lanes.get(lane).and_then(VecDeque::front)?;
            let place = self.may_take(lane, waiter.group_limit)?;
            Some(((at, place), lane))
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

    fn take(&mut self, lane: &Lane<G, M>, place: GroupPlace) {
        self.free -= 1;
        self.counts_held(lane, place, |held| held + 1);
    }

    fn counts_held(
        &mut self,
        lane: &Lane<G, M>,
        place: GroupPlace,
        change: impl Fn(usize) -> usize,
    ) {
        self.groups.change(&lane.group, |counts| {
            counts.held = change(counts.held);
            if place == GroupPlace::OfDepth {
                counts.of_depth = change(counts.of_depth);
            }
        });
        let of_member = |counts: &mut Counts| counts.held = change(counts.held);
        self.members.change(&lane.member, of_member);
    }

    fn counts_waiting(&mut self, lane: &Lane<G, M>, change: impl Fn(usize) -> usize) {
        self.waiting = change(self.waiting);
        let change = |counts: &mut Counts| counts.waiting = change(counts.waiting);
        self.groups.change(&lane.group, change);
        self.members.change(&lane.member, change);
    }
}
