use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Model as _;
use crate::model::RunContext;
use crate::route::scripted::Act;
use crate::route::scripted::Act::{Begin, Never, RefuseAfter, Say, Think};
use crate::route::scripted::{Scripted, WatchRecorder, complete};
use crate::route::{
    BreakerPolicy, Endpoint, EndpointLimits, EndpointPolicy, Member, Pool, PoolPolicy, Retry,
    RetryPolicy,
};
use toolhold_protocol::cost::{Amount, Price};
use toolhold_protocol::side_request::SideRole;

const PATIENCE: Duration = Duration::from_secs(2);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn retry(model: &Scripted, policy: EndpointPolicy) -> Retry {
    let endpoint = Arc::new(Endpoint::new("one", model.clone(), policy));
    Retry::new(endpoint, RetryPolicy::default()).hedging(Some(PATIENCE))
}

/// Members are called a and b.
fn pool(a: &Scripted, b: &Scripted, policy: &EndpointPolicy) -> Pool {
    let member = |name: &str, model: &Scripted| Member {
        endpoint: Arc::new(Endpoint::new(name, model.clone(), policy.clone())),
        weight: 1,
    };
    let hedging = PoolPolicy {
        hedge_after: Some(PATIENCE),
        ..PoolPolicy::default()
    };
    Pool::new("all", vec![member("a", a), member("b", b)], hedging)
}

fn overtaken(heard: &WatchRecorder) -> Vec<(&str, u64)> {
    let hedges = heard.side.iter();
    hedges
        .inspect(|side| assert_eq!((side.role, side.usage), (SideRole::Hedge, None)))
        .map(|side| (side.endpoint.as_str(), side.duration_ms))
        .collect()
}

/// By the endpoints' behaviour: the answer and its time, the number of requests, and the reported routing.
#[tokio::test(start_paused = true)]
async fn the_first_answer_wins_and_there_is_no_third_request() {
    for (acts, after, answer, asked, decisions, lost) in [
        // It speaks in time, or has begun to.
        (vec![Think(seconds(1), "a")], 1, "a", 1, vec![], vec![]),
        (vec![Begin("a", seconds(9))], 9, "a", 1, vec![], vec![]),
        // The second is faster, the first is, both say something at the same moment.
        (
            vec![Never, Think(seconds(1), "b")],
            3,
            "b",
            2,
            vec!["hedged"],
            vec![("one", 3_000)],
        ),
        (
            vec![Think(seconds(3), "a"), Think(seconds(5), "b")],
            3,
            "a",
            2,
            vec!["hedged"],
            vec![("one", 1_000)],
        ),
        (
            vec![Think(seconds(3), "a"), Think(seconds(1), "b")],
            3,
            "a",
            2,
            vec!["hedged"],
            vec![("one", 1_000)],
        ),
        // The first said something while the second was under way, and takes its time.
        (
            vec![Never, Begin("b", seconds(7))],
            9,
            "b",
            2,
            vec!["hedged"],
            vec![("one", 2_000)],
        ),
        // One fails: the other is waited for, and nothing is sent a third time.
        (
            vec![RefuseAfter(seconds(3), 503), Think(seconds(4), "b")],
            6,
            "b",
            2,
            vec!["hedged", "hedge_failed"],
            vec![],
        ),
        (
            vec![Think(seconds(5), "a"), RefuseAfter(seconds(1), 503)],
            5,
            "a",
            2,
            vec!["hedged", "hedge_failed"],
            vec![],
        ),
    ] {
        let what = format!("{acts:?}");
        let model = Scripted::new(acts);
        let began = Instant::now();
        let (result, heard) = complete(&retry(&model, EndpointPolicy::default())).await;
        assert_eq!(result.unwrap().content, answer, "{what}");
        assert_eq!(
            (began.elapsed(), model.asked()),
            (seconds(after), asked),
            "{what}"
        );
        assert_eq!(heard.text, answer, "{what}");
        assert_eq!(heard.decisions(), decisions, "{what}");
        assert_eq!(overtaken(&heard), lost, "{what}");
        assert_eq!(model.busy(), 0, "the other is cancelled: {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_hedged_once_however_often_it_is_tried() {
    let fails = RefuseAfter(seconds(3), 503);
    let model = Scripted::new([fails.clone(), fails, Think(seconds(30), "late")]);
    let (result, heard) = complete(&retry(&model, EndpointPolicy::default())).await;
    assert_eq!(result.unwrap().content, "late");
    assert_eq!(heard.decisions(), ["hedged", "hedge_failed", "retry"]);
    assert_eq!((model.asked(), heard.side.len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_second_request_needs_a_place_and_a_closed_circuit() {
    let narrow = |limits: EndpointLimits| EndpointPolicy {
        limits,
        ..EndpointPolicy::default()
    };
    for policy in [
        narrow(EndpointLimits {
            concurrent_requests: 1,
            ..EndpointLimits::default()
        }),
        narrow(EndpointLimits {
            requests_per_minute: 1,
            ..EndpointLimits::default()
        }),
        narrow(EndpointLimits {
            tokens_per_minute: 1_500,
            ..EndpointLimits::default()
        }),
    ] {
        let model = Scripted::new([Think(seconds(5), "a")]);
        let (result, heard) = complete(&retry(&model, policy.clone())).await;
        assert_eq!((result.unwrap().content.as_str(), model.asked()), ("a", 1));
        assert!(heard.routing.is_empty(), "{policy:?}: {heard:?}");
    }
    // The other member of a pool is left alone.
    let (a, b) = (
        Scripted::new([Think(seconds(5), "a")]),
        Scripted::new([Act::Refuse(500), Say("b")]),
    );
    let fragile = EndpointPolicy {
        breaker: BreakerPolicy {
            failures: 1,
            rest: seconds(600),
            ..BreakerPolicy::default()
        },
        ..EndpointPolicy::default()
    };
    let pool = pool(&a, &b, &fragile);
    for _ in 0..2 {
        let run = pool
            .session(&RunContext {
                task: "",
                class: None,
            })
            .unwrap();
        assert_eq!(complete(run.as_ref()).await.0.unwrap().content, "a");
    }
    assert_eq!(
        (a.asked(), b.asked()),
        (2, 1),
        "it failed, and was left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pool_asks_another_member_and_stays_with_the_faster() {
    let (a, b) = (Scripted::new([Never]), Scripted::new([Say("b")]));
    let pool = pool(&a, &b, &EndpointPolicy::default());
    let (result, heard) = complete(&pool).await;
    assert_eq!(result.unwrap().content, "b");
    assert_eq!(heard.decisions(), ["chosen", "hedged", "chosen"]);
    assert_eq!(overtaken(&heard), [("a", 2_000)]);
    assert_eq!((a.busy(), b.busy()), (0, 0));
    let (_, heard) = complete(&pool).await;
    assert!(heard.routing.is_empty(), "{heard:?}");
    assert_eq!((a.asked(), b.asked()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn members_that_both_failed_are_not_asked_again_at_once() {
    let fails = || Scripted::new([RefuseAfter(seconds(3), 503), Say("well")]);
    let (a, b) = (fails(), fails());
    let (result, heard) = complete(&pool(&a, &b, &EndpointPolicy::default())).await;
    assert_eq!(result.unwrap().content, "well");
    assert_eq!(
        heard.decisions()[..5],
        [
            "chosen",
            "hedged",
            "hedge_failed",
            "chosen",
            "member_failed"
        ]
    );
    assert_eq!(a.asked() + b.asked(), 3, "{heard:?}");
}

/// The tokens of a cancelled request are unknown; its time on a GPU is known.
#[tokio::test(start_paused = true)]
async fn usage_of_the_slower_hedge_is_reported_if_known() {
    let hour = Price::Time {
        gpu_hour: "3.60".parse().unwrap(),
        gpus: 1,
        in_flight: 1,
    };
    let million = Price::Tokens {
        prompt: "1".parse().unwrap(),
        cached: Amount::ZERO,
        completion: "1".parse().unwrap(),
    };
    for (price, cost) in [(hour, Some("0.002".parse().unwrap())), (million, None)] {
        let model = Scripted::new([Never, Say("b")]);
        let policy = EndpointPolicy {
            price: Some(price),
            ..EndpointPolicy::default()
        };
        let (_, heard) = complete(&retry(&model, policy)).await;
        assert_eq!(heard.side[0].cost_nano, cost);
    }
}
