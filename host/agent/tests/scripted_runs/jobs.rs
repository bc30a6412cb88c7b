//! Section 7.13: calls that continue as jobs.

use super::support::{
    NoModules, Reply, Script, end, holds, json_of, lines, request, rest, results, run,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use toolhold_agent::calls::KeptBlobs;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_policy::{ErrorClass, JobQuestion, JobState};
use toolhold_protocol::blob::{BlobContent, BlobKeeper, BlobRefusal};
use toolhold_protocol::event::{Event, EventKind, Journal, NoJournal};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Execution, Tool};
use uuid::Uuid;

/// Digest of the component that renders.
const COMPONENT: &str = "c0ffee";

/// `video.render` answers with a job, and says that it may not be repeated.
#[derive(Debug, Default)]
struct Renderer {
    /// Answers to questions about the job. After them it is always unfinished.
    states: Mutex<VecDeque<ToolResult>>,
    asked: Mutex<Vec<String>>,
    /// When it was called and asked, and the time that it had each time.
    times: Mutex<Vec<(Instant, Duration)>>,
}

impl Renderer {
    fn answering(states: impl IntoIterator<Item = ToolResult>) -> Arc<Self> {
        Arc::new(Self {
            states: Mutex::new(states.into_iter().collect()),
            ..Self::default()
        })
    }

    fn answer(&self, states: impl IntoIterator<Item = ToolResult>) {
        self.states.lock().unwrap().extend(states);
    }

    /// How often it was asked this.
    fn count(&self, what: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| *it == what).count()
    }
}

fn answered(output: ToolOutput) -> ToolResult {
    ToolResult {
        outcome: Ok(output),
        usage: ToolUsage {
            fuel: 10,
            ..ToolUsage::default()
        },
        printed: Vec::new(),
        module: Some(COMPONENT.into()),
        cached: None,
    }
}

fn working(done: u64) -> ToolResult {
    answered(ToolOutput {
        job: Some(JobState {
            id: "job-1".into(),
            done,
            total: Some(3),
            note: "frames".into(),
        }),
        ..ToolOutput::default()
    })
}

fn done(value: Value) -> ToolResult {
    answered(value.into())
}

fn failed(class: ErrorClass) -> ToolResult {
    ToolResult::failed(ToolFailure {
        kind: "tool".into(),
        class,
        message: "no".into(),
    })
}

impl ToolSource for Renderer {
    fn tools(&self) -> Vec<Arc<Tool>> {
        vec![Arc::new(Tool {
            parameters: json!({"type": "object"}),
            output: Some(json!({"type": "integer"})),
            execution: Execution::Module("video.render".into()),
            ..Tool::new("video.render")
        })]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { NoModules.module(name).await })
    }
}

impl ToolRunner for Renderer {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        // A question goes to the component that began the job, also in another process.
        let now = (Instant::now(), call.timeout);
        self.times.lock().unwrap().push(now);
        let module = call.job.as_ref().map(|question| &question.job().module);
        assert!(module.is_none_or(|module| module.as_deref() == Some(COMPONENT)));
        let (asked, result) = match &call.job {
            None => ("call".to_owned(), working(0)),
            Some(JobQuestion::State(job)) => {
                let next = self.states.lock().unwrap().pop_front();
                (
                    format!("state {}", job.id),
                    next.unwrap_or_else(|| working(1)),
                )
            }
            Some(JobQuestion::Cancel(job)) => (format!("cancel {}", job.id), done(Value::Null)),
        };
        self.asked.lock().unwrap().push(asked);
        Box::pin(std::future::ready(result))
    }
}

fn driver(renderer: &Arc<Renderer>) -> Driver {
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "video.render"})]),
        Reply::output("went on"),
    ]);
    Driver::new(script, renderer.clone())
}

fn asking() -> RunRequest {
    let mut request = request([]);
    request.settings.jobs.backoff = Duration::from_millis(10);
    request.settings.jobs.max_backoff = Duration::from_millis(20);
    request
}

/// The progress that was recorded.
fn told(events: &[Event]) -> Vec<u64> {
    let jobs = events.iter().filter_map(|event| match &event.kind {
        EventKind::Job { step: 1, job } => {
            assert_eq!((job.job.as_str(), job.total), ("job-1", Some(3)));
            assert_eq!(job.module.as_deref(), Some(COMPONENT));
            Some(job.done)
        }
        _ => None,
    });
    jobs.collect()
}

/// A run, and its events until the first of a job.
async fn until_job(driver: &Driver, request: RunRequest) -> (toolhold_agent::Run, Vec<Event>) {
    let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
    let mut events = Vec::new();
    while told(&events).is_empty() {
        let event = run.events.recv().await.unwrap();
        if !event.kind.is_shown_only() {
            events.push(event);
        }
    }
    (run, events)
}

/// No step of the model is taken for it, and the record, run again, comes to the same.
#[tokio::test]
async fn a_call_that_answers_with_a_job_is_waited_for_and_its_result_is_the_calls() {
    let renderer = Renderer::answering([working(1), working(1), working(2), done(json!(7))]);
    let events = run(&driver(&renderer), asking()).await;
    assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
    // Progress is recorded where it changed.
    assert_eq!(told(&events), [0, 1, 2]);
    assert_eq!(renderer.count("call"), 1);
    assert_eq!(renderer.count("state job-1"), 4);
    assert_eq!(renderer.count("cancel job-1"), 0);
    let result = events.iter().map(json_of);
    let result = result.into_iter().find(|it| it["event"] == "tool_result");
    // The call and all questions about its job.
    assert_eq!(result.unwrap()["usage"]["fuel"], 50);
    assert_eq!(end(&events), ("output".to_owned(), json!("went on")));
}

#[tokio::test]
async fn a_job_that_cannot_be_told_for_now_is_asked_about_again() {
    let states = [
        failed(ErrorClass::Retryable),
        working(2),
        failed(ErrorClass::Retryable),
        done(json!(7)),
    ];
    let renderer = Renderer::answering(states);
    let events = run(&driver(&renderer), asking()).await;
    assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
    assert_eq!(renderer.count("call"), 1);
}

/// A job takes hours, and no question about it more than a call may.
#[tokio::test(start_paused = true)]
async fn statement_000_69_waits_for_a_job_grow_and_a_question_has_the_time_of_a_call() {
    let states = (1..=6).map(working).chain([done(json!(7))]);
    let renderer = Renderer::answering(states);
    let mut request = asking();
    request.settings.jobs.backoff = Duration::from_millis(100);
    request.settings.jobs.max_backoff = Duration::from_secs(1);
    let most = request.settings.call_timeout;
    assert!(most <= Duration::from_mins(1) && most < request.settings.jobs.timeout);
    let events = run(&driver(&renderer), request).await;
    assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
    let times = renderer.times.lock().unwrap();
    let waits: Vec<Duration> = times
        .windows(2)
        .map(|pair| pair[1].0.duration_since(pair[0].0))
        .collect();
    assert_eq!(waits.len(), 7, "{waits:?}");
    // Half of each is random, and the clock counts in milliseconds.
    for (wait, longest) in waits.iter().zip([100, 200, 400, 800, 1_000, 1_000, 1_000]) {
        let longest = Duration::from_millis(longest);
        let end = longest + Duration::from_millis(1);
        assert!((longest / 2..=end).contains(wait), "{waits:?}");
    }
    assert!(times.iter().all(|(_, time)| *time <= most), "{times:?}");
}

#[tokio::test]
async fn the_failure_of_a_job_is_the_calls() {
    let renderer = Renderer::answering([working(1), failed(ErrorClass::Correctable)]);
    let events = run(&driver(&renderer), asking()).await;
    assert_eq!(results(&events)[0].1["error"]["message"], "no");
    // Its module said so, and knows that it is over.
    assert_eq!(renderer.count("cancel job-1"), 0);
    assert_eq!(end(&events).0, "output", "it is a message to the model");
}

/// The result of a job must fit the tool's output schema, as that of each call.
#[tokio::test]
async fn the_result_of_a_job_is_checked() {
    let renderer = Renderer::answering([done(json!("no integer"))]);
    let events = run(&driver(&renderer), asking()).await;
    assert!(
        results(&events)[0].1["error"].is_object(),
        "{}",
        lines(&events)
    );
}

#[tokio::test]
async fn a_job_that_takes_too_long_fails_its_call_and_is_told_to_stop() {
    let renderer = Renderer::answering([]);
    let mut request = asking();
    request.settings.jobs.timeout = Duration::from_millis(100);
    let events = run(&driver(&renderer), request).await;
    assert_eq!(results(&events)[0].1["error"]["kind"], "job_deadline");
    assert_eq!(renderer.count("cancel job-1"), 1);
    // By the number of questions as well.
    let renderer = Renderer::answering([]);
    let mut request = asking();
    request.settings.jobs.questions = 3;
    let events = run(&driver(&renderer), request).await;
    assert_eq!(results(&events)[0].1["error"]["kind"], "job_deadline");
    assert_eq!(renderer.count("state job-1"), 3);
    assert_eq!(renderer.count("cancel job-1"), 1);
}

#[tokio::test]
async fn a_run_that_ends_tells_its_job_to_stop_once() {
    let renderer = Renderer::answering([]);
    let (cancelled, mut events) = until_job(&driver(&renderer), asking()).await;
    cancelled.cancel.cancel();
    events.extend(rest(cancelled).await);
    holds(&events);
    assert_eq!(end(&events).0, "cancelled");
    assert_eq!(renderer.count("cancel job-1"), 1);

    let renderer = Renderer::answering([]);
    let mut request = asking();
    request.settings.timeout = Duration::from_millis(300);
    let events = run(&driver(&renderer), request).await;
    assert_eq!(end(&events).0, "timeout");
    assert_eq!(renderer.count("cancel job-1"), 1);
}

/// Its tool may not be repeated; without a job, the call would be lost.
#[tokio::test]
async fn a_resumed_run_asks_about_its_job_and_does_not_call_again() {
    let renderer = Renderer::answering([]);
    let driver = driver(&renderer);
    let (begun, mut events) = until_job(&driver, asking()).await;
    begun.stop().await;
    assert_eq!(renderer.count("cancel job-1"), 0, "the run goes on");
    let asked = renderer.count("state job-1");
    renderer.answer([working(2), done(json!(7))]);
    let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
    events.extend(rest(resumed).await);
    holds(&events);
    assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
    assert_eq!(renderer.count("call"), 1);
    assert_eq!(renderer.count("state job-1"), asked + 2);
    assert_eq!(end(&events), ("output".to_owned(), json!("went on")));
}

/// Has bytes for one read, and none after it.
#[derive(Debug)]
struct ReadOnce(Mutex<Option<Arc<str>>>);

impl BlobKeeper for ReadOnce {
    fn keep<'a>(&'a self, _: Uuid, _: &'a [BlobContent]) -> BoxFuture<'a, Result<(), BlobRefusal>> {
        Box::pin(std::future::ready(Err(BlobRefusal::Failed)))
    }

    fn read<'a>(&'a self, _: Uuid, _: &'a str) -> BoxFuture<'a, Option<Arc<str>>> {
        let bytes = self.0.lock().unwrap().take();
        Box::pin(std::future::ready(bytes))
    }
}

#[tokio::test]
async fn a_resumed_run_asks_about_its_job_where_bytes_of_its_arguments_are_gone() {
    let renderer = Renderer::answering([]);
    let name = format!("blob:sha256:{}", "0".repeat(64));
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "video.render", "of": name})]),
        Reply::output("went on"),
    ]);
    let bytes = ReadOnce(Mutex::new(Some("AAAA".into())));
    let driver = Driver {
        blobs: KeptBlobs::new(Arc::new(bytes)),
        ..Driver::new(script, renderer.clone())
    };
    let (begun, mut events) = until_job(&driver, asking()).await;
    begun.stop().await;
    renderer.answer([done(json!(7))]);
    let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
    events.extend(rest(resumed).await);
    assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
    assert_eq!(renderer.count("call"), 1);
    assert_eq!(renderer.count("cancel job-1"), 0);
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_is_resumed_tells_its_job_to_stop() {
    let renderer = Renderer::answering([]);
    let driver = driver(&renderer);
    let (begun, mut events) = until_job(&driver, asking()).await;
    begun.stop().await;
    let asked = renderer.count("state job-1");
    let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
    resumed.cancel.cancel();
    events.extend(rest(resumed).await);
    assert_eq!(end(&events).0, "cancelled");
    assert_eq!(renderer.count("cancel job-1"), 1);
    assert_eq!(
        renderer.count("state job-1"),
        asked,
        "nothing else is asked"
    );
}

/// The journal of a run that another process drives by the time it ends.
#[derive(Debug)]
struct LostRun;

impl Journal for LostRun {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        let ends = |event: &Event| matches!(event.kind, EventKind::Done { .. });
        let appended = if events.iter().any(ends) {
            Err(io::Error::other("another process drives the run"))
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(appended))
    }
}

#[tokio::test]
async fn a_process_that_lost_its_run_does_not_stop_its_job() {
    let renderer = Renderer::answering([]);
    let mut request = asking();
    request.settings.timeout = Duration::from_millis(300);
    let started = driver(&renderer).start(request, Box::new(LostRun)).await;
    let mut run = started.unwrap();
    while run.events.recv().await.is_some() {}
    run.finished().await.unwrap_err();
    assert!(renderer.count("state job-1") > 0);
    assert_eq!(renderer.count("cancel job-1"), 0);
}

/// A module reports progress as often as it is asked.
#[tokio::test]
async fn progress_without_end_is_recorded_a_hundred_times() {
    let states = (1..=110).map(working).chain([done(json!(7))]);
    let renderer = Renderer::answering(states);
    let mut request = asking();
    request.settings.jobs.max_backoff = Duration::from_millis(10);
    let events = run(&driver(&renderer), request).await;
    assert_eq!(results(&events)[0].1["output"], 7);
    assert_eq!(renderer.count("state job-1"), 111);
    assert_eq!(told(&events).len(), 100);
}

/// A runner that is no sandbox may answer with any state.
#[tokio::test]
async fn an_answer_about_a_job_tells_of_no_other_one() {
    let other = answered(ToolOutput {
        job: Some(JobState {
            id: "job-2".into(),
            done: 2,
            total: Some(3),
            note: String::new(),
        }),
        ..ToolOutput::default()
    });
    let renderer = Renderer::answering([other, done(json!(7))]);
    let events = run(&driver(&renderer), asking()).await;
    assert_eq!(results(&events)[0].1["output"], 7);
    // All of them are of the first one.
    assert_eq!(told(&events), [0, 2]);
}
