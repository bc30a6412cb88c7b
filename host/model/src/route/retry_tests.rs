use std::pin::pin;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, timeout};

use super::*;
use crate::route::scripted::Act::{
    Begin, Break, Never, NoConnection, Overflow, Refuse, RefuseFor, ReportInAnswer, Say,
    Unreachable,
};
use crate::route::scripted::{Act, Scripted, WatchRecorder, complete, request};
use crate::route::{BreakerPolicy, EndpointLimits, EndpointPolicy};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts: 4,
        backoff: seconds(1),
        max_backoff: seconds(8),
        max_retry_after: seconds(30),
        total_wait: seconds(60),
        unreached_wait: seconds(2),
    }
}

fn around(scripted: &Scripted, endpoint: EndpointPolicy, policy: RetryPolicy) -> Retry {
    let endpoint = Endpoint::new("one", scripted.clone(), endpoint);
    Retry::new(Arc::new(endpoint), policy)
}

fn retrying(acts: impl IntoIterator<Item = Act>) -> (Scripted, Retry) {
    let scripted = Scripted::new(acts);
    let retry = around(&scripted, EndpointPolicy::default(), policy());
    (scripted, retry)
}

#[tokio::test(start_paused = true)]
async fn only_transient_faults_are_retried() {
    for (acts, asked, succeeds) in [
        (vec![Say("yes")], 1, true),
        (vec![Refuse(503), Say("yes")], 2, true),
        (
            vec![Unreachable, Refuse(500), Refuse(429), Say("yes")],
            4,
            true,
        ),
        (vec![Refuse(502)], 4, false),
        (vec![Refuse(400)], 1, false),
        (vec![Refuse(401)], 1, false),
        (vec![Refuse(404)], 1, false),
        (vec![Overflow], 1, false),
        (vec![Refuse(503), Refuse(400)], 2, false),
        (vec![Break("half of"), Say("yes")], 1, false),
        (vec![Refuse(503), Break("half of"), Say("yes")], 2, false),
    ] {
        let (scripted, retry) = retrying(acts.clone());
        let (result, heard) = complete(&retry).await;
        assert_eq!(scripted.asked(), asked, "{acts:?}");
        assert_eq!(result.is_ok(), succeeds, "{acts:?}: {result:?}");
        let retries = heard.decisions().iter().filter(|d| *d == "retry").count();
        assert_eq!(retries, asked - 1, "{acts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_grow_and_end() {
    let started = Instant::now();
    let (scripted, retry) = retrying([Refuse(500)]);
    let (result, heard) = complete(&retry).await;
    let error = result.unwrap_err();
    assert!(
        matches!(error, ModelError::GaveUp { attempts: 4, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("after 4 attempts"), "{error}");
    assert_eq!(error.class(), ErrorClass::Retryable);
    // 1 + 2 + 4, up to half of it random.
    let waited = started.elapsed().as_secs_f64();
    assert!((3.5..=7.0).contains(&waited), "{waited}");
    assert_eq!(scripted.asked(), 4);
    assert_eq!(heard.decisions().last().unwrap(), "gave_up");
}

/// What is asked beside answers is given up when an answer would be.
#[test]
fn requests_other_than_completions_are_retried_alike() {
    let refused = |status, retry_after| ModelError::Status {
        status,
        retry_after,
        detail: Box::default(),
    };
    for (error, n, waited, waits) in [
        (refused(503, None), 1, 0, true),
        (refused(503, None), 3, 5, true),
        (refused(503, None), 4, 5, false),
        (refused(503, None), 1, 60, false),
        (refused(503, Some(seconds(30))), 1, 0, true),
        (refused(503, Some(seconds(31))), 1, 0, false),
        (refused(401, None), 1, 0, false),
        (refused(404, None), 1, 0, false),
    ] {
        let wait = policy().wait_after(&error, n, seconds(waited));
        assert_eq!(wait.is_some(), waits, "{error} {n} {waited}");
    }
}

#[test]
fn the_nth_wait_lies_between_a_half_and_the_whole_of_its_bound() {
    let policy = policy();
    for (n, most) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (u32::MAX, 8)] {
        assert_eq!(policy.wait(n, 1.0), seconds(most));
        assert_eq!(policy.wait(n, 0.0), seconds(most) / 2);
    }
    let hasty = RetryPolicy {
        backoff: Duration::ZERO,
        ..policy
    };
    assert_eq!(hasty.wait(1, 0.5), MIN_BACKOFF);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_out_up_to_a_bound() {
    let started = Instant::now();
    let (scripted, retry) = retrying([RefuseFor(429, seconds(20)), Say("yes")]);
    complete(&retry).await.0.unwrap();
    let waited = started.elapsed();
    assert!((seconds(20)..=seconds(21)).contains(&waited), "{waited:?}");
    assert_eq!(scripted.asked(), 2);

    let started = Instant::now();
    let (scripted, retry) = retrying([RefuseFor(429, seconds(3_600)), Say("yes")]);
    let (result, heard) = complete(&retry).await;
    assert!(matches!(
        result,
        Err(ModelError::GaveUp { attempts: 1, .. })
    ));
    assert_eq!(heard.decisions(), ["gave_up"]);
    assert_eq!((scripted.asked(), started.elapsed()), (1, Duration::ZERO));
    // Others need not ask to be told the same.
    let (result, _) = complete(&retry).await;
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("asked not to be called")
    );
    assert_eq!(scripted.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_rest_that_was_cut_one_request_probes_and_then_all_go() {
    let endpoint = EndpointPolicy {
        max_rest: seconds(10),
        ..EndpointPolicy::default()
    };
    let scripted = Scripted::new([RefuseFor(429, seconds(300)), Act::Think(seconds(5), "yes")]);
    let retry = around(&scripted, endpoint, policy());
    complete(&retry).await.0.unwrap_err();
    let runs: Vec<_> = (0..20)
        .map(|_| {
            let retry = retry.clone();
            tokio::spawn(async move { complete(&retry).await.0 })
        })
        .collect();
    sleep(seconds(9)).await;
    assert_eq!(scripted.asked(), 1, "nobody asks it meanwhile");
    sleep(seconds(3)).await;
    assert_eq!((scripted.asked(), scripted.busy()), (2, 1));
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!(scripted.asked(), 21);
    assert!(scripted.most_busy() > 1);
}

#[tokio::test(start_paused = true)]
async fn all_waits_together_are_bounded() {
    let started = Instant::now();
    let scripted = Scripted::new([RefuseFor(503, seconds(25))]);
    let patient = RetryPolicy {
        attempts: 100,
        ..policy()
    };
    let retry = around(&scripted, EndpointPolicy::default(), patient);
    complete(&retry).await.0.unwrap_err();
    assert!(started.elapsed() <= seconds(60), "{:?}", started.elapsed());
    assert_eq!(scripted.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_cancelled_by_dropping_it() {
    let (scripted, retry) = retrying([RefuseFor(429, seconds(20)), Say("yes")]);
    let request = request();
    let mut heard = WatchRecorder::default();
    {
        let mut asking = pin!(retry.complete(&request, &mut heard));
        assert!(timeout(seconds(5), &mut asking).await.is_err());
    }
    tokio::time::sleep(seconds(60)).await;
    assert_eq!((scripted.asked(), scripted.busy()), (1, 0));
    assert_eq!(heard.decisions(), ["retry"]);
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_is_waited_out_without_asking() {
    let scripted = Scripted::new([Refuse(500), Refuse(500), Say("yes")]);
    let endpoint = EndpointPolicy {
        breaker: BreakerPolicy {
            failures: 2,
            window: seconds(30),
            rest: seconds(15),
        },
        ..EndpointPolicy::default()
    };
    let retry = around(&scripted, endpoint, policy());
    let started = Instant::now();
    let (result, heard) = complete(&retry).await;
    result.unwrap();
    assert_eq!(scripted.asked(), 3);
    assert!(started.elapsed() >= seconds(15));
    assert_eq!(
        heard.decisions(),
        ["retry", "opened", "retry", "retry", "trial", "closed"]
    );
}

/// Without a listener the first request fails within three seconds, and later ones fail at once.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_opens_no_connection_is_told_soon_and_then_at_once() {
    let scripted = Scripted::new([
        NoConnection,
        NoConnection,
        NoConnection,
        NoConnection,
        Say("yes"),
    ]);
    let policy = RetryPolicy {
        backoff: Duration::from_millis(500),
        ..policy()
    };
    let retry = around(&scripted, EndpointPolicy::default(), policy);
    let started = Instant::now();
    let (result, _) = complete(&retry).await;
    let error = result.unwrap_err();
    assert!(started.elapsed() <= seconds(3), "{:?}", started.elapsed());
    assert_eq!(error.class(), ErrorClass::Retryable);
    assert!(error.available_after().is_some(), "{error}");
    assert_eq!(scripted.asked(), 3);
    for _ in 0..5 {
        let again = Instant::now();
        let (result, heard) = complete(&retry).await;
        let error = result.unwrap_err();
        assert_eq!(again.elapsed(), Duration::ZERO);
        assert!(error.to_string().contains("opens no connection"), "{error}");
        assert!(
            error
                .available_after()
                .is_some_and(|wait| wait <= seconds(10))
        );
        assert!(heard.decisions().is_empty(), "{heard:?}");
    }
    // One request tries it, and is told at once as well.
    sleep(seconds(10)).await;
    let again = Instant::now();
    complete(&retry).await.0.unwrap_err();
    assert_eq!((again.elapsed(), scripted.asked()), (Duration::ZERO, 4));
    sleep(seconds(10)).await;
    assert_eq!(complete(&retry).await.0.unwrap().content, "yes");
}

/// The error counts as its status and does not open the breaker.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_reported_in_an_answer_is_no_failure_of_the_endpoint() {
    let limited = (0..12).map(|_| ReportInAnswer("429"));
    let scripted = Scripted::new(limited.chain([Say("yes")]));
    let patient = RetryPolicy {
        attempts: 20,
        total_wait: seconds(600),
        ..policy()
    };
    let retry = around(&scripted, EndpointPolicy::default(), patient);
    let (result, heard) = complete(&retry).await;
    assert_eq!(result.unwrap().content, "yes");
    assert_eq!(scripted.asked(), 13);
    assert_eq!(heard.decisions(), vec!["retry"; 12]);
}

/// A whole answer may take minutes: others need not wait for it.
#[tokio::test(start_paused = true)]
async fn a_trial_closes_the_circuit_with_its_first_piece() {
    let endpoint = EndpointPolicy {
        breaker: BreakerPolicy {
            failures: 2,
            window: seconds(30),
            rest: seconds(15),
        },
        ..EndpointPolicy::default()
    };
    let acts = [
        Refuse(500),
        Refuse(500),
        Begin("slowly", seconds(600)),
        Say("yes"),
    ];
    let scripted = Scripted::new(acts);
    let retry = Arc::new(around(&scripted, endpoint, policy()));
    let long = tokio::spawn({
        let retry = retry.clone();
        async move { complete(retry.as_ref()).await }
    });
    while scripted.asked() < 3 {
        sleep(seconds(1)).await;
    }
    let (result, heard) = complete(retry.as_ref()).await;
    assert_eq!(result.unwrap().content, "yes");
    assert!(heard.decisions().is_empty(), "{heard:?}");
    assert!(!long.is_finished());
    let (result, heard) = long.await.unwrap();
    assert_eq!(result.unwrap().content, "slowly");
    let decisions = ["retry", "opened", "retry", "retry", "trial", "closed"];
    assert_eq!(heard.decisions(), decisions);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_setting_to_change() {
    let scripted = Scripted::new([Never]);
    let endpoint = EndpointPolicy {
        limits: EndpointLimits {
            concurrent_requests: 1,
            queue_timeout: seconds(2),
            ..EndpointLimits::default()
        },
        ..EndpointPolicy::default()
    };
    let retry = Arc::new(around(&scripted, endpoint, policy()));
    let busy = tokio::spawn({
        let retry = retry.clone();
        async move { complete(retry.as_ref()).await }
    });
    tokio::task::yield_now().await;
    let error = complete(retry.as_ref()).await.0.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no place became free at one within 2.0s"),
        "{text}"
    );
    assert!(text.contains("concurrent_requests"), "{text}");
    busy.abort();
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Say("yes")),
        Just(Refuse(500)),
        Just(Refuse(429)),
        Just(RefuseFor(503, seconds(2))),
        Just(Unreachable),
        Just(Refuse(400)),
        Just(Break("half of an answer")),
    ]
}

proptest! {
    /// Whatever happens: what was given out is one answer or the beginning of one, and after its first
    /// piece nothing is sent any more.
    #[test]
    fn nothing_is_sent_after_a_piece_was_given_out(acts in prop::collection::vec(act(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (scripted, retry) = retrying(acts.clone());
            let (result, heard) = complete(&retry).await;
            let speaks = |act: &Act| matches!(act, Say(_) | Break(_));
            if let Some(first) = acts.iter().position(speaks) {
                prop_assert!(scripted.asked() <= first + 1);
            }
            match (heard.text.as_str(), result) {
                ("yes", Ok(_))
                | ("", Err(_))
                | ("half of an answer", Err(ModelError::Truncated { .. })) => {}
                (text, result) => prop_assert!(false, "{text:?}, {result:?}"),
            }
            Ok(())
        })?;
    }
}
