//! A scripted model for tests, which records the requests it receives.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::chat::{ChatMessage, ChatRequest};
use crate::error::{ErrorDetail, ModelError};
use crate::model::{CompletionObserver, Model};
use crate::transport::TransportError;
use toolhold_protocol::completion::{Completion, ContextOverflow, Delta, Usage};
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// Reaction to one request.
#[derive(Clone, Debug)]
pub enum Act {
    Say(&'static str),
    /// Takes so long.
    Think(Duration, &'static str),
    Refuse(u16),
    /// With a Retry-After.
    RefuseFor(u16, Duration),
    /// The prompt does not fit.
    Overflow,
    /// The connection breaks.
    Unreachable,
    /// No connection can be opened.
    NoConnection,
    /// Accepts the request, and reports an error of this code in its answer.
    ReportInAnswer(&'static str),
    /// Says this, and then the connection breaks.
    Break(&'static str),
    Never,
    /// Says this at once, and is done so long after.
    Begin(&'static str, Duration),
    /// Fails after so long, without a word.
    RefuseAfter(Duration, u16),
}

#[derive(Clone, Debug, Default)]
pub struct Scripted(Arc<ScriptedState>);

#[derive(Debug, Default)]
struct ScriptedState {
    script: Mutex<Script>,
    busy: AtomicUsize,
    most_busy: AtomicUsize,
}

#[derive(Debug, Default)]
struct Script {
    acts: VecDeque<Act>,
    /// Reaction to requests after the last act.
    last: Option<Act>,
    requests: Vec<ChatRequest>,
}

impl Scripted {
    /// Does these, and then the last one for ever.
    pub fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let acts: VecDeque<Act> = acts.into_iter().collect();
        let script = Script {
            last: acts.back().cloned(),
            acts,
            requests: Vec::new(),
        };
        Self(Arc::new(ScriptedState {
            script: Mutex::new(script),
            ..ScriptedState::default()
        }))
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn requests(&self) -> Vec<ChatRequest> {
        self.script().requests.clone()
    }

    pub fn asked(&self) -> usize {
        self.script().requests.len()
    }

    pub fn busy(&self) -> usize {
        self.0.busy.load(Ordering::SeqCst)
    }

    pub fn most_busy(&self) -> usize {
        self.0.most_busy.load(Ordering::SeqCst)
    }
}

impl Model for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let act = {
            let mut script = self.script();
            script.requests.push(request.clone());
            script.acts.pop_front().or_else(|| script.last.clone())
        };
        let busy = Busy::enter(self.0.clone());
        async move {
            let _busy = busy;
            match act.unwrap_or(Act::Never) {
                Act::Say(text) => Ok(say(text, watch)),
                Act::Think(time, text) => {
                    sleep(time).await;
                    Ok(say(text, watch))
                }
                Act::Refuse(code) => Err(status(code, None, None)),
                Act::RefuseFor(code, time) => Err(status(code, Some(time), None)),
                Act::Overflow => Err(status(400, None, Some(ContextOverflow::default()))),
                Act::Unreachable => Err(TransportError::Broken {
                    url: "http://scripted".into(),
                    reason: "connection reset".into(),
                }
                .into()),
                Act::NoConnection => Err(TransportError::Connect {
                    url: "http://scripted".into(),
                    reason: "connection refused".into(),
                }
                .into()),
                Act::ReportInAnswer(code) => Err(ModelError::InStream {
                    detail: Box::new(ErrorDetail {
                        code: Some(code.into()),
                        message: "no".into(),
                        ..ErrorDetail::default()
                    }),
                    received: Box::default(),
                }),
                Act::Break(text) => Err(ModelError::Truncated {
                    received: Box::new(say(text, watch)),
                    source: None,
                }),
                Act::Never => std::future::pending().await,
                Act::Begin(text, time) => {
                    let completion = say(text, watch);
                    sleep(time).await;
                    Ok(completion)
                }
                Act::RefuseAfter(time, code) => {
                    sleep(time).await;
                    Err(status(code, None, None))
                }
            }
        }
        .boxed()
    }
}

fn say(text: &str, watch: &mut dyn CompletionObserver) -> Completion {
    watch.delta(Delta::Content(text.to_owned()));
    Completion {
        content: text.to_owned(),
        usage: Some(Usage {
            prompt_tokens: 10,
            completion_tokens: 5,
            ..Usage::default()
        }),
        ..Completion::default()
    }
}

fn status(
    status: u16,
    retry_after: Option<Duration>,
    overflow: Option<ContextOverflow>,
) -> ModelError {
    ModelError::Status {
        status,
        retry_after,
        detail: Box::new(ErrorDetail {
            message: "no".into(),
            overflow,
            ..ErrorDetail::default()
        }),
    }
}

struct Busy(Arc<ScriptedState>);

impl Busy {
    fn enter(state: Arc<ScriptedState>) -> Self {
        let now = state.busy.fetch_add(1, Ordering::SeqCst) + 1;
        state.most_busy.fetch_max(now, Ordering::SeqCst);
        Self(state)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Records everything that a watcher receives.
#[derive(Debug, Default)]
pub struct WatchRecorder {
    pub text: String,
    pub routing: Vec<Routing>,
    pub side: Vec<SideRequest>,
}

impl WatchRecorder {
    /// The decisions, by their names on the wire.
    pub fn decisions(&self) -> Vec<String> {
        let name = |routing| {
            let value = serde_json::to_value(routing).unwrap_or_default();
            value["decision"].as_str().unwrap_or_default().to_owned()
        };
        self.routing.iter().map(name).collect()
    }
}

impl CompletionObserver for WatchRecorder {
    fn delta(&mut self, delta: Delta) {
        if let Delta::Content(text) = delta {
            self.text.push_str(&text);
        }
    }

    fn routing(&mut self, routing: Routing) {
        self.routing.push(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.side.push(request);
    }
}

pub fn request() -> ChatRequest {
    ChatRequest {
        max_tokens: Some(1_000),
        ..ChatRequest::new("pool", vec![ChatMessage::user("hello")])
    }
}

pub async fn complete(model: &dyn Model) -> (Result<Completion, ModelError>, WatchRecorder) {
    ask(model, &request()).await
}

pub async fn ask(
    model: &dyn Model,
    request: &ChatRequest,
) -> (Result<Completion, ModelError>, WatchRecorder) {
    let mut heard = WatchRecorder::default();
    let result = model.complete(request, &mut heard).await;
    (result, heard)
}
