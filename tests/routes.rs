//! Where requests go and what is done when they fail: over real sockets, against endpoints that refuse,
//! break and die.

use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint as Server, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host};
use toolhold_model::route::{
    BreakerPolicy, Endpoint, EndpointLimits, EndpointPolicy, Member, Pool, PoolPolicy, Relief,
    Retry, RetryPolicy,
};
use toolhold_model::{
    ChatMessage, ChatRequest, CompletionObserver, HttpRequest, HttpResponse, HttpTransport, Model,
    ModelError, OpenAiModel, Timeouts, Transport, TransportError,
};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::routing::Routing;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn hasty() -> RetryPolicy {
    RetryPolicy {
        backoff: ms(20),
        max_backoff: ms(100),
        ..RetryPolicy::default()
    }
}

fn transport(server: &Server) -> Arc<dyn Transport> {
    let transport = HttpTransport::new(&server.base_url(), None, Duration::from_secs(2));
    Arc::new(transport.unwrap())
}

fn endpoint(name: &str, server: &Server, policy: EndpointPolicy) -> Arc<Endpoint> {
    let model = OpenAiModel::new(transport(server), "small", Timeouts::default());
    Arc::new(Endpoint::new(name, model, policy))
}

fn request() -> ChatRequest {
    ChatRequest {
        max_tokens: Some(1_000),
        ..ChatRequest::new("", vec![ChatMessage::user("hello")])
    }
}

#[derive(Default)]
struct RoutedRun {
    text: String,
    decisions: Vec<String>,
}

impl CompletionObserver for RoutedRun {
    fn delta(&mut self, delta: Delta) {
        if let Delta::Content(text) = delta {
            self.text.push_str(&text);
        }
    }

    fn routing(&mut self, routing: Routing) {
        let value = serde_json::to_value(routing).unwrap();
        let decision = value["decision"].as_str().unwrap();
        self.decisions.push(decision.to_owned());
    }
}

async fn ask(model: &dyn Model) -> (Result<Completion, ModelError>, RoutedRun) {
    let mut heard = RoutedRun::default();
    let result = model.complete(&request(), &mut heard).await;
    (result, heard)
}

fn refusal(status: u16) -> Reply {
    Reply::error(status, json!({"error": {"message": "not now"}}))
}

#[tokio::test]
async fn an_endpoint_that_keeps_failing_is_left_alone_and_tried_again() {
    let replies = [
        refusal(503),
        refusal(503),
        refusal(503),
        Reply::content("back"),
    ];
    let server = Server::start(Scenario::new(replies));
    let policy = EndpointPolicy {
        breaker: BreakerPolicy {
            failures: 3,
            window: Duration::from_secs(30),
            rest: ms(1_500),
        },
        ..EndpointPolicy::default()
    };
    let endpoint = endpoint("one", &server, policy);
    for n in 1..=3 {
        let (result, heard) = ask(endpoint.as_ref()).await;
        assert!(matches!(
            result,
            Err(ModelError::Status { status: 503, .. })
        ));
        assert_eq!(heard.decisions.is_empty(), n < 3, "{:?}", heard.decisions);
    }
    let opened = Instant::now();
    for _ in 0..20 {
        let error = ask(endpoint.as_ref()).await.0.unwrap_err().to_string();
        assert!(error.contains("one failed too often"), "{error}");
    }
    assert_eq!(server.requests().len(), 3, "no request reaches it");
    let retry = Retry::new(endpoint, hasty());
    let (result, heard) = ask(&retry).await;
    assert_eq!(result.unwrap().content, "back");
    assert!(opened.elapsed() >= ms(1_500));
    assert_eq!(server.requests().len(), 4);
    assert!(
        heard
            .decisions
            .ends_with(&["trial".into(), "closed".into()])
    );
}

/// Wherever the connection breaks: either nothing was given out and the second answer is all there is, or
/// the first one is, and the server was asked once.
#[tokio::test]
async fn nothing_is_sent_again_after_a_piece_was_given_out() {
    let (mut again, mut kept) = (0, 0);
    for bytes in (0..1_200).step_by(40) {
        let server = Server::start(Scenario::new([
            Reply::content("the first answer").truncated_after(bytes),
            Reply::content("the second answer"),
        ]));
        let retry = Retry::new(endpoint("one", &server, EndpointPolicy::default()), hasty());
        let (result, heard) = ask(&retry).await;
        match server.requests().len() {
            2 => {
                again += 1;
                assert_eq!(heard.text, "the second answer", "{bytes}");
                assert_eq!(result.unwrap().content, "the second answer");
            }
            1 => {
                kept += 1;
                assert!(!heard.text.is_empty(), "{bytes}");
                assert!("the first answer".starts_with(&heard.text), "{bytes}");
                assert!(heard.decisions.is_empty());
            }
            n => panic!("{n} requests after a break at {bytes}"),
        }
    }
    assert!(again > 0 && kept > 0, "{again} {kept}");
}

#[tokio::test]
async fn a_wait_before_another_attempt_is_cancelled_by_leaving() {
    let replies = [
        refusal(429).with_header("Retry-After", "2"),
        Reply::content("late"),
    ];
    let server = Server::start(Scenario::new(replies));
    let retry = Retry::new(endpoint("one", &server, EndpointPolicy::default()), hasty());
    let (request, mut heard) = (request(), RoutedRun::default());
    let asking = retry.complete(&request, &mut heard);
    assert!(tokio::time::timeout(ms(1_000), asking).await.is_err());
    assert_eq!(heard.decisions, ["retry"]);
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!((server.requests().len(), server.open_streams()), (1, 0));
}

#[tokio::test]
async fn under_overload_the_server_is_asked_for_less() {
    let server = Server::start(Scenario::new([refusal(429), Reply::content("short")]));
    let member = Member {
        endpoint: endpoint("one", &server, EndpointPolicy::default()),
        weight: 1,
    };
    let policy = PoolPolicy {
        retry: hasty(),
        overload: vec![Relief::FewerTokens],
        fewer_tokens: 64,
        ..PoolPolicy::default()
    };
    let (result, heard) = ask(&Pool::new("all", vec![member], policy)).await;
    assert_eq!(result.unwrap().content, "short");
    assert_eq!(
        heard.decisions,
        ["chosen", "member_failed", "degraded", "retry"]
    );
    let asked: Vec<_> = server
        .requests()
        .iter()
        .map(|r| r["max_tokens"].clone())
        .collect();
    assert_eq!(asked, [json!(1_000), json!(64)]);
}

/// Counts the exchanges that are under way, until their bodies are dropped.
#[derive(Debug)]
struct CountingTransport {
    inner: Arc<dyn Transport>,
    counts: Arc<ExchangeCounts>,
}

#[derive(Debug, Default)]
struct ExchangeCounts {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct ExchangeInProgress(Arc<ExchangeCounts>);

impl ExchangeInProgress {
    fn begin(counts: &Arc<ExchangeCounts>) -> Self {
        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(now, Ordering::SeqCst);
        Self(counts.clone())
    }
}

impl Drop for ExchangeInProgress {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Transport for CountingTransport {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async move {
            let under_way = ExchangeInProgress::begin(&self.counts);
            let mut response = self.inner.send(request).await?;
            response.body = response
                .body
                .inspect(move |_| {
                    let _ = &under_way;
                })
                .boxed();
            Ok(response)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_requests_at_once_never_exceed_the_limit() {
    let reply = Reply::content("done").delayed_ms(5, 0);
    let server = Server::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
    let counts = Arc::new(ExchangeCounts::default());
    let counting = CountingTransport {
        inner: transport(&server),
        counts: counts.clone(),
    };
    let policy = EndpointPolicy {
        limits: EndpointLimits {
            concurrent_requests: 8,
            ..EndpointLimits::default()
        },
        ..EndpointPolicy::default()
    };
    let model = OpenAiModel::new(Arc::new(counting), "small", Timeouts::default());
    let member = Member {
        endpoint: Arc::new(Endpoint::new("one", model, policy)),
        weight: 1,
    };
    let pool = Arc::new(Pool::new("all", vec![member], PoolPolicy::default()));
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { ask(pool.as_ref()).await.0.map(drop) })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap().unwrap();
    }
    assert_eq!(server.requests().len(), 200);
    assert_eq!(counts.most.load(Ordering::SeqCst), 8);
    assert_eq!(counts.now.load(Ordering::SeqCst), 0);
}

fn calls(tool: &str, arguments: Value) -> Reply {
    let mut call = json!({"_tool": tool, "_reasoningForCall": "because"});
    call.as_object_mut()
        .unwrap()
        .extend(arguments.as_object().unwrap().clone());
    Reply::solution(json!({"calls": [call], "output": null}))
}

fn calculates() -> Reply {
    calls("calculator.evaluate", json!({"expression": "17*23"}))
}

fn answers(output: Value) -> Reply {
    Reply::solution(json!({"calls": [], "output": output}))
}

/// A host whose endpoints are these servers, by name, and what else is configured.
fn host(servers: &[(&str, &Server)], more: &str) -> Host {
    let host = Host::new();
    host.ship("calculator");
    let mut config = String::from("[endpoints.default]\nbackoff_ms = 50\n");
    for (name, server) in servers {
        let url = server.base_url();
        writeln!(
            config,
            "[endpoints.{name}]\nbase_url = \"{url}\"\nmodel = \"{name}\""
        )
        .unwrap();
    }
    host.write("toolhold.toml", config + more);
    host
}

fn events(done: &Finished) -> Vec<Value> {
    done.stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one event a line"))
        .collect()
}

fn decisions(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event["event"] == "routing")
        .filter_map(|event| event["decision"].as_str())
        .collect()
}

fn models(server: &Server) -> Vec<Value> {
    server
        .requests()
        .iter()
        .map(|r| r["model"].clone())
        .collect()
}

#[test]
fn a_run_waits_as_long_as_it_was_asked_to_and_goes_on() {
    let server = Server::start(Scenario::new([
        refusal(429).with_header("Retry-After", "1"),
        answers(json!("391")),
    ]));
    let host = host(&[("one", &server)], "");
    let started = Instant::now();
    let done = host.run(&["run", "17*23?", "--endpoint", "one", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(started.elapsed() >= Duration::from_secs(1));
    let events = events(&done);
    assert_eq!(decisions(&events), ["retry"]);
    let told = events
        .iter()
        .find(|event| event["event"] == "routing")
        .unwrap();
    assert!(told["wait_ms"].as_u64().unwrap() >= 1_000, "{told}");
    assert_eq!(told["endpoint"], "one");
    // What was decided on the way changes nothing of the run: its record is still one.
    let shown = host.run(&["show", "last"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

#[test]
fn a_run_goes_on_when_its_replica_dies() {
    let dying = Server::start(Scenario::new([calculates()]));
    let spare = Server::start(Scenario::new([answers(json!("391"))]));
    let host = host(
        &[("dying", &dying), ("spare", &spare)],
        "[pools.all]\nmembers = [\"dying\", \"spare\"]\n",
    );
    let mut child = host
        .command(&["run", "17*23?", "--endpoint", "all", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("\"event\":\"reply\"") {
        assert_ne!(out.read_line(&mut text).unwrap(), 0, "{text}");
    }
    drop(dying);
    out.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(decisions(&events), ["chosen", "member_failed", "chosen"]);
    assert_eq!(events.last().unwrap()["output"], "391");
    assert_eq!(models(&spare), ["spare"]);
    let told = spare.requests()[0]["messages"].to_string();
    assert!(told.contains("391"), "the tool's result came along: {told}");
}

/// A router over the servers tiny, easy and hard.
fn routed(tiny: &Server, easy: &Server, hard: &Server) -> Host {
    host(
        &[("tiny", tiny), ("easy", easy), ("hard", hard)],
        r#"
        [router]
        model = "tiny"
        default = "hard"
        [router.classes.easy]
        description = "little things"
        to = "easy"
        keywords = ["translate"]
        [router.classes.hard]
        description = "all else"
        to = "pool"
        [pools.pool]
        members = ["hard"]
        "#,
    )
}

#[test]
fn the_router_sends_a_run_where_the_small_model_says() {
    let tiny = Server::start(Scenario::new([Reply::content("{\"class\": \"hard\"}")]));
    let easy = Server::start(Scenario::new([answers(json!("bonjour"))]));
    let hard = Server::start(Scenario::new([calculates(), answers(json!("391"))]));
    let host = routed(&tiny, &easy, &hard);
    let done = host.run(&["run", "17*23?", "--endpoint", "router", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let run = events(&done);
    assert_eq!(decisions(&run), ["classified", "chosen"]);
    let told = run
        .iter()
        .find(|event| event["event"] == "routing")
        .unwrap();
    assert_eq!(
        (&told["class"], &told["to"], &told["by"]["model"]),
        (&json!("hard"), &json!("pool"), &json!("tiny"))
    );
    assert_eq!(models(&hard), ["hard", "hard"], "decided once for the run");
    let asked = &tiny.requests()[0];
    let schema = &asked["response_format"]["json_schema"]["schema"];
    assert_eq!(
        schema["properties"]["class"]["enum"],
        json!(["easy", "hard"])
    );
    assert_eq!(asked["messages"][1]["content"], "17*23?");

    let done = host.run(&["run", "Translate: hello", "--endpoint", "router", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(events(&done).last().unwrap()["output"], "bonjour");
    assert_eq!(tiny.requests().len(), 1, "a rule needs no request");
}

#[test]
fn a_resumed_run_stays_where_the_router_sent_it() {
    let tiny = Server::start(Scenario::new([
        Reply::content("{\"class\": \"hard\"}"),
        Reply::content("{\"class\": \"easy\"}"),
    ]));
    let easy = Server::start(Scenario::new([answers(json!("easy"))]));
    let silent = Reply {
        never: true,
        ..Reply::default()
    };
    let hard = Server::start(Scenario::new([calculates(), silent, answers(json!("391"))]));
    let host = routed(&tiny, &easy, &hard);
    let mut child = host
        .command(&["run", "17*23?", "--endpoint", "router"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_asked = hard.wait_until(Duration::from_mins(1), |hard| hard.requests().len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_asked);
    let done = host.run(&["resume", "last", "--endpoint", "router"]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "391"),
        "{done:?}"
    );
    assert_eq!((tiny.requests().len(), easy.requests().len()), (1, 0));
}

#[test]
fn a_router_that_cannot_decide_takes_the_default() {
    let tiny = Server::start(Scenario::new([refusal(500)]));
    let easy = Server::start(Scenario::new([answers(json!("easy"))]));
    let hard = Server::start(Scenario::new([answers(json!("hard"))]));
    let host = routed(&tiny, &easy, &hard);
    let done = host.run(&["run", "17*23?", "--endpoint", "router"]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "hard"),
        "{done:?}"
    );
    assert!(done.stderr.contains("a task of the class hard"), "{done:?}");
}

#[test]
fn an_invalid_pool_is_reported_before_any_request() {
    let server = Server::start(Scenario::new([]));
    let host = host(
        &[("one", &server)],
        "[pools.all]\nmembers = [\"one\", \"two\"]\n",
    );
    let done = host.run(&["run", "a task", "--endpoint", "all"]);
    assert_ne!(done.code, Some(0));
    assert!(
        done.stderr.contains("pools.all.members") && done.stderr.contains("[endpoints.two]"),
        "{done:?}"
    );
    assert!(done.stderr.contains("toolhold.toml"), "{done:?}");
}

#[test]
fn doctor_and_config_know_pools() {
    let (one, two) = (
        Server::start(Scenario::new([])),
        Server::start(Scenario::new([])),
    );
    let host = host(
        &[("one", &one), ("two", &two)],
        "endpoint = \"all\"\n[pools.all]\nmembers = [\"one\", \"two\"]\n",
    );
    // A key of the root stands before all tables.
    let text = std::fs::read_to_string(host.path().join("toolhold.toml")).unwrap();
    let text = text.replace("endpoint = \"all\"\n", "");
    host.write("toolhold.toml", format!("endpoint = \"all\"\n{text}"));
    drop(two);
    let done = host.run(&["doctor"]);
    assert!(done.stdout.contains("endpoint one:"), "{done:?}");
    assert!(done.stdout.contains("✗ endpoint two:"), "{done:?}");
    let done = host.run(&["config"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("pools.all.members"), "{done:?}");
}

/// The loser's connection is closed while the run goes on, so that its GPU stops.
#[test]
fn a_member_that_says_nothing_is_hedged_and_let_go() {
    let silent = Server::start(Scenario::new([Reply::never()]));
    let quick = Server::start(Scenario::new([calculates(), Reply::never()]));
    let host = host(
        &[("silent", &silent), ("quick", &quick)],
        "[pools.all]\nmembers = [\"silent\", \"quick\"]\nhedge_after_ms = 2_000\n",
    );
    let mut child = host
        .command(&["run", "17*23?", "--endpoint", "all", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let goes_on = quick.wait_until(Duration::from_mins(1), |quick| quick.requests().len() == 2);
    let is_closed = silent.wait_until(Duration::from_secs(10), |silent| silent.disconnects() == 1);
    let is_open = quick.open_streams();
    child.kill().unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(goes_on && is_closed, "{text}");
    assert_eq!((silent.open_streams(), is_open), (0, 1), "{text}");
    assert_eq!((silent.requests().len(), models(&quick).len()), (1, 2));
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(decisions(&events), ["chosen", "hedged", "chosen"]);
    let named = |name: &str| {
        let mut events = events.iter();
        events
            .find(|event| event["event"] == name)
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .clone()
    };
    let hedged = named("routing");
    assert_eq!(hedged["endpoint"], "silent");
    let lost = named("side_request");
    assert_eq!(
        (&lost["role"], &lost["endpoint"]),
        (&json!("hedge"), &json!("silent"))
    );
    assert!(lost["duration_ms"].as_u64().unwrap() >= 2_000, "{lost}");
    let again = host.run(&["runs", "replay", "last"]);
    assert!(again.stdout.contains("identical"), "{again:?}");
}

#[test]
fn an_endpoint_is_hedged_at_itself_only_where_that_is_set() {
    for (set, asked) in [("", 1), ("hedge_after_ms = 200\n", 2)] {
        let slow = answers(json!("slow")).delayed_ms(1_200, 0);
        let server = Server::start(Scenario::new([slow, answers(json!("fast"))]));
        let host = host(&[("one", &server)], set);
        let done = host.run(&["run", "a task", "--endpoint", "one", "--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let answer = if asked == 2 { "fast" } else { "slow" };
        assert_eq!(events(&done).last().unwrap()["output"], answer);
        assert_eq!(server.requests().len(), asked, "{set}");
    }
}

#[test]
fn the_routers_usage_counts_and_is_in_stats() {
    let tiny = Server::start(Scenario::new([Reply::content("{\"class\": \"easy\"}")]));
    let easy = Server::start(Scenario::new([answers(json!("391"))]));
    let hard = Server::start(Scenario::new([]));
    let host = routed(&tiny, &easy, &hard);
    let done = host.run(&["run", "17*23?", "--endpoint", "router", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let side = events.iter().find(|event| event["event"] == "side_request");
    let side = side.expect("what it took");
    assert_eq!(
        (&side["role"], &side["endpoint"], &side["model"]),
        (&json!("router"), &json!("tiny"), &json!("tiny"))
    );
    // Each reply is of 10 and 5 tokens.
    assert_eq!(events.last().unwrap()["tokens"], 30);
    let stats = host.run(&["stats", "last", "--json"]);
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    assert_eq!(
        stats["side_requests"][0]["total"]["prompt_tokens"], 10,
        "{stats}"
    );
    assert_eq!(stats["total"]["prompt_tokens"], 20, "{stats}");
    assert_eq!(stats["steps"].as_array().map(Vec::len), Some(1));
    let text = host.run(&["stats", "last"]).stdout;
    assert!(
        text.contains("routed    tiny: 1 request, 10 prompt, 5 completion"),
        "{text}"
    );
    let again = host.run(&["runs", "replay", "last"]);
    assert!(again.stdout.contains("identical"), "{again:?}");
}

#[test]
fn how_an_endpoint_failed_is_said_once() {
    let refusals = [
        Reply::error(400, json!({"error": {"message": "no such adapter"}})),
        refusal(503),
    ];
    for (refused, said) in refusals
        .into_iter()
        .zip(["no such adapter", "given up after 2"])
    {
        let server = Server::start(Scenario::new([refused]).in_order(ReplyOrder::Repeat));
        let host = host(&[("one", &server)], "attempts = 2\n");
        let done = host.run(&["run", "a task", "--endpoint", "one"]);
        assert_eq!(done.code, Some(3), "{done:?}");
        assert_eq!(done.stderr.matches(said).count(), 1, "{}", done.stderr);
        assert!(
            done.stderr
                .contains("stopped: endpoint failure after 1 step"),
            "{}",
            done.stderr
        );
        let shown = host.run(&["show", "last", "--json"]).stdout;
        assert!(
            shown.matches(said).count() > 1,
            "nothing is left out of the record: {shown}"
        );
    }
}

#[test]
fn doctor_checks_every_model_by_its_role() {
    let lists =
        |name: &str| Scenario::new([]).with_route("/v1/models", json!({"data": [{"id": name}]}));
    let [own, tiny, guard] = ["own", "tiny", "guard"].map(|name| Server::start(lists(name)));
    let big = Server::start(lists("another"));
    let dead = Server::start(lists("dead"));
    let host = host(
        &[
            ("own", &own),
            ("tiny", &tiny),
            ("guard", &guard),
            ("big", &big),
            ("dead", &dead),
        ],
        r#"
        [router]
        model = "tiny"
        default = "all"
        [router.classes.all]
        description = "all"
        to = "own"
        [shields.llama]
        kind = "model"
        endpoint = "guard"
        [shields.second]
        kind = "model"
        endpoint = "dead"
        [endpoints.keyless]
        base_url = "http://127.0.0.1:9/v1"
        model = "x"
        api_key_env = "NO_SUCH_KEY_HERE"
        [fallback]
        models = ["big", "own/other", "keyless"]
        "#,
    );
    drop(dead);
    let text = std::fs::read_to_string(host.path().join("toolhold.toml")).unwrap();
    host.write("toolhold.toml", format!("endpoint = \"router\"\n{text}"));
    let done = host.run(&["doctor"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "✓ endpoint own: ",
        "✓ router's model tiny: ",
        "✓ shield llama, model guard: ",
        "✗ shield second, model dead: ",
        "✗ fallback big: ",
        "has no model \"big\"",
        "✗ fallback own/other: ",
        "has no model \"other\"",
        "– fallback keyless: ",
        "endpoints.dead.base_url",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
}
