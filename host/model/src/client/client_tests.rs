//! The client against an endpoint that is a list of pieces.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream;
use serde_json::json;

use super::answer_end::{LONG_WAIT, SHORT_WAIT};
use super::*;
use crate::chat::{ChatMessage, ChatTool};
use crate::server::Health;
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::{ChatToolCall, Delta};

pub(crate) const CONTENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
pub(crate) const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// What happens next on the wire.
#[derive(Clone, Debug)]
pub(crate) enum WireStep {
    Bytes(&'static str),
    Wait(u64),
    Hang,
    Break,
}

use WireStep::{Break, Bytes as Send, Hang, Wait};

#[derive(Debug)]
pub(crate) struct Wire {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    /// The first wait delays the head.
    head: Option<WireStep>,
    steps: Vec<WireStep>,
    pub(crate) seen: Mutex<Vec<HttpRequest>>,
}

impl Wire {
    pub(crate) fn ok(steps: Vec<WireStep>) -> Self {
        Self::answering(200, vec![("content-type", "text/event-stream")], steps)
    }

    pub(crate) fn answering(
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        steps: Vec<WireStep>,
    ) -> Self {
        Self {
            status,
            headers,
            head: None,
            steps,
            seen: Mutex::default(),
        }
    }
}

impl Transport for Wire {
    fn target(&self) -> &'static str {
        "http://endpoint/v1"
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        self.seen.lock().unwrap().push(request);
        async {
            match self.head {
                Some(Wait(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Some(Hang) => std::future::pending().await,
                _ => {}
            }
            let steps: VecDeque<WireStep> = self.steps.clone().into();
            let body = stream::unfold(steps, |mut steps| async {
                loop {
                    match steps.pop_front()? {
                        Send(text) => return Some((Ok(Bytes::from(text)), steps)),
                        Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                        Hang => std::future::pending().await,
                        Break => {
                            let error = TransportError::Broken {
                                url: "http://endpoint/v1".into(),
                                reason: "connection reset".into(),
                            };
                            return Some((Err(error), steps));
                        }
                    }
                }
            });
            let headers = self.headers.iter();
            Ok(HttpResponse {
                status: self.status,
                headers: headers
                    .map(|&(k, v)| (k.to_owned(), v.to_owned()))
                    .collect(),
                body: body.boxed(),
            })
        }
        .boxed()
    }
}

fn timeouts() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(100),
        first_token: Duration::from_millis(200),
        idle: Duration::from_millis(100),
        total: Duration::from_millis(600),
    }
}

fn model(wire: Wire) -> OpenAiModel {
    OpenAiModel::new(Arc::new(wire), "small", timeouts()).with_key_variable("SOME_KEY")
}

async fn complete(wire: Wire) -> Result<Completion, ModelError> {
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    model(wire).complete(&request, &mut |_| {}).await
}

#[tokio::test]
async fn a_stream_becomes_deltas_and_a_completion_with_its_times() {
    let wire = Arc::new(Wire::ok(vec![
        Wait(20),
        Send(CONTENT),
        Wait(20),
        Send(STOP),
        Send("data: [DONE]\n\n"),
    ]));
    let model = OpenAiModel::new(wire.clone(), "small", timeouts());
    let mut deltas = Vec::new();
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    let completion = model
        .complete(&request, &mut |delta| deltas.push(delta))
        .await
        .unwrap();
    assert_eq!(deltas, [Delta::Content("hi".into())]);
    assert_eq!(completion.content, "hi");
    let first = completion.time_to_first_token.unwrap();
    assert!(first >= Duration::from_millis(19) && first < completion.duration);
    assert!(completion.duration >= Duration::from_millis(39));
    let seen = wire.seen.lock().unwrap();
    let body = seen[0].body.as_ref().unwrap();
    assert_eq!(
        (&body["model"], &body["stream"]),
        (&json!("small"), &json!(true))
    );
}

#[tokio::test]
async fn every_wait_ends_and_says_which_it_was() {
    use TimeoutPhase::{FirstToken, Idle, Total};
    let mut silent = Wire::ok(vec![]);
    silent.head = Some(Hang);
    let pings = (0..40)
        .flat_map(|_| [Wait(10), Send(": ping\n\n")])
        .collect();
    let drip = (0..40).flat_map(|_| [Wait(50), Send(CONTENT)]).collect();
    for (what, wire, expected) in [
        ("no head", silent, FirstToken),
        ("a head and nothing more", Wire::ok(vec![Hang]), FirstToken),
        ("keep-alives only", Wire::ok(pings), FirstToken),
        (
            "silence after a token",
            Wire::ok(vec![Send(CONTENT), Hang]),
            Idle,
        ),
        ("a token now and then", Wire::ok(drip), Total),
    ] {
        let result = complete(wire).await;
        let Err(error @ ModelError::Timeout { phase, .. }) = result else {
            panic!("{what}: {result:?}");
        };
        assert_eq!(phase, expected, "{what}");
        assert_eq!(error.class(), ErrorClass::Retryable);
    }
}

#[tokio::test]
async fn a_finished_answer_is_not_lost_to_what_follows_it() {
    for (what, rest) in [
        ("silence", Hang),
        ("a broken connection", Break),
        ("junk after [DONE]", Send("data: [DONE]\n\ndata: junk\n\n")),
    ] {
        let steps = vec![Send(CONTENT), Send(STOP), rest, Hang];
        let completion = complete(Wire::ok(steps)).await;
        assert_eq!(completion.expect(what).content, "hi");
    }
}

fn patient() -> Timeouts {
    Timeouts {
        first_token: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        total: Duration::from_mins(2),
        ..timeouts()
    }
}

/// Two calls, and a finish reason that may stand behind each.
const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]}}]}\n\n";
const SECOND: &str = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":2}\"}}]}}]}\n\n";
const CALLS: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";

/// The formal end is waited for as long as it may take, and not for as long as the connection lives.
#[tokio::test(start_paused = true)]
async fn keep_alives_behind_the_end_do_not_hold_an_answer() {
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    let patient = patient();
    let total = LONG_WAIT / 2;
    let hasty = Timeouts {
        total,
        ..patient.clone()
    };
    for (begin, timeouts, was_sent, waits) in [
        // No call follows a text.
        (
            [CONTENT, STOP],
            &patient,
            None,
            [SHORT_WAIT, SHORT_WAIT, SHORT_WAIT],
        ),
        (
            [CONTENT, STOP],
            &patient,
            Some(true),
            [SHORT_WAIT, SHORT_WAIT, SHORT_WAIT],
        ),
        // An endpoint that leaves the end of calls out is waited for once.
        (
            [FIRST, CALLS],
            &patient,
            None,
            [LONG_WAIT, SHORT_WAIT, SHORT_WAIT],
        ),
        (
            [FIRST, STOP],
            &patient,
            Some(true),
            [LONG_WAIT, SHORT_WAIT, SHORT_WAIT],
        ),
        (
            [CONTENT, CALLS],
            &patient,
            None,
            [LONG_WAIT, SHORT_WAIT, SHORT_WAIT],
        ),
        // The time for the whole answer ends before.
        (
            [FIRST, CALLS],
            &hasty,
            None,
            [total, SHORT_WAIT, SHORT_WAIT],
        ),
    ] {
        let mut steps: Vec<WireStep> = begin.into_iter().map(Send).collect();
        steps.extend((0..100).flat_map(|_| [Wait(500), Send(": ping\n\n")]));
        steps.push(Hang);
        let model = OpenAiModel::new(Arc::new(Wire::ok(steps)), "small", timeouts.clone());
        if let Some(was_sent) = was_sent {
            model.last_end.note(was_sent);
        }
        for wait in waits {
            let completion = model.complete(&request, &mut |_| {}).await.unwrap();
            let latest = wait + Duration::from_millis(100);
            let duration = completion.duration;
            assert!(
                duration >= wait && duration <= latest,
                "{begin:?}: {duration:?}"
            );
        }
    }
}

/// A finish reason alone in its chunk stands behind each call, and the endpoint writes the next call after it.
#[tokio::test(start_paused = true)]
async fn a_call_behind_a_finish_reason_and_a_pause_is_not_lost() {
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    for end in [vec![Send("data: [DONE]\n\n"), Hang], vec![]] {
        let mut steps = vec![
            Send(FIRST),
            Send(CALLS),
            Wait(3_000),
            Send(SECOND),
            Wait(3_000),
            Send(CALLS),
        ];
        steps.extend(end);
        let model = OpenAiModel::new(Arc::new(Wire::ok(steps)), "small", patient());
        // The second one of an endpoint whose end is known.
        for _ in 0..2 {
            let completion = model.complete(&request, &mut |_| {}).await.unwrap();
            let calls = completion.tool_calls.iter();
            let arguments: Vec<&str> = calls.map(|call| call.arguments.as_str()).collect();
            assert_eq!(arguments, ["{\"x\":1}", "{\"x\":2}"]);
        }
    }
    // The bound of the pause.
    let longest = u64::try_from(LONG_WAIT.as_millis()).unwrap();
    for (pause, count) in [(longest - 500, 2), (longest + 500, 1)] {
        let steps = vec![
            Send(FIRST),
            Send(CALLS),
            Wait(pause),
            Send(SECOND),
            Send(CALLS),
            Send("data: [DONE]\n\n"),
        ];
        let model = OpenAiModel::new(Arc::new(Wire::ok(steps)), "small", patient());
        model.last_end.note(true);
        let completion = model.complete(&request, &mut |_| {}).await.unwrap();
        assert_eq!(completion.tool_calls.len(), count);
    }
}

/// In this one a finish reason stands in each chunk.
const NOT: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"not \"},\"finish_reason\":\"stop\"}]}\n\n";

#[tokio::test(start_paused = true)]
async fn a_pause_is_no_end_where_each_chunk_has_a_finish_reason() {
    // Longer than the formal end of an answer is waited for.
    let pause = u64::try_from(LONG_WAIT.as_millis()).unwrap() + 500;
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    let complete = async |steps| {
        let model = OpenAiModel::new(Arc::new(Wire::ok(steps)), "small", patient());
        model.complete(&request, &mut |_| {}).await
    };
    for first in [
        NOT,
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"stop\"}]}\n\n",
    ] {
        let steps = vec![
            Send(first),
            Send(NOT),
            Wait(pause),
            Send(NOT),
            Send("data: [DONE]\n\n"),
        ];
        let completion = complete(steps).await.unwrap();
        assert!(completion.content.ends_with("not not "), "{completion:?}");
        let result = complete(vec![Send(first), Send(NOT), Hang]).await;
        assert!(
            matches!(result, Err(ModelError::Timeout { .. })),
            "{result:?}"
        );
        for steps in [vec![Send(NOT), Break], vec![Send(first), Send(NOT), Break]] {
            let result = complete(steps).await;
            assert!(
                matches!(result, Err(ModelError::Truncated { .. })),
                "{result:?}"
            );
        }
    }
}

/// The last text has the finish reason, as no chunk before it.
#[tokio::test]
async fn an_answer_whose_last_text_has_the_only_finish_reason_is_not_lost() {
    for rest in [Hang, Break] {
        let completion = complete(Wire::ok(vec![Send(CONTENT), Send(NOT), rest])).await;
        assert_eq!(completion.unwrap().content, "hinot ");
    }
}

#[tokio::test]
async fn a_broken_connection_keeps_what_came_and_the_cause() {
    let result = complete(Wire::ok(vec![Send(CONTENT), Break])).await;
    let Err(ModelError::Truncated {
        received,
        source: Some(source),
    }) = result
    else {
        panic!("{result:?}");
    };
    assert_eq!(received.content, "hi");
    assert!(received.time_to_first_token.is_some());
    assert!(source.to_string().contains("connection reset"));
}

#[tokio::test]
async fn refusals_carry_class_advice_and_the_asked_delay() {
    let html = "<html><title>404 Not Found</title></html>";
    let cases = [
        (
            429,
            vec![("retry-after", "3")],
            r#"{"error":"slow down"}"#,
            "slow down",
            ErrorClass::Retryable,
        ),
        (
            401,
            vec![],
            r#"{"error":{"message":"bad key"}}"#,
            "SOME_KEY",
            ErrorClass::Fatal,
        ),
        (
            404,
            vec![("content-type", "text/html")],
            html,
            "/v1",
            ErrorClass::Fatal,
        ),
        (
            307,
            vec![("location", "http://elsewhere/v1")],
            "",
            "elsewhere",
            ErrorClass::Fatal,
        ),
        (503, vec![], "", "loading", ErrorClass::Retryable),
    ];
    for (status, headers, body, word, class) in cases {
        let steps = if body.is_empty() {
            vec![]
        } else {
            vec![Send(body)]
        };
        let error = complete(Wire::answering(status, headers, steps))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.class(), class, "{error}");
        let expected = (status == 429).then_some(Duration::from_secs(3));
        assert_eq!(error.retry_after(), expected);
    }
}

#[tokio::test]
async fn an_endless_error_body_is_cut() {
    let steps = (0..100).map(|_| Send(CONTENT)).chain([Hang]).collect();
    let mut wire = Wire::answering(500, vec![], steps);
    wire.steps.insert(0, Send("the engine died: "));
    wire.steps.truncate(40);
    let error = complete(wire).await.unwrap_err();
    assert!(error.to_string().contains("the engine died"), "{error}");
    assert!(error.to_string().len() < 1000, "{error}");
}

#[tokio::test]
async fn models_are_listed_in_every_shape_or_the_refusal_explained() {
    let list = |body| model(Wire::answering(200, vec![], vec![Send(body)]));
    for body in [
        r#"{"object":"list","data":[{"id":"a","max_model_len":4096},{"id":"b"}]}"#,
        r#"[{"id":"a"},{"id":"b"}]"#,
    ] {
        assert_eq!(list(body).list_models().await.unwrap(), ["a", "b"]);
    }
    for body in ["<html>", "{\"hello\":1}", "", "7"] {
        let error = list(body).list_models().await.unwrap_err();
        assert!(matches!(error, ModelError::NotAnEndpoint { .. }), "{error}");
    }
    let partial = Wire::answering(206, vec![], vec![Send(r#"{"data":[{"id":"a"}]}"#)]);
    let error = model(partial).list_models().await.unwrap_err();
    assert!(
        matches!(error, ModelError::Status { status: 206, .. }),
        "{error}"
    );
    let refused = model(Wire::answering(401, vec![], vec![]))
        .list_models()
        .await;
    assert!(refused.unwrap_err().to_string().contains("SOME_KEY"));
}

#[tokio::test]
async fn health_is_told_apart() {
    let health = |status, body| async move {
        let steps = vec![Send(body)];
        model(Wire::answering(status, vec![], steps)).health().await
    };
    assert_eq!(
        health(200, "{\"status\":\"ok\"}").await.unwrap(),
        Health::Ready
    );
    assert_eq!(health(404, "x").await.unwrap(), Health::Unsupported);
    let loading = r#"{"error":{"message":"Loading model","code":503}}"#;
    assert_eq!(
        health(503, loading).await.unwrap(),
        Health::Loading("Loading model".into())
    );
    assert!(health(500, "x").await.is_err());
}

/// An endpoint that refuses to be told to call a tool, in the words of a server.
#[derive(Debug)]
struct Unwilling {
    words: &'static str,
    choices: Mutex<Vec<Value>>,
}

impl Transport for Unwilling {
    fn target(&self) -> &'static str {
        "http://endpoint/v1"
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        let choice = request
            .body
            .as_ref()
            .map(|body| body["tool_choice"].clone());
        let choice = choice.unwrap_or_default();
        let is_taken = choice == "auto";
        self.choices.lock().unwrap().push(choice);
        let text = if is_taken {
            [CONTENT, STOP].concat()
        } else {
            json!({"error": {"message": self.words}}).to_string()
        };
        let body = stream::iter([Ok(Bytes::from(text))]).boxed();
        let response = HttpResponse {
            status: if is_taken { 200 } else { 400 },
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body,
        };
        async move { Ok(response) }.boxed()
    }
}

#[tokio::test]
async fn an_endpoint_that_takes_no_demand_of_a_call_is_asked_without() {
    let mut request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    request.tools = vec![ChatTool {
        name: "add".into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    }];
    request.tool_choice = Some(ToolChoice::Required);
    for (words, insists, choices) in [
        (
            "This model does not support this tool_choice",
            false,
            vec!["required", "auto"],
        ),
        ("tool choice is not supported", true, vec!["required"]),
        ("the model is not loaded", false, vec!["required"]),
    ] {
        let wire = Arc::new(Unwilling {
            words,
            choices: Mutex::default(),
        });
        let model = OpenAiModel::new(wire.clone(), "small", timeouts());
        let model = if insists { model.insisting() } else { model };
        let answered = model.complete(&request, &mut |_| {}).await;
        assert_eq!(answered.is_ok(), choices.len() == 2, "{answered:?}");
        assert_eq!(json!(*wire.choices.lock().unwrap()), json!(choices));
    }
}

/// An endpoint that wants reasoning in each request, or in none.
#[derive(Debug)]
struct Particular {
    wants_reasoning: AtomicBool,
    /// The status and the body with which it refuses a request.
    refusal: (u16, String),
    /// Whether each request had reasoning.
    requests: Mutex<Vec<bool>>,
}

impl Transport for Particular {
    fn target(&self) -> &'static str {
        "http://endpoint/v1"
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        let body = request.body.unwrap_or_default().to_string();
        let has_reasoning = body.contains("reasoning_content");
        self.requests.lock().unwrap().push(has_reasoning);
        let is_taken = has_reasoning == self.wants_reasoning.load(Ordering::Relaxed);
        let (status, text) = if is_taken {
            (200, [CONTENT, STOP].concat())
        } else {
            self.refusal.clone()
        };
        let response = HttpResponse {
            status,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: stream::iter([Ok(Bytes::from(text))]).boxed(),
        };
        async move { Ok(response) }.boxed()
    }
}

#[tokio::test]
async fn reasoning_that_an_endpoint_refused_is_not_sent_to_it_again() {
    const WORDS: &str = "reasoning_content is not as it is wanted";
    let mut calling = ChatMessage::assistant_calls(None, vec![ChatToolCall::default()]);
    let thought = json!({"reasoning_content": "hm"});
    calling.reasoning = thought.as_object().unwrap().clone();
    let request = ChatRequest::new("", vec![ChatMessage::user("hello"), calling]);
    let mimo =
        json!({"error": {"code": "400", "message": "Param Incorrect", "param": WORDS, "type": ""}});
    let raw = json!({"error": {"message": WORDS}}).to_string();
    let openrouter = json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}});
    let event = |error: &Value| format!("data: {error}\n\n");
    for refusal in [
        (400, json!({"error": {"message": WORDS}}).to_string()),
        (400, mimo.to_string()),
        (400, event(&mimo)),
        (400, openrouter.to_string()),
        // Inside of a stream that began.
        (200, event(&mimo)),
        (200, event(&openrouter)),
        (200, event(&json!({"error": {"message": WORDS}}))),
        (
            200,
            format!(
                ": keep-alive\n\n{}",
                event(&json!({"error": {"message": WORDS, "code": 400}}))
            ),
        ),
    ] {
        let wire = Arc::new(Particular {
            wants_reasoning: AtomicBool::new(false),
            refusal: refusal.clone(),
            requests: Mutex::default(),
        });
        let model = OpenAiModel::new(wire.clone(), "small", timeouts());
        for (wants_reasoning, requests) in [
            (false, &[true, false][..]),
            (false, &[false]),
            // Another model was loaded.
            (true, &[false, true]),
            (true, &[true]),
        ] {
            wire.wants_reasoning
                .store(wants_reasoning, Ordering::Relaxed);
            let answered = model.complete(&request, &mut |_| {}).await;
            assert!(answered.is_ok(), "{refusal:?}: {answered:?}");
            let sent = std::mem::take(&mut *wire.requests.lock().unwrap());
            assert_eq!(sent, requests, "{wants_reasoning} {refusal:?}");
        }
    }
}

/// A client keeps the part of an answer that it was sent.
#[tokio::test]
async fn a_request_is_not_sent_again_once_a_part_of_its_answer_came() {
    const REFUSAL: &str =
        "data: {\"error\":{\"message\":\"reasoning_content is not wanted\",\"code\":400}}\n\n";
    let mut calling = ChatMessage::assistant_calls(None, vec![ChatToolCall::default()]);
    let thought = json!({"reasoning_content": "hm"});
    calling.reasoning = thought.as_object().unwrap().clone();
    let request = ChatRequest::new("", vec![ChatMessage::user("hello"), calling]);
    for (steps, requests) in [
        (vec![Send(REFUSAL)], 2),
        (vec![Send(CONTENT), Send(REFUSAL)], 1),
    ] {
        let wire = Arc::new(Wire::ok(steps));
        let model = OpenAiModel::new(wire.clone(), "small", timeouts());
        let error = model.complete(&request, &mut |_| {}).await.unwrap_err();
        assert!(matches!(error, ModelError::InStream { .. }), "{error:?}");
        assert_eq!(wire.seen.lock().unwrap().len(), requests);
    }
}
