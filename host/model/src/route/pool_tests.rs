use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use super::*;
use crate::chat::ChatMessage;
use crate::client::client_tests::{CONTENT, STOP, Wire, WireStep};
use crate::client::{OpenAiModel, Timeouts};
use crate::route::scripted::Act::{
    Break, Never, NoConnection, Overflow, Refuse, RefuseFor, ReportInAnswer, Say, Think,
    Unreachable,
};
use crate::route::scripted::{Act, Scripted, WatchRecorder, ask, complete, request};
use crate::route::{EndpointLimits, EndpointPolicy};
use toolhold_policy::ErrorClass;
use toolhold_protocol::routing::{Degradation, Routing};

const SESSION: RunContext<'_> = RunContext {
    task: "",
    class: None,
};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

struct Replica {
    model: Scripted,
    weight: u32,
    policy: EndpointPolicy,
}

fn replica(acts: impl IntoIterator<Item = Act>) -> Replica {
    Replica {
        model: Scripted::new(acts),
        weight: 1,
        policy: EndpointPolicy::default(),
    }
}

impl Replica {
    fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    fn window(mut self, tokens: u64) -> Self {
        self.policy.window = Some(tokens);
        self
    }

    fn at_once(mut self, requests: usize) -> Self {
        self.policy.limits.concurrent_requests = requests;
        self
    }
}

/// Members are called a, b, c…
fn pool<const N: usize>(
    replicas: [Replica; N],
    change: impl FnOnce(&mut PoolPolicy),
) -> (Pool, [Scripted; N]) {
    let models = replicas.each_ref().map(|replica| replica.model.clone());
    let members = ('a'..).zip(replicas).map(|(name, replica)| Member {
        endpoint: Arc::new(Endpoint::new(name, replica.model, replica.policy)),
        weight: replica.weight,
    });
    let mut policy = PoolPolicy::default();
    change(&mut policy);
    (Pool::new("all", members.collect(), policy), models)
}

fn asked<const N: usize>(models: &[Scripted; N]) -> [usize; N] {
    models.each_ref().map(Scripted::asked)
}

fn chosen(heard: &WatchRecorder) -> Vec<&str> {
    let routing = heard.routing.iter();
    routing
        .filter_map(|routing| match routing {
            Routing::Chosen { endpoint, .. } => Some(endpoint.as_str()),
            _ => None,
        })
        .collect()
}

fn degradations(heard: &WatchRecorder) -> Vec<Degradation> {
    let degraded = |routing: &Routing| match routing {
        Routing::Degraded { how, .. } => Some(how.clone()),
        _ => None,
    };
    heard.routing.iter().filter_map(degraded).collect()
}

#[tokio::test(start_paused = true)]
async fn runs_are_shared_out_by_weight_and_each_stays_where_it_is() {
    let replicas = [replica([Say("a")]).weight(3), replica([Say("b")]).weight(1)];
    let (pool, models) = pool(replicas, |_| {});
    let mut homes = BTreeMap::new();
    for _ in 0..40 {
        let run = pool.session(&SESSION).unwrap();
        let (first, heard) = complete(run.as_ref()).await;
        assert_eq!(chosen(&heard).len(), 1);
        for _ in 0..4 {
            let (next, heard) = complete(run.as_ref()).await;
            assert_eq!(
                next.as_ref().unwrap().content,
                first.as_ref().unwrap().content
            );
            assert!(heard.routing.is_empty(), "{heard:?}");
        }
        *homes.entry(first.unwrap().content).or_insert(0) += 1;
    }
    assert_eq!(homes, BTreeMap::from([("a".into(), 30), ("b".into(), 10)]));
    assert_eq!(asked(&models), [150, 50]);
}

#[tokio::test(start_paused = true)]
async fn a_member_gets_its_own_name_for_the_model() {
    let steps = vec![WireStep::Bytes(CONTENT), WireStep::Bytes(STOP)];
    let [first, second, smaller] = [
        Wire::answering(503, Vec::new(), Vec::new()),
        Wire::answering(503, Vec::new(), Vec::new()),
        Wire::ok(steps),
    ]
    .map(Arc::new);
    let model =
        |wire: &Arc<Wire>, name: &str| OpenAiModel::new(wire.clone(), name, Timeouts::default());
    let member = |name: &str, model: OpenAiModel| Member {
        endpoint: Arc::new(Endpoint::new(name, model, EndpointPolicy::default())),
        weight: 1,
    };
    let members = vec![
        member("a", model(&first, "llama")),
        member("b", model(&second, "qwen")),
    ];
    let policy = PoolPolicy {
        overload: vec![Relief::SmallerModel],
        smaller: Some(("c".into(), Arc::new(model(&smaller, "tiny")))),
        ..PoolPolicy::default()
    };
    let pool = Pool::new("all", members, policy);
    // The request names the pool, which no server knows.
    assert_eq!(request().model, "pool");
    complete(&pool).await.0.unwrap();
    for (wire, name) in [(first, "llama"), (second, "qwen"), (smaller, "tiny")] {
        let seen = wire.seen.lock().unwrap();
        let asked: Vec<_> = seen.iter().map(|it| it.body.as_ref().unwrap()).collect();
        assert!(!asked.is_empty(), "{name} was not asked");
        assert!(asked.iter().all(|body| body["model"] == name), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_member_is_asked_within_the_same_request() {
    for act in [
        Unreachable,
        Refuse(500),
        Refuse(503),
        Refuse(429),
        Refuse(401),
    ] {
        let (pool, models) = pool([replica([act.clone()]), replica([Say("b")])], |_| {});
        let run = pool.session(&SESSION).unwrap();
        let (result, heard) = complete(run.as_ref()).await;
        assert_eq!(result.unwrap().content, "b", "{act:?}");
        assert_eq!(heard.decisions(), ["chosen", "member_failed", "chosen"]);
        // The run has moved, and new runs go there as well for a while.
        complete(run.as_ref()).await.0.unwrap();
        for _ in 0..5 {
            complete(&pool).await.0.unwrap();
        }
        assert_eq!(models[0].asked(), 1, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_failed_is_back_after_a_while() {
    let replicas = [replica([Unreachable, Say("a")]), replica([Say("b")])];
    let (pool, models) = pool(replicas, |policy| policy.left_out = seconds(10));
    complete(&pool).await.0.unwrap();
    sleep(seconds(11)).await;
    for _ in 0..4 {
        let run = pool.session(&SESSION).unwrap();
        complete(run.as_ref()).await.0.unwrap();
    }
    assert!(models[0].asked() >= 2, "{:?}", asked(&models));
}

#[tokio::test(start_paused = true)]
async fn request_that_one_member_refuses_is_taken_by_another() {
    for refusal in [Refuse(400), Refuse(422), ReportInAnswer("400")] {
        let (pool, models) = pool([replica([refusal]), replica([Say("b")])], |_| {});
        let (result, heard) = complete(&pool).await;
        assert_eq!(result.unwrap().content, "b");
        assert_eq!(asked(&models), [1, 1]);
        assert_eq!(heard.decisions(), ["chosen", "member_failed", "chosen"]);
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_every_member_refuses_is_sent_once_to_each() {
    let refusals = [replica([Refuse(400)]), replica([Refuse(401)])];
    let (pool, models) = pool(refusals, |_| {});
    let error = complete(&pool).await.0.unwrap_err();
    assert_eq!(asked(&models), [1, 1]);
    // Another request may be taken, and another key is a person's matter.
    assert_eq!(error.class(), ErrorClass::Correctable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_connection_is_told_soon_and_then_at_once() {
    let replicas = [replica([NoConnection]), replica([NoConnection])];
    let (pool, models) = pool(replicas, |_| {});
    let started = Instant::now();
    complete(&pool).await.0.unwrap_err();
    assert!(started.elapsed() <= seconds(3), "{:?}", started.elapsed());
    let asked_first = asked(&models);
    let again = Instant::now();
    let error = complete(&pool).await.0.unwrap_err();
    assert_eq!(
        (again.elapsed(), asked(&models)),
        (Duration::ZERO, asked_first)
    );
    assert!(error.available_after().is_some(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn no_other_member_is_asked_after_a_piece_was_given_out() {
    let (pool, models) = pool([replica([Break("half")]), replica([Say("b")])], |_| {});
    let (result, heard) = complete(&pool).await;
    assert!(matches!(result, Err(ModelError::Truncated { .. })));
    assert_eq!((heard.text.as_str(), asked(&models)), ("half", [1, 0]));
}

#[tokio::test(start_paused = true)]
async fn when_all_failed_they_are_asked_again_after_a_wait() {
    let replicas = [
        replica([Unreachable, Unreachable, Say("a")]),
        replica([Refuse(500), Refuse(502), Say("b")]),
    ];
    let (pool, models) = pool(replicas, |_| {});
    complete(&pool).await.0.unwrap();
    assert_eq!(asked(&models).iter().sum::<usize>(), 5);
}

#[tokio::test(start_paused = true)]
async fn short_requests_go_to_short_windows_and_long_ones_to_long() {
    let replicas = [
        replica([Say("long")]).window(32_000),
        replica([Say("short")]).window(4_000),
        replica([Say("any")]),
    ];
    let (pool, _) = pool(replicas, |_| {});
    for (chars, goes_to) in [
        (100, "short"),
        (9_000, "short"),
        (11_000, "long"),
        (100_000, "long"),
        (200_000, "any"),
    ] {
        let mut request = request();
        request.messages = vec![ChatMessage::user("a".repeat(chars))];
        let run = pool.session(&SESSION).unwrap();
        let (result, _) = ask(run.as_ref(), &request).await;
        assert_eq!(result.unwrap().content, goes_to, "{chars}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_larger_than_every_window_is_cut_to_the_largest() {
    let replicas = [
        replica([Say("small")]).window(500),
        replica([Say("large")]).window(800),
    ];
    let (pool, models) = pool(replicas, |_| {});
    let (result, heard) = complete(&pool).await;
    assert_eq!(result.unwrap().content, "large");
    let sent = models[1].requests()[0].max_tokens.unwrap();
    assert!((700..800).contains(&sent), "{sent}");
    assert_eq!(
        degradations(&heard),
        [Degradation::ShortWindow {
            endpoint: "b".into(),
            max_tokens: sent
        }]
    );
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_says_it_does_not_fit_is_believed() {
    let replicas = [
        replica([Overflow]).window(4_000),
        replica([Overflow]).window(4_000),
        replica([Say("long")]).window(32_000),
    ];
    let (pool, models) = pool(replicas, |_| {});
    assert_eq!(complete(&pool).await.0.unwrap().content, "long");
    let [first, second, third] = asked(&models);
    assert_eq!((first + second, third), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn under_overload_less_is_asked_for_in_the_configured_order() {
    let busy = || replica([Never]).at_once(1);
    let smaller = Scripted::new([Say("small")]);
    let (pool, _) = pool([busy().window(64_000)], |policy| {
        policy.overload = vec![Relief::FewerTokens, Relief::SmallerModel];
        policy.fewer_tokens = 100;
        policy.smaller = Some(("tiny".into(), Arc::new(smaller.clone())));
    });
    let pool = Arc::new(pool);
    let _held = tokio::spawn({
        let pool = pool.clone();
        async move { complete(pool.as_ref()).await }
    });
    tokio::task::yield_now().await;
    let (result, heard) = complete(pool.as_ref()).await;
    assert_eq!(result.unwrap().content, "small");
    assert_eq!(
        degradations(&heard),
        [
            Degradation::FewerTokens {
                from: Some(1_000),
                to: 100
            },
            Degradation::SmallerModel { to: "tiny".into() }
        ]
    );
    assert_eq!(smaller.requests()[0].max_tokens, Some(100));
}

#[tokio::test(start_paused = true)]
async fn under_overload_an_answer_is_cut_to_a_short_window() {
    let replicas = [
        replica([RefuseFor(503, seconds(1))]).window(64_000),
        replica([Say("short")]).window(700),
    ];
    let (pool, models) = pool(replicas, |policy| {
        policy.overload = vec![Relief::ShortWindow];
    });
    let (result, heard) = complete(&pool).await;
    assert_eq!(result.unwrap().content, "short");
    let sent = models[1].requests()[0].max_tokens.unwrap();
    assert!((600..700).contains(&sent), "{sent}");
    assert_eq!(
        heard.decisions(),
        ["chosen", "member_failed", "chosen", "degraded"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_pool_is_no_overloaded_one() {
    let smaller = Scripted::new([Say("small")]);
    let (pool, _) = pool([replica([Unreachable, Say("a")])], |policy| {
        policy.overload = vec![Relief::SmallerModel];
        policy.smaller = Some(("tiny".into(), Arc::new(smaller.clone())));
    });
    assert_eq!(complete(&pool).await.0.unwrap().content, "a");
    assert_eq!(smaller.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_place_that_becomes_free_is_taken() {
    let think = |time| replica([Think(seconds(time), "x")]).at_once(1);
    let (pool, models) = pool([think(30), think(3)], |_| {});
    let pool = Arc::new(pool);
    let started = Instant::now();
    let asking: Vec<_> = (0..3)
        .map(|_| {
            let run = pool.session(&SESSION).unwrap();
            tokio::spawn(async move { complete(run.as_ref()).await })
        })
        .collect();
    let mut waits = 0;
    for asked in asking {
        let (result, heard) = asked.await.unwrap();
        result.unwrap();
        waits += heard.decisions().iter().filter(|d| *d == "waited").count();
    }
    assert_eq!((asked(&models), waits), ([1, 2], 1));
    assert_eq!(started.elapsed(), seconds(30));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_requests_never_exceed_the_limit() {
    let think = || replica([Think(Duration::from_millis(50), "x")]).at_once(4);
    let (pool, models) = pool([think(), think()], |_| {});
    let pool = Arc::new(pool);
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let run = pool.session(&SESSION).unwrap();
            tokio::spawn(async move { complete(run.as_ref()).await.0 })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap().unwrap();
    }
    assert_eq!(models.each_ref().map(Scripted::most_busy), [4, 4]);
    assert_eq!(asked(&models).iter().sum::<usize>(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_returns_its_permit() {
    let (pool, models) = pool([replica([Never, Never, Say("a")]).at_once(1)], |_| {});
    let pool = Arc::new(pool);
    let ask = || {
        let pool = pool.clone();
        tokio::spawn(async move { complete(pool.as_ref()).await.0 })
    };
    let (first, second) = (ask(), ask());
    tokio::task::yield_now().await;
    second.abort();
    let _ = second.await;
    first.abort();
    let _ = first.await;
    assert_eq!(models[0].busy(), 0);
    let third = ask();
    sleep(seconds(1)).await;
    assert!(!third.is_finished());
    third.abort();
    let _ = third.await;
    assert_eq!(ask().await.unwrap().unwrap().content, "a");
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Say("yes")),
        Just(Refuse(500)),
        Just(RefuseFor(429, seconds(2))),
        Just(Unreachable),
        Just(Refuse(401)),
        Just(Refuse(400)),
        Just(Overflow),
        Just(Break("half")),
    ]
}

proptest! {
    /// Property: at most one answer is given out, and no member is asked after its first piece.
    #[test]
    fn one_answer_at_most_is_given_out(
        scripts in prop::array::uniform3(prop::collection::vec(act(), 1..5)),
        windows in prop::array::uniform3(prop::option::of(100_u64..3_000)),
        limit in 0_usize..2,
        overload in prop::sample::subsequence(
            vec![Relief::FewerTokens, Relief::ShortWindow, Relief::SmallerModel], 0..=3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let replicas: Vec<_> = scripts.iter().zip(windows).map(|(acts, window)| Replica {
                policy: EndpointPolicy {
                    window,
                    limits: EndpointLimits { concurrent_requests: limit, ..EndpointLimits::default() },
                    ..EndpointPolicy::default()
                },
                ..replica(acts.clone())
            }).collect();
            let replicas: [Replica; 3] = replicas.try_into().unwrap_or_else(|_| unreachable!());
            let (pool, _) = pool(replicas, |policy| {
                policy.overload = overload;
                policy.smaller = Some(("tiny".into(), Arc::new(Scripted::new([Say("yes")]))));
            });
            let (result, heard) = complete(&pool).await;
            match (heard.text.as_str(), result) {
                ("yes", Ok(_)) | ("", Err(_)) | ("half", Err(ModelError::Truncated { .. })) => {}
                (text, result) => prop_assert!(false, "{text:?}, {result:?}"),
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn images_go_to_a_member_that_takes_them() {
    use toolhold_protocol::image::Image;
    let image = Image::new("a.png", b"\x89PNG\r\n\x1a\n").unwrap();
    let mut shown = request();
    shown
        .messages
        .push(ChatMessage::image("what is it?", image));
    let refusing = || {
        let mut replica = replica([Say("text")]);
        replica.policy.refuses_images = true;
        replica
    };
    let replicas = [refusing().weight(9), replica([Say("seen")])];
    let (mixed, models) = pool(replicas, |_| {});
    let (result, _) = ask(&mixed, &shown).await;
    assert_eq!(result.unwrap().content, "seen");
    assert_eq!(asked(&models), [0, 1]);
    let (none, models) = pool([refusing()], |_| {});
    let (result, heard) = ask(&none, &shown).await;
    assert_eq!(result.unwrap().content, "text");
    assert_eq!(asked(&models), [1]);
    let left_out = |it: &&Routing| matches!(it, Routing::ImagesLeftOut { images: 1, .. });
    assert_eq!(heard.routing.iter().filter(left_out).count(), 1);
}
