//! Entries for which holders of permits wait.

use super::tests::{lane, waits, waits_within};
use super::*;

/// Holders of all permits wait for deeper entries: those are served.
#[tokio::test]
async fn deeper_entries_are_served_while_their_callers_hold_all_permits() {
    let queue = FairQueue::with_depths(3, 100, 2, 1);
    let at = |group, depth| Lane {
        group,
        member: 1,
        depth,
    };
    let mut callers: Vec<_> = (0..3)
        .map(|_| queue.try_enter(at(1, 0), 9).unwrap())
        .collect();
    assert_eq!((queue.free(), queue.held(), queue.permits()), (0, 3, 3));
    assert!(queue.try_enter(at(2, 0), 9).is_none());
    // One for each depth.
    let middle = queue.try_enter(at(2, 1), 9).unwrap();
    assert!(queue.try_enter(at(2, 1), 9).is_none());
    let deepest = queue.try_enter(at(3, 2), 9).unwrap();
    assert!(queue.try_enter(at(3, 2), 9).is_none());
    assert_eq!(queue.held(), 5);
    // A waiting caller holds up no deeper entry of its group and member.
    let caller = waits(&queue, at(3, 0)).await;
    let next = waits(&queue, at(3, 2)).await;
    drop(deepest);
    next.await.unwrap().unwrap();
    drop(middle);
    assert!(!caller.is_finished());
    callers.pop();
    caller.await.unwrap().unwrap();
}

/// Holders of all permits that a group may have wait for deeper entries of the same group: it has one more for each
/// depth, and no more than that.
#[test]
fn deeper_entries_are_served_while_their_callers_hold_all_that_their_group_may() {
    let queue = FairQueue::with_depths(64, 100, 4, 4);
    let at = |depth| Lane {
        group: 1,
        member: 1,
        depth,
    };
    let enter = |depth, limit| queue.try_enter(at(depth), limit);
    let callers: Vec<_> = std::iter::from_fn(|| enter(0, 4)).collect();
    assert_eq!(callers.len(), 4);
    let nested: Vec<_> = std::iter::from_fn(|| enter(1, 4)).collect();
    assert_eq!(nested.len(), 1);
    let deepest: Vec<_> = std::iter::from_fn(|| enter(4, 4)).collect();
    assert_eq!(deepest.len(), 1);
    assert_eq!(queue.held(), 6);
    // A sixteenth of a higher limit. What is kept for other members is for entries that nobody waits for, too.
    let wide = |depth| {
        let lane = Lane {
            group: 2,
            member: 1,
            depth,
        };
        let permits = std::iter::from_fn(|| queue.try_enter(lane, 32));
        permits.collect::<Vec<_>>()
    };
    let (callers, nested) = (wide(0), wide(1));
    assert_eq!((callers.len(), nested.len()), (28, 2));
}

/// Entries of each depth have their places for themselves: those that wait for callers of callers, as many as there are,
/// keep no less deep one waiting.
#[tokio::test]
async fn deeper_entries_keep_no_less_deep_one_waiting() {
    // By the limit of the group, and by the permits of the queue.
    for (permits, limit) in [(64, 4), (4, usize::MAX)] {
        let queue = FairQueue::with_depths(permits, 100, 4, 1);
        let at = |depth| Lane {
            group: 1,
            member: 1,
            depth,
        };
        let mut callers: Vec<_> = std::iter::from_fn(|| queue.try_enter(at(0), limit)).collect();
        assert_eq!(callers.len(), 4);
        let mut deeper: Vec<_> = std::iter::from_fn(|| queue.try_enter(at(2), limit)).collect();
        assert_eq!(deeper.len(), 1, "{limit}");
        for _ in 0..3 {
            // As one of them ends, the next one begins: there is always one.
            let next = queue.ask(at(2), limit, 100).unwrap();
            drop(queue.try_enter(at(1), limit).unwrap());
            deeper.clear();
            let Admitted::Later(mut next) = next else {
                panic!("a second one has its place");
            };
            deeper.push(next.permit.try_recv().unwrap());
        }
        // Nor does a caller wait for those that have the places of a depth.
        let caller = waits_within(&queue, at(0), limit).await;
        callers.pop();
        caller.await.unwrap().unwrap();
        assert_eq!(queue.held(), 4, "{limit}");
    }
}

/// The reserve is for newcomers: entries with a depth have permits of their own.
#[test]
fn entries_with_a_depth_leave_the_reserve_to_newcomers() {
    let queue = FairQueue::with_depths(64, 100, 4, 4);
    let of = |party, depth| Lane {
        depth,
        ..lane(party)
    };
    let all = |lane| {
        let permits = std::iter::from_fn(|| queue.try_enter(lane, usize::MAX));
        permits.collect::<Vec<_>>()
    };
    let (callers, nested) = (all(of(1, 0)), all(of(1, 1)));
    assert_eq!((callers.len(), nested.len()), (56, 4));
    let newcomer = queue.try_enter(of(2, 0), usize::MAX);
    assert!(newcomer.is_some());
}

/// Counted places of a group go to entries of all depths in one order: a direct call does not wait until all deeper
/// ones have had theirs.
#[tokio::test]
async fn deeper_entries_of_other_callers_keep_a_group_from_nobody() {
    let queue = FairQueue::with_depths(16, 100, 2, 1);
    let at = |member, depth| Lane {
        group: 1,
        member,
        depth,
    };
    let mut nested: Vec<_> = std::iter::from_fn(|| queue.try_enter(at(2, 1), 2)).collect();
    // The limit, and one more.
    assert_eq!(nested.len(), 3);
    let caller = waits_within(&queue, at(1, 0), 2).await;
    let mut next = Vec::new();
    for _ in 0..9 {
        next.push(waits_within(&queue, at(2, 1), 2).await);
    }
    // One that the limit counts becomes free.
    drop(nested.remove(0));
    caller.await.unwrap().unwrap();
    drop(nested);
    for next in next {
        next.await.unwrap().unwrap();
    }
}

/// The permits of depths change nothing for a queue whose entries have none.
#[test]
fn entries_without_depth_have_what_they_have_without_depths() {
    for permits in [1, 15, 16, 64] {
        let plain = FairQueue::of_members(permits, 9);
        let deep = FairQueue::with_depths(permits, 9, 4, 4);
        let taken = [plain, deep].map(|queue| {
            let lanes = (1..6).map(|party| {
                let permits = std::iter::from_fn(|| queue.try_enter(lane(party), 32));
                permits.collect::<Vec<_>>()
            });
            lanes
                .collect::<Vec<_>>()
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        });
        assert_eq!(taken[0], taken[1], "{permits}");
    }
}
