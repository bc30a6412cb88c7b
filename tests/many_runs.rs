//! Many runs in one process, over real sockets: none fails, and what each takes is bounded.

use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::finish;
use toolhold_agent::{Activities, Driver, NoModules};
use toolhold_model::route;
use toolhold_model::route::{EndpointPolicy, Retry, RetryPolicy};
use toolhold_model::{HttpTransport, OpenAiModel, Timeouts};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::RunRequest;

const RUNS: usize = 200;
/// Of the process, which is the scripted endpoint too and keeps what it was asked.
const MOST_BYTES_PER_RUN: usize = 2 << 20;

/// Set in the process that does nothing else.
const ALONE: &str = "TOOLHOLD_TEST_ALONE";

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

/// In a process of its own: what it takes of this one's memory cannot be told from what other tests take beside it.
#[test]
fn two_hundred_runs_at_once() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        return runtime.unwrap().block_on(two_hundred_runs());
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone
        .args(["many_runs::two_hundred_runs_at_once", "--exact"])
        .arg("--nocapture")
        .env(ALONE, "1");
    let done = finish(alone.output().unwrap());
    assert!(
        done.code == Some(0) && done.stdout.contains("1 passed"),
        "{done:?}"
    );
    eprint!("{}", done.stderr);
}

async fn two_hundred_runs() {
    let call = json!({"calls": [{"_tool": "echo", "_reasoningForCall": "r", "of": "told"}], "output": null});
    let endpoint = Endpoint::start(
        Scenario::new([
            Reply::solution(json!({"calls": [], "output": "done"}))
                .expecting(Expect::text("so it was told")),
            // Slow enough that all of them are under way together.
            Reply::solution(call).delayed_ms(300, 5),
        ])
        .in_order(ReplyOrder::FirstMatch),
    );
    let transport =
        HttpTransport::new(&endpoint.base_url(), None, Duration::from_secs(30)).unwrap();
    let model = OpenAiModel::new(Arc::new(transport), "m", Timeouts::default());
    let model = route::Endpoint::new("e", model, EndpointPolicy::default());
    let model = Retry::new(Arc::new(model), RetryPolicy::default());
    let driver = Driver {
        activities: Activities::default()
            .with("echo", |_: Value| async { Ok(json!("so it was told")) }),
        ..Driver::new(Arc::new(model), Arc::new(NoModules))
    };
    let tool = json!([{"type": "tool", "tool": {"echo": {
        "type": "object", "description": "Says it again.", "properties": {"of": {"type": "string"}}}}}]);
    let before = resident();
    let mut runs = Vec::new();
    for n in 0..RUNS {
        let mut request = RunRequest::new(uuid::Uuid::now_v7(), format!("task {n}"));
        request.context.extend(Message::parse_all(&tool).unwrap());
        runs.push(driver.start(request, Box::new(NoJournal)).await.unwrap());
    }
    let ends = runs.into_iter().map(|mut run| async move {
        let mut end = None;
        while let Some(event) = run.events.recv().await {
            if let EventKind::Done { reason, error, .. } = event.kind {
                end = Some((reason, error));
            }
        }
        end.expect("it ends")
    });
    let all = futures_util::future::join_all(ends);
    let ends = tokio::time::timeout(Duration::from_mins(2), all)
        .await
        .expect("they end");
    let each = resident().saturating_sub(before) / RUNS;
    eprintln!(
        "{RUNS} runs at once: {} KiB each, the endpoint included",
        each / 1024
    );
    for (n, (reason, error)) in ends.into_iter().enumerate() {
        assert_eq!(reason, StopReason::Output, "run {n}: {error:?}");
    }
    assert_eq!(endpoint.requests().len(), 2 * RUNS);
    assert!(each < MOST_BYTES_PER_RUN, "{each} bytes a run");
}
