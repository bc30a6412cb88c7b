use super::*;
use crate::calls::{
    CallDecider, CallEnd, CallPipeline, CallRecorder, CallRecording, CallRequest, CallRules,
    CallableTool, NewCall, NoDecision, OpenJobs, Unlimited,
};
use crate::guard::shield::Shields;
use crate::toolbox::{ResolvedModule, ToolRunner, ToolSource};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::io;
use std::sync::Mutex;
use toolhold_protocol::decision::{Decision, DecisionRules, Pending};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::tool::Tool;

/// Fails for now the first `failures` times. Each attempt takes `takes`.
#[derive(Debug)]
struct Flaky {
    failures: u32,
    takes: Duration,
    class: ErrorClass,
    /// Number of first attempts that found no place.
    placeless: usize,
    /// The time that each attempt was given.
    given: Mutex<Vec<Duration>>,
}

impl Flaky {
    fn new(failures: u32) -> Self {
        Self {
            failures,
            takes: Duration::from_secs(1),
            class: ErrorClass::Retryable,
            placeless: 0,
            given: Mutex::default(),
        }
    }

    fn attempts(&self) -> usize {
        self.given.lock().unwrap().len()
    }
}

impl ToolSource for Flaky {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async { Err("none".into()) })
    }
}

impl ToolRunner for Flaky {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let attempt = {
                let mut given = self.given.lock().unwrap();
                given.push(call.timeout);
                given.len()
            };
            tokio::time::sleep(self.takes.min(call.timeout)).await;
            let outcome = if attempt <= usize::try_from(self.failures).unwrap() {
                Err(ToolFailure {
                    kind: "busy".into(),
                    class: self.class,
                    message: "try again later".into(),
                })
            } else {
                Ok(json!("done").into())
            };
            ToolResult {
                outcome,
                usage: ToolUsage {
                    duration_us: 1_000_000,
                    fuel: 5,
                    memory_bytes: 7,
                    never_began: attempt <= self.placeless,
                    ..ToolUsage::default()
                },
                printed: vec!["denied: a file".into(), format!("attempt {attempt}")],
                module: None,
                cached: None,
            }
        })
    }
}

/// Keeps what is told.
#[derive(Debug, Clone, Default)]
struct Told(Arc<Mutex<Vec<ToolRetry>>>);

impl CallRecorder for Told {
    fn ready(&self) -> Result<(), ToolFailure> {
        Ok(())
    }

    fn begin<'a>(&'a self, _: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>> {
        let recording: Box<dyn CallRecording> = Box::new(self.clone());
        Box::pin(std::future::ready(recording))
    }

    fn within(&self, _: &str) -> Arc<dyn CallRecorder> {
        Arc::new(self.clone())
    }
}

impl CallRecording for Told {
    fn event(&mut self, event: EventKind) -> BoxFuture<'_, ()> {
        if let EventKind::ToolRetry { retry, .. } = event {
            self.0.lock().unwrap().push(retry);
        }
        Box::pin(std::future::ready(()))
    }

    fn started<'a>(&'a mut self, _: Option<&'a Value>) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(self: Box<Self>, _: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn forget(self: Box<Self>) {}
}

#[derive(Debug)]
struct NoPerson;

impl CallDecider for NoPerson {
    fn decide<'a>(&'a self, _: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>> {
        Box::pin(async { Err(NoDecision::HandedBack) })
    }

    fn within(&self, _: &str) -> Arc<dyn CallDecider> {
        Arc::new(Self)
    }
}

const READS: Annotations = Annotations {
    read_only: true,
    idempotent: false,
    destructive: false,
    open_world: false,
    fire_and_forget: false,
};
const REPEATABLE: Annotations = Annotations {
    read_only: false,
    idempotent: true,
    ..READS
};
const WRITES: Annotations = Annotations {
    read_only: false,
    ..READS
};

/// Makes one call of the tool, as a caller outside of a run does.
async fn called(
    toolbox: &Arc<Flaky>,
    annotations: Annotations,
    policy: ToolRetryPolicy,
    timeout: Duration,
) -> (ToolResult, Vec<ToolRetry>) {
    let told = Told::default();
    let pipeline = CallPipeline {
        toolbox: toolbox.clone().into(),
        tools: Arc::default(),
        rules: Arc::new(CallRules::direct(
            &Settings {
                call_timeout: timeout,
                tool_retry: policy,
                decisions: DecisionRules::default(),
                ..Settings::default()
            },
            Shields::default(),
        )),
        decider: Arc::new(NoPerson),
        budget: Arc::new(Unlimited),
        recorder: Arc::new(told.clone()),
        jobs: OpenJobs::default(),
        hiding: None,
        call_depth: 0,
    };
    let tool = Tool {
        annotations,
        ..Tool::new("t")
    };
    let end = pipeline
        .call(CallRequest {
            id: "c".into(),
            tool: Arc::new(CallableTool::new(tool).unwrap()),
            name: "t".into(),
            arguments: json!({}),
            asked_as: "c".into(),
            callers: Vec::new(),
            timeout: None,
            restrictions: None,
            begin: None,
            listener: None,
        })
        .await
        .unwrap();
    let told = told.0.lock().unwrap().clone();
    (end.result, told)
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn a_tool_that_may_be_repeated_is_called_again_where_it_failed_for_now() {
    for annotations in [READS, REPEATABLE] {
        let toolbox = Arc::new(Flaky::new(2));
        let policy = ToolRetryPolicy::default();
        let (result, told) = called(&toolbox, annotations, policy, MINUTE).await;
        assert_eq!(result.outcome.unwrap().value, "done");
        assert_eq!(toolbox.attempts(), 3);
        // What all attempts took.
        let usage = result.usage;
        assert_eq!((usage.retries, usage.calls, usage.fuel), (2, 2, 15));
        assert_eq!((usage.duration_us, usage.memory_bytes), (3_000_000, 7));
        // What every attempt is denied is told once.
        let printed = ["attempt 1", "attempt 2", "denied: a file", "attempt 3"];
        assert_eq!(result.printed, printed);
        // Each is told, and the waits grow.
        let numbers: Vec<u32> = told.iter().map(|retry| retry.attempt).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(
            told.iter()
                .all(|retry| (&*retry.id, &*retry.error) == ("c", "busy"))
        );
        assert!((100..=200).contains(&told[0].wait_ms), "{told:?}");
        assert!((200..=400).contains(&told[1].wait_ms), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_may_not_be_repeated_is_called_once() {
    let toolbox = Arc::new(Flaky::new(1));
    let (result, told) = called(&toolbox, WRITES, ToolRetryPolicy::default(), MINUTE).await;
    assert_eq!(result.outcome.unwrap_err().message, "try again later");
    assert_eq!((toolbox.attempts(), told.len()), (1, 0));
    assert_eq!(result.usage.retries, 0);
}

/// Any call that found no place is made again; after its begin, the annotations of its tool decide.
#[tokio::test(start_paused = true)]
async fn a_call_that_never_began_is_made_again() {
    for (failures, placeless, attempts) in [(1, 1, 2), (2, 2, 3), (2, 1, 2), (99, 99, 3)] {
        let toolbox = Arc::new(Flaky {
            placeless,
            ..Flaky::new(failures)
        });
        let (result, told) = called(&toolbox, WRITES, ToolRetryPolicy::default(), MINUTE).await;
        assert_eq!(toolbox.attempts(), attempts, "{failures} {placeless}");
        assert_eq!(told.len(), attempts - 1);
        let is_done = usize::try_from(failures).unwrap() < attempts;
        assert_eq!(result.outcome.is_ok(), is_done, "{failures} {placeless}");
        assert!(!result.usage.never_began, "it is for attempts alone");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_call_would_not_mend_is_not_tried_again() {
    for class in [ErrorClass::Correctable, ErrorClass::Fatal] {
        let toolbox = Arc::new(Flaky {
            class,
            ..Flaky::new(1)
        });
        let (result, _) = called(&toolbox, READS, ToolRetryPolicy::default(), MINUTE).await;
        assert!(result.outcome.is_err());
        assert_eq!(toolbox.attempts(), 1, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_waits_and_the_time_of_the_call_are_bounds() {
    let usual = ToolRetryPolicy::default();
    // By the number of attempts, and the failure says how many there were.
    let toolbox = Arc::new(Flaky::new(99));
    let (result, _) = called(&toolbox, READS, usual, MINUTE).await;
    let message = result.outcome.unwrap_err().message;
    assert_eq!(message, "try again later (tried 3 times)");
    assert_eq!(toolbox.attempts(), 3);
    let once = ToolRetryPolicy {
        attempts: 1,
        ..usual
    };
    let toolbox = Arc::new(Flaky::new(99));
    called(&toolbox, READS, once, MINUTE).await;
    assert_eq!(toolbox.attempts(), 1);
    // By all waits together.
    let many = ToolRetryPolicy {
        attempts: 1_000,
        backoff: Duration::from_secs(2),
        max_backoff: Duration::from_secs(2),
        total_wait: Duration::from_secs(4),
    };
    let toolbox = Arc::new(Flaky::new(99));
    let (_, told) = called(&toolbox, READS, many, MINUTE).await;
    let waited: u64 = told.iter().map(|retry| retry.wait_ms).sum();
    assert!(waited <= 4_000 && (3..=5).contains(&toolbox.attempts()));
    // By the time of the call, of which each attempt gets what is left.
    let toolbox = Arc::new(Flaky::new(99));
    let begun = Instant::now();
    let time = Duration::from_millis(2_900);
    called(&toolbox, READS, many, time).await;
    // The timer counts in milliseconds.
    let most = time + Duration::from_millis(5);
    assert!(begun.elapsed() <= most, "{:?}", begun.elapsed());
    let given = toolbox.given.lock().unwrap().clone();
    assert_eq!(given[0], time);
    assert!(given.iter().skip(1).all(|left| *left < time), "{given:?}");
}

/// No wait is so short that a tool that fails at once is called in a hot loop.
#[tokio::test(start_paused = true)]
async fn there_is_always_a_wait() {
    let hasty = ToolRetryPolicy {
        backoff: Duration::ZERO,
        ..ToolRetryPolicy::default()
    };
    let toolbox = Arc::new(Flaky::new(99));
    let (_, told) = called(&toolbox, READS, hasty, MINUTE).await;
    let waits: Vec<u64> = told.iter().map(|retry| retry.wait_ms).collect();
    assert_eq!(waits, [10, 10]);
}
