//! The queue as its callers see it; `state` has what it decides.

use super::*;
use std::time::Duration;

pub(super) fn lane(party: u64) -> Lane<u64, u64> {
    Lane {
        group: party,
        member: party,
        depth: 0,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[tokio::test]
async fn permits_go_round_the_groups() {
    let queue = FairQueue::of_members(1, 100);
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
    let queue = FairQueue::of_members(4, 100);
    let _one = queue.enter(lane(1), 1, soon()).await.unwrap();
    let early = Instant::now() + Duration::from_millis(20);
    assert_eq!(
        queue.enter(lane(1), 1, early).await.unwrap_err(),
        QueueRefusal::GroupLimit
    );
    let _other = queue.enter(lane(2), 1, soon()).await.unwrap();
    assert_eq!(queue.free(), 2);
}

#[tokio::test]
async fn the_queue_is_bounded_and_leavers_cost_nothing() {
    let queue = FairQueue::of_members(1, 1);
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
pub(super) async fn waits(
    queue: &Arc<FairQueue<u64, u64>>,
    lane: Lane<u64, u64>,
) -> tokio::task::JoinHandle<Result<(), QueueRefusal>> {
    waits_within(queue, lane, 1).await
}

/// Waits as [`waits`] does, for a group that may have `limit` permits.
pub(super) async fn waits_within(
    queue: &Arc<FairQueue<u64, u64>>,
    lane: Lane<u64, u64>,
    limit: usize,
) -> tokio::task::JoinHandle<Result<(), QueueRefusal>> {
    let queue = queue.clone();
    let waiting = tokio::spawn(async move { queue.enter(lane, limit, soon()).await.map(drop) });
    tokio::task::yield_now().await;
    waiting
}

#[tokio::test]
async fn a_waiter_that_left_blocks_no_other() {
    let queue = FairQueue::of_members(4, 2);
    // The permit is never given back: the group is at its limit.
    let _held = queue.enter(lane(1), 1, soon()).await.unwrap();
    let early = Instant::now() + Duration::from_millis(10);
    let late = queue.enter(lane(1), 1, early).await;
    assert_eq!(late.unwrap_err(), QueueRefusal::GroupLimit);
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
    let queue = FairQueue::of_members(2, 9);
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
    let queue = FairQueue::of_members(1, 8);
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
    let queue = FairQueue::of_members(1, 1);
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

/// The permits that parties get at once, when each asks for all.
fn greedy<M: LaneKey>(queue: &Arc<FairQueue<u64, M>>, lane: Lane<u64, M>) -> Vec<Permit<u64, M>> {
    std::iter::from_fn(|| queue.try_enter(lane.clone(), usize::MAX)).collect()
}

#[test]
fn a_lone_party_leaves_a_reserve_to_newcomers() {
    for (permits, groups, members, both) in
        [(8, 0, 0, 0), (16, 1, 1, 0), (32, 2, 1, 1), (64, 4, 2, 2)]
    {
        let queue = FairQueue::of_members(permits, 8);
        let lane = |group, member| Lane {
            group,
            member,
            depth: 0,
        };
        let hoard = greedy(&queue, lane(1, 1));
        assert_eq!(hoard.len(), permits - groups - members - both, "{permits}");
        // Other modules of the same key get the first half of the reserve, other keys half of the rest, and keys that
        // come with another module all of it.
        let others: Vec<_> = (2..9)
            .filter_map(|n| queue.try_enter(lane(n, 1), 9))
            .collect();
        assert_eq!(others.len(), groups, "{permits}");
        let keys: Vec<_> = (2..9)
            .filter_map(|n| queue.try_enter(lane(1, n), usize::MAX))
            .collect();
        assert_eq!(keys.len(), members, "{permits}");
        let strangers: Vec<_> = (20..30)
            .filter_map(|n| queue.try_enter(lane(n, n), 9))
            .collect();
        assert_eq!(strangers.len(), both, "{permits}");
        drop((hoard, others, keys, strangers));
        assert_eq!(queue.free(), permits);
    }
    let owners = FairQueue::new(64, 8);
    let hoard = greedy(&owners, Lane::of(1));
    assert_eq!(hoard.len(), 56);
    assert!(owners.try_enter(Lane::of(2), 9).is_some());
    let one = FairQueue::in_order(64, 8);
    let hoard: Vec<_> = std::iter::from_fn(|| one.try_enter(Lane::of(()), 99)).collect();
    assert_eq!(hoard.len(), 64, "there is no other");
}

/// What kept a call waiting was the group's limit, also where the rest of it is for other members.
#[tokio::test]
async fn a_member_is_told_of_its_groups_limit() {
    let queue = FairQueue::of_members(64, 100);
    let mut held = Vec::new();
    while let Some(permit) = queue.try_enter(lane(1), 32) {
        held.push(permit);
    }
    assert_eq!(held.len(), 28);
    let early = Instant::now() + Duration::from_millis(10);
    let late = queue.enter(lane(1), 32, early).await;
    assert_eq!(late.unwrap_err(), QueueRefusal::GroupLimit);
}

/// A lone member leaves a part of its group's limit to other members.
#[test]
fn a_group_limit_is_shared_by_its_members() {
    for (limit, kept) in [(8, 0), (16, 2), (32, 4)] {
        let queue = FairQueue::of_members(64, 8);
        let of = |member| {
            let lane = Lane {
                group: 1,
                member,
                depth: 0,
            };
            std::iter::from_fn(|| queue.try_enter(lane, limit)).collect::<Vec<_>>()
        };
        let lone = of(1);
        assert_eq!(lone.len(), limit - kept, "{limit}");
        let others: Vec<_> = (2..9).map(of).collect();
        let got = others.iter().map(Vec::len).sum::<usize>();
        assert_eq!(got, kept, "{limit}");
    }
}

/// A member with many groups, and a group with many members, fill no more of the queue than a lone lane.
#[tokio::test]
async fn no_party_fills_the_queue_by_many_lanes() {
    for is_one_member in [true, false] {
        let queue = FairQueue::of_members(1, 16);
        let lane = |one, other| {
            let (group, member) = if is_one_member {
                (other, one)
            } else {
                (one, other)
            };
            Lane {
                group,
                member,
                depth: 0,
            }
        };
        let held = queue.enter(lane(0, 0), 9, soon()).await.unwrap();
        let mut waiting = Vec::new();
        for other in 1..=8 {
            waiting.push(waits(&queue, lane(0, other)).await);
        }
        let refused = queue.enter(lane(0, 9), 9, soon()).await;
        assert_eq!(refused.unwrap_err(), QueueRefusal::Full);
        waiting.push(waits(&queue, lane(1, 10)).await);
        assert_eq!(queue.waiting(), 9);
        drop(held);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
    }
}

/// A key that came first and held everything is left with its share, and not more, once its permits come back.
#[tokio::test]
async fn shares_are_equal_when_all_want_more() {
    let queue = FairQueue::of_members(24, 400);
    let mut hoard = greedy(&queue, lane(1));
    let held = |party: u64, hoard: &[Permit<u64, u64>]| {
        let own = hoard.iter().filter(|permit| permit.lane.member == party);
        own.count()
    };
    assert_eq!(held(1, &hoard), 21);
    let mut entries = Vec::new();
    for _ in 0..30 {
        for party in [1, 1, 1, 2, 3] {
            match queue.ask(lane(party), usize::MAX, 400).unwrap() {
                Admitted::Now(permit) => hoard.push(permit),
                Admitted::Later(entry) => entries.push(entry),
            }
        }
    }
    for _ in 0..60 {
        drop(hoard.remove(0));
        entries.retain_mut(|entry| match entry.permit.try_recv() {
            Ok(permit) => {
                hoard.push(permit);
                false
            }
            Err(_) => true,
        });
    }
    let shares = [1, 2, 3].map(|party| held(party, &hoard));
    assert!(
        shares.iter().all(|share| (5..=9).contains(share)),
        "{shares:?}"
    );
}
