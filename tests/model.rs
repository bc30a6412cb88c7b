//! The model client over real HTTP, against an endpoint that misbehaves as servers do.

use std::io::{Read as _, Seek as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use support::endpoint::raw::{RawEndpoint, RawStep};
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario, TokenForm};
use support::host::{Finished, Host, finish, peak_bytes, signal};
use support::rechunk::RechunkedTransport;
use toolhold_model::{
    ChatMessage, ChatRequest, Delivery, Health, HttpTransport, Model, ModelError, OpenAiModel,
    RecordingTransport, ReplayTransport, TimeoutPhase, Timeouts, Transport,
};
use toolhold_protocol::completion::{Completion, Delta};

const SOON: Duration = Duration::from_secs(15);

/// Longer than anything takes on a busy machine.
fn timeouts() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(10),
        first_token: Duration::from_secs(30),
        idle: Duration::from_secs(30),
        total: Duration::from_mins(1),
    }
}

fn transport(endpoint: &Endpoint, key: Option<&str>) -> Arc<dyn Transport> {
    let key = key.map(str::to_owned);
    let transport = HttpTransport::new(&endpoint.base_url(), key, timeouts().connect);
    Arc::new(transport.unwrap())
}

fn model(endpoint: &Endpoint) -> OpenAiModel {
    OpenAiModel::new(transport(endpoint, None), "small", timeouts()).with_key_variable("MY_KEY")
}

/// A model whose first token is late soon.
fn hurried(endpoint: &Endpoint) -> OpenAiModel {
    let timeouts = Timeouts {
        first_token: Duration::from_millis(500),
        ..timeouts()
    };
    OpenAiModel::new(transport(endpoint, None), "small", timeouts)
}

fn request() -> ChatRequest {
    ChatRequest::new("", vec![ChatMessage::user("hello")])
}

async fn complete(model: &OpenAiModel) -> Result<Completion, ModelError> {
    model.complete(&request(), &mut |_| {}).await
}

/// Whether `condition` holds soon. Sleeps without blocking: the client's side of a connection is a task of this very
/// thread.
async fn soon(condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + SOON;
    while !condition() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    condition()
}

/// Whether the server is left alone soon.
async fn is_freed(endpoint: &Endpoint) -> bool {
    soon(|| endpoint.open_connections() == 0 && endpoint.open_streams() == 0).await
}

async fn play(reply: Reply) -> Result<Completion, ModelError> {
    let endpoint = Endpoint::start(Scenario::new([reply]));
    complete(&model(&endpoint)).await
}

#[tokio::test]
async fn text_reasoning_calls_and_usage_arrive_whole() {
    let endpoint = Endpoint::play("answer");
    let mut text = String::new();
    let mut on_delta = |delta| {
        if let Delta::Content(piece) = delta {
            text.push_str(&piece);
        }
    };
    let model = model(&endpoint);
    let completion = model.complete(&request(), &mut on_delta).await.unwrap();
    assert_eq!(completion.content, "Grüße! What can I do for you? 😀");
    assert_eq!(text, completion.content);
    assert_eq!(completion.reasoning, "The user greets me.");
    assert_eq!(completion.usage.unwrap().prompt_tokens, 12);
    assert_eq!(completion.model.as_deref(), Some("small"));

    let calls = [
        ("add", json!({"a": 17, "b": "ü"})),
        ("add", json!({"a": 1})),
    ];
    let completion = play(Reply::tool_calls(calls)).await.unwrap();
    let arguments: Vec<&str> = completion
        .tool_calls
        .iter()
        .map(|c| &*c.arguments)
        .collect();
    assert_eq!(arguments, [r#"{"a":17,"b":"ü"}"#, r#"{"a":1}"#]);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let scenario = Scenario::new([Reply::content("hi")]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(scenario);
    let model = model(&endpoint);
    for _ in 0..5 {
        complete(&model).await.unwrap();
    }
    // One whose end comes too late to be waited for is given up.
    let connections = endpoint.connections();
    assert!(connections <= 2, "{connections}");
}

#[tokio::test]
async fn faults_of_the_wire_have_their_error() {
    let text = "a text that is long enough";
    let truncated = play(Reply::content(text).truncated_after(400))
        .await
        .unwrap_err();
    assert!(
        matches!(
            truncated,
            ModelError::Truncated {
                source: Some(_),
                ..
            }
        ),
        "{truncated}"
    );
    let cut = play(Reply::content(text).cut()).await;
    let Err(ModelError::Truncated {
        received,
        source: None,
    }) = cut
    else {
        panic!("{cut:?}");
    };
    assert_eq!(received.content, text);
    let without_done = play(Reply::content(text).without_done()).await;
    assert_eq!(without_done.unwrap().content, text);
    let spoiled = play(Reply::content(text).with_invalid_utf8()).await;
    assert_eq!(spoiled.unwrap().content, format!("\u{fffd}{text}"));
    let page = play(Reply::html()).await.unwrap_err();
    assert!(matches!(page, ModelError::NotAnEndpoint { .. }), "{page}");
    assert!(page.to_string().contains("It works!"), "{page}");
}

#[tokio::test]
async fn an_endpoint_that_never_answers_ends_within_the_timeout() {
    let endpoint = Endpoint::start(Scenario::new([Reply::never()]));
    let start = Instant::now();
    let result = complete(&hurried(&endpoint)).await;
    let Err(ModelError::Timeout {
        phase: TimeoutPhase::FirstToken,
        ..
    }) = result
    else {
        panic!("{result:?}");
    };
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert!(is_freed(&endpoint).await);
}

#[tokio::test]
async fn an_endless_answer_is_cut_and_the_server_freed() {
    let endpoint = Endpoint::start(Scenario::new([Reply::endless()]));
    let model = model(&endpoint).with_max_answer_bytes(100_000);
    let result = complete(&model).await;
    assert!(
        matches!(result, Err(ModelError::TooLarge { .. })),
        "{result:?}"
    );
    assert!(is_freed(&endpoint).await);
}

/// What a run takes of memory, and what it says, when each answer has so many pieces.
fn run_against(
    (head, begin, piece): (&str, &str, &str),
    pieces: usize,
) -> (Finished, Option<u64>, RawEndpoint) {
    let piece = piece.repeat((64 << 10) / piece.len());
    let length = begin.len() + piece.len() * pieces;
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{begin}");
    let endpoint = RawEndpoint::start([vec![
        RawStep::Send(head.into()),
        RawStep::Repeat(piece.into(), pieces),
    ]]);
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = {:?}\nmodel = \"m\"\nattempts = 1\n",
            endpoint.base_url()
        ),
    );
    let mut command = host.command(&["run", "hello", "--no-fallback-tool"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (started, mut peak) = (Instant::now(), None);
    while child.try_wait().unwrap().is_none() {
        peak = peak_bytes(child.id()).or(peak);
        if started.elapsed() > 2 * SOON {
            child.kill().unwrap();
            panic!("it still reads, and has {peak:?} bytes in memory");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (finish(child.wait_with_output().unwrap()), peak, endpoint)
}

/// docs/security.md, row 30: whatever the form, not even a tenth of it is read, and next to nothing of it is kept.
#[test]
fn replies_of_a_gigabyte_are_refused_in_bounded_memory() {
    const STREAM: &str = "200 OK\r\nContent-Type: text/event-stream";
    const JSON: &str = "200 OK\r\nContent-Type: application/json";
    for (form, said) in [
        (
            (
                STREAM,
                "data: {\"choices\":[{\"delta\":{\"content\":\"",
                "x",
            ),
            "exceeded the limit of 8388608 bytes",
        ),
        (
            (
                STREAM,
                "",
                "data: {\"choices\":[{\"delta\":{\"content\":\"and so on\"}}]}\n\n",
            ),
            "exceeded the limit of 8388608 bytes",
        ),
        (
            (STREAM, "", ": a comment\n\n"),
            "exceeded the limit of 8388608 bytes",
        ),
        (
            (JSON, "{\"choices\":[{\"message\":{\"content\":\"", "x"),
            "exceeded the limit of 8388608 bytes",
        ),
        (
            (
                "200 OK\r\nContent-Type: text/html",
                "<html>",
                "<p>It works!",
            ),
            "answered with text/html",
        ),
        (
            (
                "500 Internal Server Error\r\nContent-Type: text/plain",
                "",
                "broken ",
            ),
            "broken broken",
        ),
    ] {
        let (_, usual, _) = run_against(form, 1);
        let (done, peak, endpoint) = run_against(form, 16 << 10);
        assert_eq!(done.code, Some(3), "{form:?}: {done:?}");
        assert!(done.stderr.contains(said), "{form:?}: {done:?}");
        let read = endpoint.sent() / endpoint.requests().max(1);
        assert!(read < 64 << 20, "{form:?}: {read} bytes were read");
        if cfg!(target_os = "linux") {
            let (usual, peak) = (usual.unwrap(), peak.unwrap());
            let more = peak.saturating_sub(usual) >> 20;
            assert!(more < 64, "{form:?}: {more} MiB more");
        }
    }
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    for reply in [Reply::never(), Reply::endless().delayed_ms(0, 20)] {
        let endpoint = Endpoint::start(Scenario::new([reply]));
        let task = tokio::spawn({
            let model = model(&endpoint);
            async move { complete(&model).await }
        });
        while endpoint.open_streams() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(is_freed(&endpoint).await);
        assert!(soon(|| endpoint.disconnects() == 1).await);
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_reported_with_its_address() {
    let endpoint = Endpoint::start(Scenario::default());
    let (model, url) = (model(&endpoint), endpoint.base_url());
    drop(endpoint);
    let error = complete(&model).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains(&url) && message.contains("refused"),
        "{message}"
    );
    assert!(matches!(error, ModelError::Connect { .. }));
    assert!(model.list_models().await.is_err());
}

#[tokio::test]
async fn the_key_is_sent_and_its_refusal_names_the_variable() {
    let replies = [Reply::content("hi"), Reply::content("hi")];
    let endpoint = Endpoint::start(Scenario::new(replies).with_key("sk-right"));
    let refused = complete(&model(&endpoint)).await.unwrap_err();
    assert!(refused.to_string().contains("MY_KEY"), "{refused}");
    let allowed = OpenAiModel::new(transport(&endpoint, Some("sk-right\n")), "m", timeouts());
    complete(&allowed).await.unwrap();
    assert_eq!(allowed.list_models().await.unwrap(), ["scripted"]);
    assert_eq!(allowed.health().await.unwrap(), Health::Ready);
    let seen = endpoint.authorizations();
    assert_eq!(seen, [None, Some("Bearer sk-right".into())]);
}

#[tokio::test]
async fn a_recorded_run_replays_without_the_endpoint_however_it_is_cut() {
    let mut sink = tempfile::tempfile().unwrap();
    let recorded = {
        let mut reply = Reply::tool_calls([("add", json!({"a": 1}))]);
        reply.content = Some("grüße 😀".into());
        let endpoint = Endpoint::start(Scenario::new([reply]).with_key("sk-secret"));
        let live = transport(&endpoint, Some("sk-secret"));
        let recorder = Arc::new(RecordingTransport::new(live, sink.try_clone().unwrap()));
        complete(&OpenAiModel::new(recorder, "small", timeouts()))
            .await
            .unwrap()
    };
    let mut text = String::new();
    sink.rewind().unwrap();
    sink.read_to_string(&mut text).unwrap();
    assert!(!text.contains("sk-secret"));
    assert!(!text.contains("\"cut\""), "{text}");
    for seed in 0..20 {
        let replay = Arc::new(ReplayTransport::parse(&text).unwrap());
        let rechunked = Arc::new(RechunkedTransport::new(replay, seed));
        let model = OpenAiModel::new(rechunked, "small", timeouts());
        let replayed = complete(&model).await.unwrap();
        assert_eq!(replayed.content, recorded.content);
        assert_eq!(replayed.tool_calls, recorded.tool_calls);
        let again = complete(&model).await.unwrap_err();
        assert!(matches!(again, ModelError::Unrecorded { .. }), "{again}");
    }
}

#[tokio::test]
async fn two_hundred_completions_at_once() {
    let scenario = Scenario::new([Reply::content("some words").delayed_ms(5, 1)]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::Repeat));
    let model = model(&endpoint);
    let (model, request) = (&model, &request());
    let all = (0..200).map(|_| async { model.complete(request, &mut |_| {}).await });
    for result in futures_util::future::join_all(all).await {
        assert_eq!(result.unwrap().content, "some words");
    }
    // Some ends may come too late to be waited for, and not all of them.
    let disconnects = endpoint.disconnects();
    assert!(disconnects < 20, "{disconnects}");
}

#[tokio::test]
async fn an_answer_comes_as_it_was_asked_for() {
    for (delivery, stream) in [
        (Delivery::Stream, true),
        (Delivery::UncountedStream, true),
        (Delivery::Whole, false),
    ] {
        let reply = Reply {
            reasoning: Some("hm".into()),
            content: Some("hi".into()),
            usage: Some((9, 2)),
            ..Reply::tool_calls([("add", json!({"a": 1}))])
        };
        let endpoint = Endpoint::start(Scenario::new([reply.expecting(Expect {
            stream: Some(stream),
            ..Expect::default()
        })]));
        let completion = complete(&model(&endpoint).with_delivery(delivery))
            .await
            .unwrap();
        assert_eq!((&*completion.content, &*completion.reasoning), ("hi", "hm"));
        assert_eq!(completion.tool_calls[0].arguments, r#"{"a":1}"#);
        assert_eq!(completion.usage.unwrap().completion_tokens, 2);
    }
}

/// The first token of an answer that is not streamed comes with its last.
#[tokio::test]
async fn a_whole_answer_has_the_time_of_a_whole_answer() {
    let reply = || Reply::content("hi").delayed_ms(2_500, 0);
    let endpoint = Endpoint::start(Scenario::new([reply(), reply()]));
    let whole = hurried(&endpoint).with_delivery(Delivery::Whole);
    assert_eq!(complete(&whole).await.unwrap().content, "hi");
    let streamed = complete(&hurried(&endpoint)).await;
    assert!(
        matches!(streamed, Err(ModelError::Timeout { .. })),
        "{streamed:?}"
    );
}

#[tokio::test]
async fn texts_are_embedded_in_their_order_batch_by_batch() {
    let scenario = Scenario {
        embeds: true,
        ..Scenario::default()
    };
    let endpoint = Endpoint::start(scenario);
    let texts: Vec<String> = (0..70).map(|n| "word ".repeat(n)).collect();
    let embedded = model(&endpoint).embed(&texts).await.unwrap();
    assert_eq!(embedded.vectors.len(), 70);
    assert_eq!(embedded.vectors[0], [0.0, 0.0]);
    assert_eq!(embedded.vectors[69], [345.0, 69.0]);
    assert_eq!(embedded.usage.unwrap().prompt_tokens, 70);
    let sizes: Vec<usize> = endpoint
        .others()
        .iter()
        .map(|(_, body)| body["input"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [32, 32, 6]);
    assert_eq!(model(&endpoint).embed(&[]).await.unwrap().vectors.len(), 0);

    let without = Endpoint::start(Scenario::default());
    let refused = model(&without).embed(&texts).await.unwrap_err();
    assert!(
        refused.to_string().contains("there is no /v1/embeddings"),
        "{refused}"
    );
    let odd =
        Scenario::default().with_route("/v1/embeddings", json!({"data": [{"embedding": [1]}]}));
    let odd = model(&Endpoint::start(odd))
        .embed(&texts)
        .await
        .unwrap_err();
    assert!(matches!(odd, ModelError::Decode { .. }), "{odd}");
}

#[tokio::test]
async fn tokens_are_counted_in_whatever_form_the_server_has() {
    for form in [TokenForm::Prompt, TokenForm::Content, TokenForm::Inputs] {
        let endpoint = Endpoint::start(Scenario {
            tokenize: Some(form),
            ..Scenario::default()
        });
        let model = model(&endpoint);
        let tokenizer = model.find_tokenizer().await.unwrap().expect("a tokenizer");
        assert_eq!(
            model.count_tokens(tokenizer, "a b c").await.unwrap(),
            3,
            "{form:?}"
        );
    }
    let without = Endpoint::start(Scenario::default());
    assert_eq!(model(&without).find_tokenizer().await.unwrap(), None);
    // Answers, but counts nothing.
    let constant = Scenario::default().with_route("/tokenize", json!({"tokens": [1, 2]}));
    let constant = Endpoint::start(constant);
    assert_eq!(model(&constant).find_tokenizer().await.unwrap(), None);
}

#[tokio::test]
async fn a_server_says_who_it_is_and_how_much_fits() {
    let vllm = json!({"data": [{"id": "other", "max_model_len": 1}, {"id": "small", "owned_by": "vllm", "max_model_len": 4096}]});
    let llama =
        json!({"data": [{"id": "small", "owned_by": "llamacpp", "meta": {"n_ctx_train": 32768}}]});
    let props = json!({"build_info": "b7000", "default_generation_settings": {"n_ctx": 2048}});
    for (scenario, name, version, length) in [
        (
            Scenario::default()
                .with_route("/v1/models", vllm)
                .with_route("/version", json!({"version": "0.20"})),
            Some("vllm"),
            Some("0.20"),
            Some(4096),
        ),
        (
            Scenario::default()
                .with_route("/v1/models", llama.clone())
                .with_route("/props", props),
            Some("llamacpp"),
            Some("b7000"),
            Some(2048),
        ),
        (
            Scenario::default().with_route("/v1/models", llama),
            Some("llamacpp"),
            None,
            Some(32768),
        ),
        (Scenario::default(), Some("tests"), None, None),
    ] {
        let endpoint = Endpoint::start(scenario);
        let server = model(&endpoint).server().await.unwrap();
        assert_eq!(server.name.as_deref(), name);
        assert_eq!(server.version.as_deref(), version);
        assert_eq!(server.context_length, length);
    }
}

#[test]
fn extras_of_the_configuration_are_in_every_request_and_replace_nothing() {
    let host = Host::new();
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(
        json!({"calls": [], "output": "done"}),
    )]));
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = {:?}\nmodel = \"m\"\nstream = false\n\
             extra = {{ min_p = 0.1, temperature = 2.0, chat_template_kwargs = {{ enable_thinking = false }} }}\n",
            endpoint.base_url()
        ),
    );
    let done = host.run(&["run", "hello"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let request = &endpoint.requests()[0];
    assert_eq!(request["min_p"], 0.1);
    assert_eq!(
        request["chat_template_kwargs"],
        json!({"enable_thinking": false})
    );
    assert_eq!(request["temperature"], 0.0);
    assert_eq!(request["stream"], false);
}

#[test]
fn ctrl_c_during_a_stream_leaves_no_connection_open() {
    let host = Host::new();
    host.ship("calculator");
    let endpoint = Endpoint::start(Scenario::new([Reply::endless().delayed_ms(0, 20)]));
    let url = endpoint.base_url();
    let mut command = host.command(&["run", "hello", "--base-url", &url, "--model", "m"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let is_streaming = endpoint.wait_until(Duration::from_secs(30), |e| e.open_streams() == 1);
    assert!(
        is_streaming,
        "{:?}",
        finish(child.wait_with_output().unwrap())
    );
    // Some of the answer has been read.
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    signal(child.id(), "INT");
    assert!(endpoint.wait_until(SOON, |e| e.open_streams() == 0));
    let code = child.wait().unwrap().code();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(code, Some(130));
    assert!(endpoint.wait_until(SOON, |e| e.open_connections() == 0));
    assert!(endpoint.wait_until(SOON, |e| e.disconnects() == 1));
}
