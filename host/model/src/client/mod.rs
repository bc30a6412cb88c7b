//! The client of one OpenAI-compatible endpoint: sends, waits within bounds, and decodes.

mod answer_end;
mod thinking;
mod tokenize;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout, timeout_at};

use self::answer_end::LastEnd;
use self::thinking::ReasoningChange;
use self::tokenize::TokenCounter;
use crate::chat::{ChatRequest, Delivery, FieldNames, ToolChoice};
use crate::decode::Decoder;
use crate::error::{ModelError, TimeoutPhase};
use crate::error_body::{from_status, from_value};
use crate::model::{CompletionObserver, Model};
use crate::offered::OfferedFunction;
use crate::refusals::LastRefusal;
use crate::tokenizer::{Counter, Tokenizer};
use crate::transport::{HttpRequest, HttpResponse, Transport, TransportError};
use toolhold_intake::{charset, json};
use toolhold_protocol::completion::Completion;

/// Default maximum of an answer, in bytes: about two million tokens, far more than any legitimate
/// answer.
pub const DEFAULT_MAX_ANSWER_BYTES: usize = 8 << 20;
/// Maximum bytes read of an error body: many times what is shown of it.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Time limit for reading an error body; the status already carries most of the information.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for the end of the body after `[DONE]`. It usually arrives together with `[DONE]`,
/// and a connection can be reused only if the body was read to its end.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Time limits of one completion. All but `idle` count from the sending of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For name look-up, TCP and TLS.
    pub connect: Duration,
    /// Until the first piece of text, reasoning or a tool call. Head and keep-alives do not count.
    pub first_token: Duration,
    /// Between two pieces, keep-alives included.
    pub idle: Duration,
    /// For the whole answer.
    pub total: Duration,
}

impl Default for Timeouts {
    /// Generous for a small model on a CPU that reads a long prompt first; a hung endpoint is
    /// noticed within two minutes all the same.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_token: Duration::from_mins(2),
            idle: Duration::from_mins(1),
            total: Duration::from_mins(10),
        }
    }
}

/// A model behind an OpenAI-compatible endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiModel {
    transport: Arc<dyn Transport>,
    model: String,
    timeouts: Timeouts,
    max_answer_bytes: usize,
    delivery: Delivery,
    /// True if an endpoint that refuses to be told to call a tool is not asked without that.
    insists: bool,
    /// Fields added to every request that does not set them itself.
    extra: Map<String, Value>,
    names: FieldNames,
    /// The change of the reasoning that the endpoint wanted last, from a refusal that was gone with it.
    reasoning: Arc<LastRefusal<ReasoningChange>>,
    last_end: Arc<LastEnd>,
    /// The environment variable that the key came from, for messages.
    key_variable: Option<String>,
    tokenizer: Option<Tokenizer>,
}

impl OpenAiModel {
    /// A model reached through any transport. The transport, not the client, applies
    /// `timeouts.connect`.
    pub fn new(
        transport: Arc<dyn Transport>,
        model: impl Into<String>,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            transport,
            model: model.into(),
            timeouts,
            max_answer_bytes: DEFAULT_MAX_ANSWER_BYTES,
            delivery: Delivery::default(),
            insists: false,
            extra: Map::new(),
            names: FieldNames::default(),
            reasoning: Arc::default(),
            last_end: Arc::default(),
            key_variable: None,
            tokenizer: None,
        }
    }

    /// The same model with the same settings over another transport, such as one that records.
    #[must_use]
    pub fn over(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = transport;
        // A recording is played from its begin, where neither a refusal nor an end is known.
        self.reasoning = Arc::default();
        self.last_end = Arc::default();
        self
    }

    /// Bounds the bytes of one answer as it comes over the wire.
    #[must_use]
    pub fn with_max_answer_bytes(mut self, limit: usize) -> Self {
        self.max_answer_bytes = limit;
        self
    }

    /// Sets the delivery of answers, for endpoints that do not support the default.
    #[must_use]
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Leaves every request as it is, for a probe: a refused demand of a call is a refusal.
    #[must_use]
    pub(crate) fn insisting(mut self) -> Self {
        self.insists = true;
        self
    }

    /// Vendor extras for every request: fields beside those that a [`ChatRequest`] has, none of which
    /// they replace.
    #[must_use]
    pub fn with_extra(mut self, extra: Map<String, Value>) -> Self {
        self.extra = extra;
        self
    }

    /// Sets what the endpoint calls fields of a request.
    #[must_use]
    pub fn with_field_names(mut self, names: FieldNames) -> Self {
        self.names = names;
        self
    }

    /// Names the environment variable that holds the key, so that a refusal can point to it.
    #[must_use]
    pub fn with_key_variable(mut self, name: impl Into<String>) -> Self {
        self.key_variable = Some(name.into());
        self
    }

    /// Sets how the endpoint counts tokens, if a probe found a way.
    #[must_use]
    pub fn with_tokenizer(mut self, tokenizer: Option<Tokenizer>) -> Self {
        self.tokenizer = tokenizer;
        self
    }

    /// The endpoint's base URL, without credentials.
    pub fn target(&self) -> &str {
        self.transport.target()
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// One exchange other than chat: returns the whole answer, whatever its status, within `within` and the
    /// byte limit of an answer.
    pub(crate) async fn ask(
        &self,
        request: HttpRequest,
        within: Duration,
    ) -> Result<HttpAnswer, ModelError> {
        let exchange = async {
            let response = self.transport.send(request).await?;
            let (status, retry_after) = (response.status, response.retry_after());
            let content_type = response.header("content-type").map(str::to_owned);
            let mut body = Vec::new();
            read_into(&mut body, response.body, self.max_answer_bytes).await?;
            let read = body.len();
            let body = charset::utf8(body, content_type.as_deref());
            // Another charset may make more of it.
            if read.max(body.len()) >= self.max_answer_bytes {
                return Err(ModelError::TooLarge {
                    limit: self.max_answer_bytes,
                    unit: "bytes",
                });
            }
            Ok(HttpAnswer {
                status,
                retry_after,
                body,
            })
        };
        timeout(within, exchange)
            .await
            .unwrap_or(Err(ModelError::Timeout {
                phase: TimeoutPhase::Total,
                after: within,
            }))
    }

    /// The JSON of an answer that reports no error; `null` if it is no JSON.
    pub(crate) fn accepted(&self, answer: &HttpAnswer) -> Result<Value, ModelError> {
        let value = answer.json().unwrap_or_default();
        if answer.is_success() && from_value(&value).is_none() {
            Ok(value)
        } else {
            Err(self.refused(answer))
        }
    }

    /// The error that an answer with this status is.
    pub(crate) fn refused(&self, answer: &HttpAnswer) -> ModelError {
        ModelError::Status {
            status: answer.status,
            retry_after: answer.retry_after,
            detail: Box::new(from_status(
                answer.status,
                &answer.body,
                self.key_variable.as_deref(),
            )),
        }
    }

    async fn run(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        let mut timeouts = self.timeouts.clone();
        if self.delivery == Delivery::Whole {
            // The first token comes with the last.
            timeouts.first_token = timeouts.total;
        }
        let mut clock = CompletionDeadlines::start(&timeouts);
        let mut known = self.reasoning.get();
        let mut change = known;
        let mut asked = Cow::Borrowed(request);
        let completion = loop {
            let asking = self.complete_once(&asked, change, &mut clock, watch);
            let mut refusal = match asking.await {
                Ok(completion) => break completion,
                Err(error) if error.as_refusal().is_none() => return Err(error),
                Err(refusal) => refusal,
            };
            // Whether the reply calls a tool, the host checks in any case.
            if !self.insists && asked.demands_call() && refusal.is_about_tool_choice() {
                asked = Cow::Owned(ChatRequest {
                    tool_choice: Some(ToolChoice::Auto),
                    ..request.clone()
                });
                continue;
            }
            if let Some(next) = ReasoningChange::after(&refusal, request, change) {
                change = Some(next);
                continue;
            }
            // Another model may be there now, which wants what the one before refused.
            if known.take().is_some() && ReasoningChange::is_meant_by(&refusal) {
                self.reasoning.forget();
                change = None;
                continue;
            }
            if request.images() > 0 {
                refusal.advise_of_images();
            }
            return Err(refusal);
        };
        if let Some(change) = change.filter(|_| change != known) {
            self.reasoning.note(change);
        }
        Ok(completion)
    }

    /// Sends the request once, and reads what comes.
    async fn complete_once(
        &self,
        request: &ChatRequest,
        change: Option<ReasoningChange>,
        clock: &mut CompletionDeadlines<'_>,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        let sending = self.transport.send(self.http_request(request, change));
        let response = clock.bound(sending).await??;
        if !is_success(response.status) {
            return Err(self.refusal(response).await);
        }
        let url = self.transport.target();
        let content_type = unread_encoding(&response)
            .map(|encoding| format!("{encoding}, a compression that was not asked for,"))
            .or_else(|| response.header("content-type").map(str::to_owned));
        let tools = request.tools.iter();
        let functions = tools.map(|tool| OfferedFunction::new(&tool.name, &tool.parameters));
        let mut decoder = Decoder::new(self.max_answer_bytes, content_type.as_deref())
            .offering(functions.collect());
        let mut body = response.body;
        // Whether the answer had its formal end, as far as that is known.
        let mut is_sent = None;
        while !decoder.is_done() {
            let tail_wait = || {
                let may_call_again = decoder.may_call_again();
                self.last_end.wait(self.timeouts.idle, may_call_again)
            };
            clock.note_tail(decoder.is_tail().then(tail_wait));
            match clock.bound(body.next()).await {
                Ok(Some(Ok(bytes))) => {
                    decoder.push(&bytes, url, &mut |delta| {
                        clock.saw_token();
                        watch.delta(delta);
                    })?;
                    watch.room().await;
                    // Not before: the endpoint is not silent while the host waits for itself.
                    clock.saw_bytes();
                }
                Ok(None) => {
                    is_sent = Some(true);
                    break;
                }
                // At most the token count is missing.
                Err(ModelError::Timeout {
                    phase: TimeoutPhase::Idle | TimeoutPhase::Total,
                    ..
                }) if decoder.is_tail() => {
                    is_sent = Some(false);
                    break;
                }
                Ok(Some(Err(_))) | Err(_) if decoder.is_certain() => break,
                Ok(Some(Err(source @ TransportError::Broken { .. }))) => {
                    return Err(ModelError::Truncated {
                        received: Box::new(clock.stamp(decoder.into_completion())),
                        source: Some(source),
                    });
                }
                Ok(Some(Err(error))) => return Err(error.into()),
                Err(error) => return Err(error),
            }
        }
        let is_done = decoder.is_done();
        let completion = decoder.finish(url, &mut |delta| {
            clock.saw_token();
            watch.delta(delta);
        })?;
        let completion = clock.stamp(completion);
        if let Some(is_sent) = is_sent.or(is_done.then_some(true)) {
            self.last_end.note(is_sent);
        }
        if is_done {
            let drain = async { while let Some(Ok(_)) = body.next().await {} };
            // A server that keeps sending after the end only loses its connection.
            let _ = timeout(DRAIN_TIMEOUT, drain).await;
        }
        Ok(completion)
    }

    /// `change`: of the reasoning in the messages, after a refusal.
    fn http_request(&self, request: &ChatRequest, change: Option<ReasoningChange>) -> HttpRequest {
        let mut body = request.body_for(self.delivery, &self.names);
        if request.model.is_empty() {
            body["model"] = self.model.as_str().into();
        }
        if let Some(change) = change {
            change.make(&mut body);
        }
        if let Value::Object(fields) = &mut body {
            for (key, value) in &self.extra {
                fields.entry(key).or_insert_with(|| value.clone());
            }
        }
        HttpRequest::post("chat/completions", body)
    }

    async fn refusal(&self, response: HttpResponse) -> ModelError {
        let (status, retry_after) = (response.status, response.retry_after());
        let location = response.header("location").map(str::to_owned);
        let encoding = unread_encoding(&response).map(str::to_owned);
        let content_type = response.header("content-type").map(str::to_owned);
        let mut body = Vec::new();
        let reading = read_into(&mut body, response.body, MAX_ERROR_BYTES);
        // The part of the body that was read is used, even if reading it failed.
        let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
        body = charset::utf8(body, content_type.as_deref());
        if let Some(location) = location.filter(|_| body.is_empty()) {
            body = format!("redirect to {location}").into_bytes();
        }
        if let Some(encoding) = encoding {
            body = format!("its explanation is compressed ({encoding}), which was not asked for")
                .into_bytes();
        }
        self.refused(&HttpAnswer {
            status,
            retry_after,
            body,
        })
    }
}

/// A whole response to a request other than chat.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    pub(crate) fn is_success(&self) -> bool {
        is_success(self.status)
    }

    /// There is no such route.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.status, 404 | 405 | 501)
    }

    pub(crate) fn json(&self) -> Option<Value> {
        json::from_slice(&self.body).ok()
    }
}

impl Model for OpenAiModel {
    fn name(&self) -> &str {
        &self.model
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        self.run(request, watch).boxed()
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        let with = self.tokenizer?;
        let model = self.clone();
        Some(Arc::new(TokenCounter { model, with }))
    }
}

fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

/// The compression that the transport left on the body, because it cannot read it.
fn unread_encoding(response: &HttpResponse) -> Option<&str> {
    let encoding = response.header("content-encoding");
    encoding.filter(|encoding| *encoding != "identity")
}

/// Reads until the end or the limit, in bytes; what was read stays in `buffer` either way.
async fn read_into(
    buffer: &mut Vec<u8>,
    mut body: BoxStream<'static, Result<Bytes, TransportError>>,
    limit: usize,
) -> Result<(), TransportError> {
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        let room = limit - buffer.len();
        buffer.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if buffer.len() == limit {
            break;
        }
    }
    Ok(())
}

/// The time limits of one completion: computes how long its next wait may take.
struct CompletionDeadlines<'a> {
    timeouts: &'a Timeouts,
    started: Instant,
    last_bytes: Instant,
    first_token: Option<Duration>,
    /// When only the formal end of the answer was still to come, and the wait for it. Keep-alives behind it change nothing.
    tail: Option<(Instant, Duration)>,
}

impl<'a> CompletionDeadlines<'a> {
    fn start(timeouts: &'a Timeouts) -> Self {
        let now = Instant::now();
        Self {
            timeouts,
            started: now,
            last_bytes: now,
            first_token: None,
            tail: None,
        }
    }

    fn saw_token(&mut self) {
        self.first_token.get_or_insert(self.started.elapsed());
    }

    fn saw_bytes(&mut self) {
        self.last_bytes = Instant::now();
    }

    /// `wait`: the one for the formal end, if only this is still to come.
    fn note_tail(&mut self, wait: Option<Duration>) {
        let since = self.tail.map(|(since, _)| since);
        self.tail = wait.map(|wait| (since.unwrap_or_else(Instant::now), wait));
    }

    fn stamp(&self, completion: Completion) -> Completion {
        Completion {
            time_to_first_token: self.first_token,
            duration: self.started.elapsed(),
            ..completion
        }
    }

    /// Waits as long as the phase allows.
    async fn bound<F: Future>(&self, future: F) -> Result<F::Output, ModelError> {
        let (deadline, phase, after) = self.deadline();
        match timeout_at(deadline, future).await {
            Ok(output) => Ok(output),
            Err(_) => Err(ModelError::Timeout { phase, after }),
        }
    }

    fn deadline(&self) -> (Instant, TimeoutPhase, Duration) {
        let Timeouts {
            first_token,
            idle,
            total,
            ..
        } = *self.timeouts;
        let (since, phase, after) = if let Some((since, wait)) = self.tail {
            (since, TimeoutPhase::Idle, wait)
        } else if self.first_token.is_some() {
            (self.last_bytes, TimeoutPhase::Idle, idle)
        } else {
            (self.started, TimeoutPhase::FirstToken, first_token)
        };
        let (next, end) = (later(since, after), later(self.started, total));
        if next <= end {
            (next, phase, after)
        } else {
            (end, TimeoutPhase::Total, total)
        }
    }
}

/// `instant` plus `by`, capped at one day because `Instant` can overflow.
fn later(instant: Instant, by: Duration) -> Instant {
    instant + by.min(Duration::from_hours(24))
}

#[cfg(test)]
pub(crate) mod client_tests;
