//! The model client over real HTTP, against an endpoint that misbehaves as servers do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use support::endpoint::{Endpoint, Order, Reply, Scenario};
use toolhold_agent::model::record::MemorySink;
use toolhold_agent::model::{
    ChatMessage, ChatRequest, Completion, Delta, Health, HttpTransport, Model, ModelError,
    OpenAiModel, RecordingTransport, ReplayTransport, TimeoutPhase, Timeouts, Transport,
};

const SOON: Duration = Duration::from_secs(5);

fn timeouts() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(2),
        first_token: Duration::from_millis(500),
        idle: Duration::from_millis(500),
        total: Duration::from_secs(5),
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

fn request() -> ChatRequest {
    ChatRequest::new("", vec![ChatMessage::user("hello")])
}

async fn complete(model: &OpenAiModel) -> Result<Completion, ModelError> {
    model.complete(&request(), &mut |_| {}).await
}

/// Whether the server is left alone soon. Sleeps without blocking: the client's side of a connection
/// is a task of this very thread.
async fn is_freed(endpoint: &Endpoint) -> bool {
    let end = Instant::now() + SOON;
    while endpoint.open_connections() > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    endpoint.open_connections() == 0 && endpoint.open_streams() == 0
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
    let scenario = Scenario::new([Reply::content("hi")]).in_order(Order::Repeat);
    let endpoint = Endpoint::start(scenario);
    let model = model(&endpoint);
    for _ in 0..5 {
        complete(&model).await.unwrap();
    }
    assert_eq!(endpoint.connections(), 1);
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
    let result = complete(&model(&endpoint)).await;
    let Err(ModelError::Timeout {
        phase: TimeoutPhase::FirstToken,
        ..
    }) = result
    else {
        panic!("{result:?}");
    };
    assert!(
        start.elapsed() < Duration::from_secs(2),
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
        assert_eq!(endpoint.disconnects(), 1);
    }
}

#[tokio::test]
async fn nobody_there_is_said_with_the_address() {
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
    let sink = MemorySink::default();
    let recorded = {
        let mut reply = Reply::tool_calls([("add", json!({"a": 1}))]);
        reply.content = Some("grüße 😀".into());
        let endpoint = Endpoint::start(Scenario::new([reply]).with_key("sk-secret"));
        let live = transport(&endpoint, Some("sk-secret"));
        let recorder = Arc::new(RecordingTransport::new(live, sink.clone()));
        complete(&OpenAiModel::new(recorder, "small", timeouts()))
            .await
            .unwrap()
    };
    let text = sink.text();
    assert!(!text.contains("sk-secret"));
    assert!(!text.contains("\"cut\""), "{text}");
    for seed in 0..20 {
        let replay = ReplayTransport::parse(&text).unwrap().with_rechunking(seed);
        let model = OpenAiModel::new(Arc::new(replay), "small", timeouts());
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
    let endpoint = Endpoint::start(scenario.in_order(Order::Repeat));
    let mut timeouts = timeouts();
    timeouts.first_token = SOON;
    timeouts.total = Duration::from_secs(20);
    let model = OpenAiModel::new(transport(&endpoint, None), "small", timeouts);
    let (model, request) = (&model, &request());
    let all = (0..200).map(|_| async { model.complete(request, &mut |_| {}).await });
    for result in futures_util::future::join_all(all).await {
        assert_eq!(result.unwrap().content, "some words");
    }
    assert_eq!(endpoint.disconnects(), 0);
}
