//! What holds for any order of arrivals, releases and cancellations.

use super::state::{TURN, group_places_of_depth};
use super::*;
use proptest::prelude::*;

const GROUPS: u8 = 3;
const MEMBERS: u8 = 4;

#[derive(Debug, Clone)]
enum Step {
    Arrives {
        group: u8,
        member: u8,
    },
    /// One of those that run, by its place.
    Ends(usize),
    /// One of those that wait, by its place.
    Leaves(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..GROUPS, 0..MEMBERS).prop_map(|(group, member)| Step::Arrives { group, member }),
        2 => any::<usize>().prop_map(Step::Ends),
        1 => any::<usize>().prop_map(Step::Leaves),
    ]
}

struct Waiting {
    entry: QueueEntry<u8, u8>,
    /// Since it is the first of its lane: permits that others got although it might have had them, and their bound.
    passed: Option<(u64, u64)>,
}

/// The queue, and what its users see of it.
struct World {
    queue: Arc<FairQueue<u8, u8>>,
    limits: Vec<usize>,
    max_waiting: usize,
    running: Vec<Permit<u8, u8>>,
    waiting: Vec<Waiting>,
}

impl World {
    fn held(&self, group: Option<u8>, member: Option<u8>) -> usize {
        let is_of = |lane: &Lane<u8, u8>| {
            group.is_none_or(|it| it == lane.group) && member.is_none_or(|it| it == lane.member)
        };
        let running = self.running.iter();
        running.filter(|permit| is_of(&permit.lane)).count()
    }

    fn limit(&self, lane: Lane<u8, u8>) -> usize {
        self.limits[usize::from(lane.group)]
    }

    fn is_below_its_limit(&self, lane: Lane<u8, u8>) -> bool {
        let (held, limit) = (self.held(Some(lane.group), None), self.limit(lane));
        let kept = if limit < 16 || self.held(None, Some(lane.member)) == 0 {
            0
        } else {
            limit / 8
        };
        held < limit - kept
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Arrives { group, member } => {
                let lane = Lane {
                    group,
                    member,
                    depth: 0,
                };
                let limit = self.limit(lane);
                match self.queue.ask(lane, limit, self.max_waiting) {
                    Ok(Admitted::Now(permit)) => self.running.push(permit),
                    Ok(Admitted::Later(entry)) => self.waiting.push(Waiting {
                        entry,
                        passed: None,
                    }),
                    Err(_) => self.had_no_room(lane)?,
                }
            }
            Step::Ends(place) if !self.running.is_empty() => {
                let place = place % self.running.len();
                drop(self.running.swap_remove(place));
            }
            Step::Leaves(place) if !self.waiting.is_empty() => {
                let place = place % self.waiting.len();
                // Those behind it are still in the order of their arrival.
                drop(self.waiting.remove(place));
            }
            Step::Ends(_) | Step::Leaves(_) => {}
        }
        self.collect();
        self.holds()
    }

    /// An entry is refused only if its group or member has as many entries as there is room for others.
    fn had_no_room(&self, lane: Lane<u8, u8>) -> Result<(), TestCaseError> {
        let lanes = || self.waiting.iter().map(|waiting| waiting.entry.lane);
        let room = self.max_waiting - self.waiting.len();
        let group = lanes().filter(|it| it.group == lane.group).count();
        let member = lanes().filter(|it| it.member == lane.member).count();
        prop_assert!(group.max(member) >= room, "{group} {member} {room}");
        Ok(())
    }

    /// Takes the permits that entries were given.
    fn collect(&mut self) {
        let mut given = Vec::new();
        self.waiting
            .retain_mut(|waiting| match waiting.entry.permit.try_recv() {
                Ok(permit) => {
                    given.push(permit);
                    false
                }
                Err(_) => true,
            });
        let served = given.len() as u64;
        self.running.extend(given);
        let mut seen: Vec<Lane<u8, u8>> = Vec::new();
        for place in 0..self.waiting.len() {
            let lane = self.waiting[place].entry.lane;
            if seen.contains(&lane) {
                continue;
            }
            seen.push(lane);
            let might = self.is_below_its_limit(lane) && self.held(None, Some(lane.member)) == 0;
            match &mut self.waiting[place].passed {
                Some((passed, _)) if might => *passed += served,
                Some(_) => {}
                passed @ None => *passed = Some((0, 0)),
            }
        }
        let lanes = seen.len() as u64;
        for (_, bound) in self.waiting.iter_mut().filter_map(|it| it.passed.as_mut()) {
            if *bound == 0 {
                *bound = TURN * lanes;
            }
        }
    }

    fn holds(&self) -> Result<(), TestCaseError> {
        let permits = self.queue.permits();
        let free = self.queue.free();
        prop_assert_eq!(free + self.running.len(), permits, "no permit is lost");
        prop_assert_eq!(self.queue.waiting(), self.waiting.len());
        let reserve = if permits < 16 { 0 } else { permits / 8 };
        let (for_both, for_members) = (reserve / 4, reserve / 2);
        for group in 0..GROUPS {
            let limit = self.limits[usize::from(group)];
            prop_assert!(self.held(Some(group), None) <= limit);
        }
        for Waiting { entry, passed } in &self.waiting {
            let lane = entry.lane;
            let (group, member) = (
                self.held(Some(lane.group), None),
                self.held(None, Some(lane.member)),
            );
            // No permit is free that an entry may have.
            let may_have = match (member, group) {
                (0, 0) => 0,
                (0, _) => for_both,
                (_, 0) => for_members,
                _ => reserve,
            };
            prop_assert!(
                !self.is_below_its_limit(lane) || free <= may_have,
                "{lane:?} waits, {free} are free"
            );
            if let Some((passed, bound)) = passed {
                prop_assert!(passed <= bound, "{lane:?} was passed by {passed} times");
            }
        }
        Ok(())
    }
}

const DEPTHS: u8 = 3;

/// An entry, and the one that waits for it while it holds a permit.
struct Nested {
    id: usize,
    caller: Option<usize>,
    lane: Lane<u8, u8>,
    entry: Option<QueueEntry<u8, u8>>,
    permit: Option<Permit<u8, u8>>,
    /// For an entry that is deeper by one.
    waits: bool,
}

/// Entries of all depths.
struct Forest {
    queue: Arc<FairQueue<u8, u8>>,
    limits: Vec<usize>,
    entries: Vec<Nested>,
    next_id: usize,
}

impl Forest {
    fn ask(&mut self, lane: Lane<u8, u8>, caller: Option<usize>) {
        let limit = self.limits[usize::from(lane.group)];
        let (entry, permit) = match self.queue.ask(lane, limit, 1_000) {
            Ok(Admitted::Now(permit)) => (None, Some(permit)),
            Ok(Admitted::Later(entry)) => (Some(entry), None),
            Err(_) => return,
        };
        self.set_waits(caller, true);
        self.entries.push(Nested {
            id: self.next_id,
            caller,
            lane,
            entry,
            permit,
            waits: false,
        });
        self.next_id += 1;
    }

    fn set_waits(&mut self, id: Option<usize>, waits: bool) {
        for entry in &mut self.entries {
            if Some(entry.id) == id {
                entry.waits = waits;
            }
        }
    }

    /// One of those that hold a permit and wait for no other.
    fn at_work(&self, place: usize) -> Option<usize> {
        let holders = self.entries.iter().enumerate();
        let at_work = holders.filter(|(_, it)| it.permit.is_some() && !it.waits);
        let places: Vec<_> = at_work.map(|(at, _)| at).collect();
        let at = place.checked_rem(places.len())?;
        places.get(at).copied()
    }

    fn calls(&mut self, place: usize, group: u8) {
        if let Some(at) = self.at_work(place) {
            let (id, lane) = (self.entries[at].id, self.entries[at].lane);
            let depth = lane.depth + 1;
            if depth <= DEPTHS {
                self.ask(
                    Lane {
                        group,
                        depth,
                        ..lane
                    },
                    Some(id),
                );
            }
        }
    }

    fn ends(&mut self, place: usize) {
        if let Some(at) = self.at_work(place) {
            let ended = self.entries.swap_remove(at);
            self.set_waits(ended.caller, false);
            drop(ended);
            self.collect();
        }
    }

    /// An entry with a depth waits only while others of the same depth hold permits.
    fn each_waits_for_its_own_depth(&self) -> Result<(), TestCaseError> {
        let waiting = self.entries.iter().filter(|it| it.entry.is_some());
        for Nested { lane, .. } in waiting.filter(|it| it.lane.depth > 0) {
            let holders = self.entries.iter().filter(|it| it.permit.is_some());
            let same = holders.filter(|it| it.lane.depth == lane.depth).count();
            prop_assert!(same > 0, "{lane:?} waits for none of its depth");
        }
        Ok(())
    }

    /// Takes the permits that entries were given.
    fn collect(&mut self) {
        for nested in &mut self.entries {
            let given = nested.entry.as_mut().map(|entry| entry.permit.try_recv());
            if let Some(Ok(permit)) = given {
                nested.permit = Some(permit);
                nested.entry = None;
            }
        }
    }

    fn holds(&self) -> Result<(), TestCaseError> {
        self.each_waits_for_its_own_depth()?;
        for group in 0..GROUPS {
            let held = self
                .entries
                .iter()
                .filter(|it| it.lane.group == group && it.permit.is_some());
            let limit = self.limits[usize::from(group)];
            let of_depth = group_places_of_depth(limit);
            let most = limit + usize::from(DEPTHS) * of_depth;
            prop_assert!(held.clone().count() <= most, "{group}");
            for depth in 0..=DEPTHS {
                let most = limit + if depth > 0 { of_depth } else { 0 };
                let held = held.clone().filter(|it| it.lane.depth == depth).count();
                prop_assert!(held <= most, "{group} {depth}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    /// Permits are never lost, also by those that leave; no entry waits beside a permit that it may have; an entry whose
    /// key holds nothing is passed by at most four permits for each lane; and all are served in the end.
    #[test]
    fn all_are_served_and_no_permit_is_lost(
        permits in 1_usize..40,
        limits in prop::collection::vec(1_usize..40, usize::from(GROUPS)),
        max_waiting in 0_usize..60,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut world = World {
            queue: FairQueue::of_members(permits, max_waiting),
            limits,
            max_waiting,
            running: Vec::new(),
            waiting: Vec::new(),
        };
        for step in steps {
            world.step(step)?;
        }
        // Whatever the last ones do, each end of a call lets others in.
        while !world.waiting.is_empty() {
            prop_assert!(!world.running.is_empty(), "nothing runs, and some wait");
            world.step(Step::Ends(0))?;
        }
        world.running.clear();
        prop_assert_eq!(world.queue.free(), permits);
        prop_assert!(world.queue.lock().is_idle(), "nothing is kept of parties that are gone");
    }

    /// A key that arrives while another one holds what it can and always asks for more gets permits up to its share,
    /// one with each end of a call until it has as many.
    #[test]
    fn a_hoarder_is_brought_down_to_its_share(permits in 16_usize..64, rounds in 1_usize..200) {
        let queue = FairQueue::<u8, u8>::of_members(permits, 10_000);
        let (hoarder, other) = (Lane { group: 0, member: 0, depth: 0 }, Lane { group: 0, member: 1, depth: 0 });
        let mut running = Vec::new();
        let mut waiting = Vec::new();
        let ask = |lane, running: &mut Vec<_>, waiting: &mut Vec<_>| {
            match queue.ask(lane, usize::MAX, 10_000) {
                Ok(Admitted::Now(permit)) => running.push(permit),
                Ok(Admitted::Later(entry)) => waiting.push(entry),
                Err(refusal) => panic!("{refusal:?}"),
            }
        };
        for _ in 0..2 * permits {
            ask(hoarder, &mut running, &mut waiting);
        }
        for _ in 0..permits {
            ask(other, &mut running, &mut waiting);
        }
        for _ in 0..rounds {
            // The hoarder's calls end one by one, and it asks again for each.
            let place = running.iter().position(|it: &Permit<u8, u8>| it.lane.member == 0);
            drop(running.remove(place.unwrap_or(0)));
            ask(hoarder, &mut running, &mut waiting);
            waiting.retain_mut(|entry: &mut QueueEntry<u8, u8>| match entry.permit.try_recv() {
                Ok(permit) => {
                    running.push(permit);
                    false
                }
                Err(_) => true,
            });
        }
        let share = running.iter().filter(|it| it.lane.member == 1).count();
        // Of four permits at most one goes to the lane whose turn it is instead of the poorer one.
        let due = (rounds * 3 / 4).min(permits * 2 / 5);
        prop_assert!(share >= due, "{share} of {permits} after {rounds}, due {due}");
    }

    /// Groups call each other in any order and at any depth. Someone can always go on, and a group holds no more than its
    /// limit and the places of depths.
    #[test]
    fn holders_that_wait_for_deeper_entries_go_on(
        permits in 1_usize..20,
        limits in prop::collection::vec(1_usize..40, usize::from(GROUPS)),
        steps in prop::collection::vec((0..5_u8, any::<usize>(), 0..GROUPS, 0..MEMBERS), 0..300),
    ) {
        let mut forest = Forest {
            queue: FairQueue::with_depths(permits, 1_000, DEPTHS, 1),
            limits,
            entries: Vec::new(),
            next_id: 0,
        };
        for (kind, place, group, member) in steps {
            match kind {
                0 | 1 => forest.ask(Lane { group, member, depth: 0 }, None),
                2 | 3 => forest.calls(place, group),
                _ => forest.ends(place),
            }
            forest.holds()?;
        }
        while !forest.entries.is_empty() {
            let before = forest.entries.len();
            forest.ends(0);
            prop_assert!(forest.entries.len() < before, "{before} wait for each other");
            forest.holds()?;
        }
        prop_assert_eq!(forest.queue.held(), 0);
        prop_assert!(forest.queue.lock().is_idle(), "nothing is kept of parties that are gone");
    }
}
