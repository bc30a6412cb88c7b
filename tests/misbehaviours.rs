//! What model servers do wrong, row by row, over real sockets: `fixtures/misbehaviours.json` says what
//! the endpoint sends and what must come out of the client, or of a run of the binary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use support::endpoint::raw::{RawEndpoint, RawReply, RawStep};
use support::host::Host;
use toolhold_model::{
    ChatMessage, ChatRequest, HttpTransport, Model, ModelError, OpenAiModel, Timeouts,
};
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::{Completion, ContextOverflow, Usage};

const MOST_BYTES: usize = 100_000;
/// Rows that are played at the same time: most of them wait.
const AT_ONCE: usize = 12;
/// When `@in_1h` is.
const HOUR: Duration = Duration::from_hours(1);
/// What is shown of a call that the calculator answered.
const MADE: &str = "= {\"value\":\"42\"}";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "description")]
    _description: String,
    pieces: BTreeMap<String, Value>,
    rows: Vec<Misbehaviour>,
}

/// What an endpoint does, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Misbehaviour {
    name: String,
    #[serde(default = "ok")]
    status: u16,
    /// A stream's, if there is none.
    headers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    body: Vec<Value>,
    #[serde(default)]
    end: End,
    /// Everything that is sent, the head included.
    raw: Option<Vec<Value>>,
    expect: ExpectedOutcome,
}

fn ok() -> u16 {
    200
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum End {
    #[default]
    Good,
    Break,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ExpectedOutcome {
    Error(ExpectedError),
    Completion(ExpectedCompletion),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedError {
    error: String,
    class: ErrorClass,
    /// Words of its message.
    says: Vec<String>,
    #[serde(default)]
    never_says: Vec<String>,
    /// The text that came before.
    received: Option<String>,
    retry_after_ms: Option<u64>,
    /// Tokens of the prompt, those that were to be written, and the window's.
    overflow: Option<(Option<u64>, Option<u64>, Option<u64>)>,
}

/// All of a completion but its times: what is not written is empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedCompletion {
    content: String,
    #[serde(default)]
    reasoning: String,
    /// Id, name and arguments of each.
    #[serde(default)]
    calls: Vec<(String, String, String)>,
    finish: Option<String>,
    /// Tokens of prompt and answer, and of the prompt those that were cached.
    usage: Option<(u64, u64, Option<u64>)>,
    #[serde(default)]
    extra: Option<Map<String, Value>>,
}

#[tokio::test]
async fn every_misbehaviour_has_its_outcome() {
    let table = table();
    assert!(table.rows.len() >= 60, "{}", table.rows.len());
    // Setting up a client costs more than a row may wait, so that is done first.
    let rows: Vec<_> = table
        .rows
        .iter()
        .map(|row| {
            let endpoint = RawEndpoint::start([table.wire(row)]);
            let model = model(&endpoint, timeouts(Some(&row.expect)));
            (row, endpoint, model)
        })
        .collect();
    let faults = stream::iter(&rows).map(|(row, _endpoint, model)| async move {
        let outcome = complete(model).await;
        let fault = row.expect.fault(&outcome)?;
        Some(format!("{}: {fault}\n    {outcome:?}", row.name))
    });
    let faults: Vec<String> = faults
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A row that anything satisfies tests nothing.
#[test]
fn every_row_can_fail() {
    let table = table();
    let mut names: Vec<&str> = table.rows.iter().map(|row| &*row.name).collect();
    names.sort_unstable();
    assert!(
        names.windows(2).all(|pair| pair[0] != pair[1]),
        "two rows of one name"
    );
    let text = Completion {
        content: "something else".into(),
        finish_reason: Some("stop".into()),
        ..Completion::default()
    };
    let configuration = ModelError::Config {
        message: "something else".into(),
    };
    for outcome in [Ok(text), Err(configuration)] {
        for row in &table.rows {
            assert!(row.expect.fault(&outcome).is_some(), "{}", row.name);
        }
    }
}

/// A row's answer to the first requests of a run, and how the run ends.
#[test]
fn runs_recover_from_misbehaviour_or_report_it() {
    let table = table();
    let answer = solution(&json!({"calls": [], "output": "sunny"}));
    let good = || table.body(200, None, std::slice::from_ref(&answer), &End::Good);
    let host = Host::new();
    host.ship("calculator");
    // Name of the row, exit code, what stdout or stderr says.
    for (row, code, says) in [
        ("a wrong key", 3, "Incorrect API key provided"),
        ("Ollama: no such model", 3, "check the model's name"),
        ("a page where the API was due", 3, "hotel"),
        ("a redirect", 3, "set the base URL"),
        ("a quota that waiting does not fill", 3, "quota"),
        ("a crash that speaks to the terminal", 3, "[31mred"),
        ("no HTTP at all", 3, "is the server running there?"),
        ("a good end in the middle", 3, "in the middle"),
        // The model gets the fault, and corrects it.
        ("a stream as it should be", 0, "sunny"),
        ("a refusal in a field of its own", 0, "sunny"),
        ("a filter took the rest", 0, "sunny"),
        ("calls that are never read", 0, "sunny"),
        ("more tokens than can be counted", 0, "sunny"),
        // The call is made all the same.
        (
            "gpt-oss: a call in the text, with the messages around it",
            0,
            MADE,
        ),
        ("DeepSeek V3.2: a call in the text", 0, MADE),
        ("Gemma: a call in the text, as Python", 0, MADE),
    ] {
        let first = match row {
            "calls that are never read" => {
                let event = json!({"event": {"choices": [{"delta": {"tool_calls": [{"index": 0,
                    "id": "a", "function": {"name": "add", "arguments": "{oops"}}]},
                    "finish_reason": "tool_calls"}]}});
                table.body(200, None, &[event], &End::Good)
            }
            "more tokens than can be counted" => {
                let usage = json!({"event": {"choices": [], "usage": {
                    "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX}}});
                table.body(
                    200,
                    None,
                    &["@hi".into(), "@stop".into(), usage],
                    &End::Good,
                )
            }
            name => {
                let row = table.rows.iter().find(|row| row.name == name);
                table.wire(row.expect(name))
            }
        };
        // An error is repeated for as long as somebody asks.
        let wires = match code {
            0 => vec![first, good()],
            _ => vec![first],
        };
        let endpoint = RawEndpoint::start(wires);
        let url = endpoint.base_url();
        let done = host.run(&[
            "run",
            "What is the weather?",
            // A fallback would ask which other models there are.
            "--no-fallback-tool",
            "--base-url",
            &url,
            "--model",
            "m",
        ]);
        assert_eq!(done.code, Some(code), "{row}: {done:?}");
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains(says), "{row}: {done:?}");
        assert!(
            !said.contains('\u{7}') && !said.contains("panicked"),
            "{row}: {done:?}"
        );
        if code == 0 {
            assert_eq!(endpoint.requests(), 2, "{row}: {done:?}");
        }
    }
}

/// A server that still loads its model has no name for it yet, and is waited for as for an answer.
#[test]
fn a_run_waits_for_the_name_of_a_model_that_is_still_loading() {
    let table = table();
    let loading = || {
        let name = "llama.cpp: still loading";
        let row = table.rows.iter().find(|row| row.name == name);
        table.wire(row.expect(name))
    };
    let list = json!({"json": {"object": "list", "data": [{"id": "loaded", "object": "model"}]}});
    let answer = solution(&json!({"calls": [], "output": "sunny"}));
    let good = |piece: &Value| table.body(200, None, std::slice::from_ref(piece), &End::Good);
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        "[endpoints.default]\nattempts = 3\nbackoff_ms = 20\n",
    );
    for (wires, code, says, requests, waits) in [
        (
            vec![loading(), loading(), good(&list), good(&answer)],
            0,
            "sunny",
            4,
            2,
        ),
        (vec![loading()], 3, "given up after 3 attempts", 3, 2),
    ] {
        let endpoint = RawEndpoint::start(wires);
        let url = endpoint.base_url();
        let done = host.run(&[
            "run",
            "What is the weather?",
            "--no-fallback-tool",
            "--base-url",
            &url,
        ]);
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(
            format!("{}{}", done.stdout, done.stderr).contains(says),
            "{done:?}"
        );
        let told = done.stderr.matches("asking which models there are").count();
        assert_eq!((endpoint.requests(), told), (requests, waits), "{done:?}");
    }
}

/// A connection that the server closed after an answer costs nothing: the next request takes another.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_no_failure() {
    let table = table();
    let mut wire = table.body(200, None, &["@hi".into(), "@stop".into()], &End::Good);
    wire.push(RawStep::Wait(Duration::from_millis(20)));
    let endpoint = RawEndpoint::start([wire]);
    let model = model(&endpoint, timeouts(None));
    for _ in 0..5 {
        let completion = complete(&model).await.unwrap();
        assert_eq!(completion.content, "hi");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert_eq!(endpoint.requests(), 5);
}

/// llama.cpp closes a connection after five answers and does not say so: the sixth request is written
/// into one that is just being closed.
#[tokio::test]
async fn a_connection_that_is_closed_under_a_request_is_no_failure() {
    let table = table();
    let good = || {
        let mut wire = table.body(200, None, &["@hi".into(), "@stop".into()], &End::Good);
        wire.push(RawStep::KeepAlive);
        wire
    };
    let endpoint = RawEndpoint::start([good(), Vec::new(), good()]);
    let model = model(&endpoint, timeouts(None));
    for _ in 0..2 {
        assert_eq!(complete(&model).await.unwrap().content, "hi");
    }
    assert_eq!(endpoint.requests(), 3);
    // Once is a coincidence.
    let endpoint = RawEndpoint::start([good(), Vec::new(), Vec::new(), good()]);
    let model = self::model(&endpoint, timeouts(None));
    assert_eq!(complete(&model).await.unwrap().content, "hi");
    assert!(matches!(
        complete(&model).await,
        Err(ModelError::Connect { .. })
    ));
    assert_eq!(endpoint.requests(), 3);
}

async fn complete(model: &OpenAiModel) -> Result<Completion, ModelError> {
    let request = ChatRequest::new("", vec![ChatMessage::user("hello")]);
    model.complete(&request, &mut |_| {}).await
}

/// Short is the wait that is to end for want of an answer, and no other one: a machine may be busy.
fn timeouts(expect: Option<&ExpectedOutcome>) -> Timeouts {
    let mut timeouts = Timeouts {
        connect: Duration::from_secs(10),
        first_token: Duration::from_secs(30),
        idle: Duration::from_secs(30),
        total: Duration::from_mins(1),
    };
    let Some(ExpectedOutcome::Error(expected)) = expect else {
        return timeouts;
    };
    for word in &expected.says {
        match (&*expected.error, &**word) {
            ("timeout", "first token") => timeouts.first_token = Duration::from_millis(600),
            ("timeout", "next token") => timeouts.idle = Duration::from_millis(400),
            ("timeout", "whole answer") => timeouts.total = Duration::from_secs(2),
            _ => {}
        }
    }
    timeouts
}

fn model(endpoint: &RawEndpoint, timeouts: Timeouts) -> OpenAiModel {
    let transport = HttpTransport::new(&endpoint.base_url(), None, timeouts.connect).unwrap();
    OpenAiModel::new(Arc::new(transport), "m", timeouts)
        .with_key_variable("MY_KEY")
        .with_max_answer_bytes(MOST_BYTES)
}

fn solution(solution: &Value) -> Value {
    json!({"event": {"choices": [{"delta": {"content": solution.to_string()}, "finish_reason": "stop"}]}})
}

fn table() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/misbehaviours.json");
    let text = std::fs::read_to_string(&path).expect("the table");
    serde_json::from_str(&text).expect("a table of misbehaviours")
}

impl Table {
    fn wire(&self, row: &Misbehaviour) -> RawReply {
        match &row.raw {
            Some(pieces) => pieces.iter().flat_map(|piece| self.steps(piece)).collect(),
            None => self.body(row.status, row.headers.as_ref(), &row.body, &row.end),
        }
    }

    /// An answer in the form of HTTP, its body in chunks.
    fn body(
        &self,
        status: u16,
        headers: Option<&BTreeMap<String, String>>,
        pieces: &[Value],
        end: &End,
    ) -> RawReply {
        let mut head = format!("HTTP/1.1 {status} Whatever\r\n");
        let stream = BTreeMap::from([("content-type".to_owned(), "text/event-stream".to_owned())]);
        for (name, value) in headers.unwrap_or(&stream) {
            let value = match value.as_str() {
                "@in_1h" => httpdate::fmt_http_date(SystemTime::now() + HOUR),
                value => value.to_owned(),
            };
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if status == 204 {
            return vec![RawStep::Send(format!("{head}\r\n").into())];
        }
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        let mut wire = vec![RawStep::Send(head.into())];
        for step in pieces.iter().flat_map(|piece| self.steps(piece)) {
            wire.push(match step {
                RawStep::Send(bytes) => RawStep::Send(
                    [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat(),
                ),
                step => step,
            });
        }
        if *end == End::Good {
            wire.push(RawStep::Send(b"0\r\n\r\n".to_vec()));
        }
        wire
    }

    fn steps(&self, piece: &Value) -> RawReply {
        if let Some(text) = piece.as_str() {
            return match text.strip_prefix('@') {
                Some(name) => self.steps(self.pieces.get(name).expect(name)),
                None => vec![RawStep::Send(text.into())],
            };
        }
        let fields = piece.as_object().expect("a piece");
        let wait = fields.get("wait_ms").and_then(Value::as_u64);
        let wait = wait.map(|ms| RawStep::Wait(Duration::from_millis(ms)));
        if let Some(count) = fields.get("repeat").and_then(Value::as_u64) {
            let each: RawReply = self.steps(&fields["of"]).into_iter().chain(wait).collect();
            let count = usize::try_from(count).expect("a count");
            let [RawStep::Send(bytes)] = each.as_slice() else {
                return (0..count).flat_map(|_| each.clone()).collect();
            };
            // A chunk each would be a chunk of a few bytes, a hundred thousand times.
            let many = bytes.repeat(count);
            return many
                .chunks(8 << 10)
                .map(|part| RawStep::Send(part.to_vec()))
                .collect();
        }
        if let Some(event) = fields.get("event") {
            return vec![RawStep::Send(format!("data: {event}\n\n").into())];
        }
        if let Some(json) = fields.get("json") {
            return vec![RawStep::Send(json.to_string().into())];
        }
        if let Some(bytes) = fields.get("base64").and_then(Value::as_str) {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(bytes);
            return vec![RawStep::Send(bytes.expect("base64"))];
        }
        if fields.get("hang") == Some(&Value::Bool(true)) {
            return vec![RawStep::Hang];
        }
        vec![wait.expect("a piece of a known kind")]
    }
}

impl ExpectedOutcome {
    /// What is not as expected.
    fn fault(&self, outcome: &Result<Completion, ModelError>) -> Option<String> {
        match (self, outcome) {
            (Self::Error(expected), Err(error)) => expected.fault(error),
            (Self::Completion(expected), Ok(completion)) => expected.fault(completion),
            (Self::Error(expected), Ok(_)) => Some(format!("no error, but {expected:?}")),
            (Self::Completion(_), Err(error)) => Some(format!("an error: {error}")),
        }
    }
}

impl ExpectedError {
    fn fault(&self, error: &ModelError) -> Option<String> {
        let (kind, received) = match error {
            ModelError::Connect { .. } => ("connect", None),
            ModelError::Timeout { .. } => ("timeout", None),
            ModelError::Status { .. } => ("status", None),
            ModelError::InStream { received, .. } => ("in_stream", Some(received)),
            ModelError::Truncated { received, .. } => ("truncated", Some(received)),
            ModelError::NotAnEndpoint { .. } => ("not_an_endpoint", None),
            ModelError::Decode { .. } => ("decode", None),
            ModelError::Encoding { .. } => ("encoding", None),
            ModelError::TooLarge { .. } => ("too_large", None),
            ModelError::Unavailable(_) | ModelError::GaveUp { .. } => ("of_a_route", None),
            ModelError::Unrecorded { .. }
            | ModelError::OtherRevision { .. }
            | ModelError::Config { .. } => ("configuration", None),
        };
        if kind != self.error || error.class() != self.class {
            return Some(format!("{kind}, {:?}; expected {self:?}", error.class()));
        }
        let message = error.to_string();
        if let Some(word) = self.says.iter().find(|word| !message.contains(*word)) {
            return Some(format!("it does not say {word:?}: {message}"));
        }
        if let Some(word) = self.never_says.iter().find(|word| message.contains(*word)) {
            return Some(format!("it says {word:?}: {message}"));
        }
        let received = received.map(|completion| completion.content.clone());
        if self.received.is_some() && received != self.received {
            return Some(format!(
                "received {received:?}; expected {:?}",
                self.received
            ));
        }
        let wait = error.retry_after();
        let is_right = match (wait, self.retry_after_ms.map(Duration::from_millis)) {
            // Until the date that a row was made with, some time has passed.
            (Some(wait), Some(expected)) if expected == HOUR => {
                wait <= HOUR && HOUR.saturating_sub(wait) < Duration::from_mins(1)
            }
            (Some(wait), Some(expected)) => wait == expected,
            (wait, expected) => wait.is_none() && expected.is_none(),
        };
        if !is_right {
            return Some(format!(
                "a wait of {wait:?}; expected {:?} ms",
                self.retry_after_ms
            ));
        }
        let overflow = error.context_overflow();
        let overflow = overflow.map(|overflow| {
            let ContextOverflow {
                prompt_tokens,
                completion_tokens,
                window,
            } = overflow;
            (prompt_tokens, completion_tokens, window)
        });
        (overflow != self.overflow).then(|| format!("overflow {overflow:?}"))
    }
}

impl ExpectedCompletion {
    fn fault(&self, completion: &Completion) -> Option<String> {
        let calls: Vec<_> = completion
            .tool_calls
            .iter()
            .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()))
            .collect();
        let usage = completion.usage.map(|usage| {
            let Usage {
                prompt_tokens,
                completion_tokens,
                cached_prompt_tokens,
            } = usage;
            (prompt_tokens, completion_tokens, cached_prompt_tokens)
        });
        let is_as_expected = completion.content == self.content
            && completion.reasoning == self.reasoning
            && calls == self.calls
            && completion.finish_reason == self.finish
            && usage == self.usage
            && self
                .extra
                .as_ref()
                .is_none_or(|extra| *extra == completion.extra);
        (!is_as_expected).then(|| format!("expected {self:?}"))
    }
}
