//! Follows one run event by event: the spans that an event begins or ends, and the metrics that it adds to.

use crate::clock::now_ms;
use crate::context::parent_of;
use crate::conventions as names;
use crate::handle::{Exporters, Telemetry};
use crate::instruments::Instruments;
use crate::request::RequestParameters;
use crate::spans::{self, OpenSpan, Spans};
use opentelemetry::{Context, KeyValue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::{Bodies, ToolOutcome};
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::routing::Routing;
use uuid::Uuid;

/// The run that an [`Observer`] follows.
#[derive(Debug, Clone, Default)]
pub struct ObservedRun {
    /// Id of the run.
    pub run: Uuid,
    /// Name of the agent.
    pub agent: String,
    /// The session that the run is a turn of.
    pub conversation: Option<Uuid>,
    /// The trace to continue: the client's, or the run's own from before a crash.
    pub parent: Context,
}

impl ObservedRun {
    /// Attributes of the run's spans.
    fn about(&self) -> Vec<KeyValue> {
        let session = self.conversation;
        let session = session.map(|id| KeyValue::new(names::CONVERSATION, id.to_string()));
        let run = KeyValue::new(names::RUN, self.run.to_string());
        [run].into_iter().chain(session).collect()
    }
}

/// Takes every event of a run, in order, and records spans and metrics. For a run that resumes after a crash it may
/// start in the middle, and has a span from there on.
#[derive(Debug)]
pub struct Observer {
    inner: Option<Arc<Exporters>>,
    spans: Spans,
    subject: ObservedRun,
    root: Option<AgentRun>,
    /// Completes requests, which events shorten; used only if content is captured.
    bodies: Bodies,
}

/// A run, a sub-agent of one, or the calls that a call makes.
#[derive(Debug, Default)]
struct AgentRun {
    agent: String,
    /// None of its own for the calls that a call makes.
    span: OpenSpan,
    /// The span of the call that makes its calls.
    caller: Option<Context>,
    began_ms: u64,
    model: String,
    /// Names of its tools. Another name is a model's invention, and no metric may have it as a label.
    tools: BTreeSet<String>,
    request: RequestParameters,
    chat: Option<Chat>,
    /// What is wrong with the last reply, if it turns out that it cannot be used.
    fault: Option<&'static str>,
    /// Outcome of the last reply's calls that were answered so far.
    asked_calls: AskedCalls,
    calls: BTreeMap<String, OpenCall>,
    /// Sub-agents, by the id of the call that started each.
    subs: BTreeMap<String, AgentRun>,
    /// Prompt and completion tokens of all replies.
    tokens: (u64, u64),
}

/// Outcome of the calls of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum AskedCalls {
    #[default]
    None,
    /// No call could be made, because of this fault.
    Impossible(&'static str),
    /// A call was made, or was refused for another reason.
    Fit,
}

impl AskedCalls {
    /// A further call was refused, with a failure of this kind.
    fn and_refused(self, kind: &str) -> Self {
        let fault = match kind {
            UNKNOWN_TOOL => UNKNOWN_TOOL,
            ARGUMENTS => ARGUMENTS,
            _ => return Self::Fit,
        };
        match self {
            Self::Fit => Self::Fit,
            Self::Impossible(UNKNOWN_TOOL) | Self::None => Self::Impossible(fault),
            // Some of the tools exist.
            Self::Impossible(_) => Self::Impossible(ARGUMENTS),
        }
    }
}

/// A request without a reply yet.
#[derive(Debug)]
struct Chat {
    span: OpenSpan,
    sent_ms: u64,
    last_ms: Option<u64>,
    models: Vec<KeyValue>,
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    span: OpenSpan,
    tool: String,
}

impl Telemetry {
    /// An observer that follows a run.
    pub fn observe(&self, subject: ObservedRun) -> Observer {
        Observer::new(self.clone(), subject)
    }
}

impl Observer {
    fn new(telemetry: Telemetry, subject: ObservedRun) -> Self {
        let spans = telemetry.spans();
        let at_ms = now_ms();
        let root = telemetry.inner.is_some().then(|| AgentRun {
            agent: subject.agent.clone(),
            span: spans.agent(&subject.agent, &subject.parent, at_ms, subject.about()),
            began_ms: at_ms,
            ..AgentRun::default()
        });
        Self {
            inner: telemetry.inner,
            spans,
            subject,
            root,
            bodies: Bodies::default(),
        }
    }

    /// The run's span as `traceparent`, for its record; absent without tracing.
    pub fn trace(&self) -> Option<String> {
        parent_of(&self.root.as_ref()?.span.as_parent())
    }

    /// Observes the run that was begun, or ends the span of a run that was not.
    pub fn begun<R, E>(self, run: Result<R, E>) -> Result<(R, Self), E> {
        match run {
            Ok(run) => Ok((run, self)),
            Err(refused) => {
                if let Some(mut root) = self.root {
                    root.end(now_ms(), Some("not_begun"));
                }
                Err(refused)
            }
        }
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        let (Some(inner), Some(root)) = (self.inner.clone(), &mut self.root) else {
            return;
        };
        let (spans, at_ms) = (&self.spans, event.at_ms);
        let body = if spans.captures() {
            // An observer that starts in the middle cannot complete a request that refers to earlier ones.
            self.bodies.take(&event.kind).ok().flatten()
        } else {
            None
        };
        let subject = &self.subject;
        let mut lane = root;
        let (mut kind, mut is_run) = (&event.kind, true);
        while let EventKind::Sub { call, what } = kind {
            let (agent, parent) = match lane.calls.get(call) {
                Some(call) => (call.tool.clone(), call.span.as_parent()),
                None => ("sub-agent".to_owned(), lane.span.as_parent()),
            };
            lane = lane.subs.entry(call.clone()).or_insert_with(|| {
                let is_calls = is_of_a_call(what);
                AgentRun {
                    span: if is_calls {
                        OpenSpan::default()
                    } else {
                        spans.agent(&agent, &parent, at_ms, subject.about())
                    },
                    caller: is_calls.then_some(parent),
                    agent,
                    began_ms: at_ms,
                    ..AgentRun::default()
                }
            });
            (kind, is_run) = (what, false);
        }
        lane.take(kind, at_ms, spans, &inner.instruments, is_run);
        if let (Some(body), Some(chat)) = (body, &lane.chat) {
            spans.capture(&chat.span, names::INPUT_MESSAGES, || spans::messages(body));
        }
        if let (EventKind::Request { .. }, Some(session), Some(chat)) =
            (kind, subject.conversation, &lane.chat)
        {
            let session = session.to_string();
            chat.span.set(KeyValue::new(names::CONVERSATION, session));
        }
    }
}

/// Whether an event that is the first within a call is of another call that this one makes. A sub-agent begins with
/// its run, or goes on with it.
fn is_of_a_call(first: &EventKind) -> bool {
    matches!(
        first,
        EventKind::ToolStart { .. }
            | EventKind::Plan { .. }
            | EventKind::Repaired { .. }
            | EventKind::ToolResult { .. }
            | EventKind::Approval { .. }
            | EventKind::Shield(_)
            | EventKind::SideRequest(_)
            | EventKind::Routing(_)
            | EventKind::RequestFetched(_)
            | EventKind::ToolRetry { .. }
    )
}

impl AgentRun {
    /// The span within which its calls are.
    fn around(&self) -> Context {
        let caller = self.caller.clone();
        caller.unwrap_or_else(|| self.span.as_parent())
    }

    fn take(
        &mut self,
        kind: &EventKind,
        at_ms: u64,
        spans: &Spans,
        instruments: &Instruments,
        is_run: bool,
    ) {
        match kind {
            EventKind::Run { model, tools, .. } => {
                self.tools = tools.iter().map(|it| it.tool.name.clone()).collect();
                self.model.clone_from(model);
                let model = KeyValue::new(names::REQUEST_MODEL, model.clone());
                self.span.set(model);
            }
            EventKind::Request { same, body, .. } => {
                self.of_no_use(instruments);
                self.request.take(same, body, &self.model);
                self.chat = Some(Chat {
                    span: spans.chat(&self.request, &self.span, at_ms),
                    sent_ms: at_ms,
                    last_ms: None,
                    models: vec![
                        KeyValue::new(names::OPERATION, names::CHAT),
                        KeyValue::new(names::PROVIDER, names::OPENAI),
                        KeyValue::new(names::REQUEST_MODEL, self.request.model.clone()),
                    ],
                });
            }
            EventKind::Delta { .. } => {
                if let Some(chat) = &mut self.chat
                    && let Some(last) = chat.last_ms.replace(at_ms)
                {
                    let after = Duration::from_millis(at_ms.saturating_sub(last));
                    instruments.next_chunk(&chat.models, after);
                }
            }
            EventKind::Reply { completion, .. } => {
                if let Some(mut chat) = self.chat.take() {
                    if let Some(model) = &completion.model {
                        let model = KeyValue::new(names::RESPONSE_MODEL, model.clone());
                        chat.models.push(model);
                    }
                    let usage = completion.usage.as_ref();
                    let first = completion.time_to_first_token;
                    instruments.replied(&chat.models, usage, completion.duration, first);
                    if let Some(usage) = usage {
                        self.tokens.0 += usage.prompt_tokens;
                        self.tokens.1 += usage.completion_tokens;
                    }
                    spans::replied(&chat.span, completion);
                    spans.capture(&chat.span, names::OUTPUT_MESSAGES, || {
                        spans::answer(completion)
                    });
                    chat.span.end(at_ms, None);
                }
                self.fault = Some(fault(completion));
            }
            // The last one of a run and those of other models have no event of their own.
            EventKind::UnusableReply(_)
            | EventKind::Fallback {
                stage: Stage::Failed { .. },
                ..
            } => self.unusable(instruments),
            EventKind::Plan { .. } => self.fault = None,
            EventKind::ModelFailed { failure, .. } => {
                if let Some(chat) = self.chat.take() {
                    let error = failure.class.name();
                    let took = Duration::from_millis(at_ms.saturating_sub(chat.sent_ms));
                    instruments.failed(&chat.models, took, error);
                    if chat.last_ms.is_some() {
                        instruments.unusable(&self.request.model, BROKEN_OFF);
                    }
                    chat.span.end(at_ms, Some(error));
                }
            }
            EventKind::Routing(routing) => self.routed(routing, at_ms, instruments),
            EventKind::ToolStart { call, filled, .. } => {
                let span = spans.tool(&call.tool, &call.id, &self.around(), at_ms);
                spans.capture(&span, names::TOOL_ARGUMENTS, || {
                    filled.as_ref().unwrap_or(&call.arguments).clone()
                });
                self.asked_calls = AskedCalls::Fit;
                let tool = call.tool.clone();
                self.calls.insert(call.id.clone(), OpenCall { span, tool });
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                module,
                cached,
                ..
            } => {
                self.fault = None;
                // A sub-agent that was stopped has no event of its end.
                if let Some(mut sub) = self.subs.remove(id) {
                    sub.end(at_ms, Some("cancelled"));
                }
                let begun = self.calls.remove(id);
                if begun.is_none() {
                    self.asked_calls = match outcome {
                        ToolOutcome::Error(failure) => self.asked_calls.and_refused(&failure.kind),
                        ToolOutcome::Output(_) => AskedCalls::Fit,
                    };
                }
                // A module calls nothing but tools that there are.
                let is_known =
                    begun.is_some() || self.tools.contains(tool) || self.caller.is_some();
                let tool = if is_known { tool } else { OTHER };
                // A call that was refused has no event of its begin.
                let refused = || spans.tool(tool, id, &self.around(), at_ms);
                let span = begun.map_or_else(refused, |call| call.span);
                let error = match outcome {
                    ToolOutcome::Output(value) => {
                        spans.capture(&span, names::TOOL_RESULT, || value.clone());
                        None
                    }
                    ToolOutcome::Error(failure) => Some(failure.kind.as_str()),
                };
                if cached.is_some() {
                    instruments.cached(tool);
                    span.set(KeyValue::new(names::CACHED, true));
                } else {
                    instruments.called(tool, error, usage);
                    spans::called(&span, usage, module.as_deref());
                }
                span.end(at_ms, error);
            }
            EventKind::ToolRetry { retry, .. } => {
                if let Some(call) = self.calls.get(&retry.id) {
                    let attributes = vec![
                        KeyValue::new(names::ERROR_TYPE, retry.error.clone()),
                        KeyValue::new(names::ATTEMPT, i64::from(retry.attempt)),
                        spans::number(names::WAIT_MS, retry.wait_ms),
                    ];
                    call.span.event("retry", at_ms, attributes);
                }
            }
            EventKind::Fallback {
                stage: Stage::Asked { candidate, .. },
                ..
            } => {
                instruments.fell_back(candidate);
                let model = KeyValue::new(names::REQUEST_MODEL, candidate.clone());
                self.span.event("fallback", at_ms, vec![model]);
            }
            EventKind::Repaired { repairs, .. } => instruments.repaired(repairs.len() as u64),
            EventKind::Done { reason, steps, .. } => {
                self.of_no_use(instruments);
                if *reason == StopReason::Unusable {
                    self.unusable(instruments);
                }
                let name = reason.name();
                let took = Duration::from_millis(at_ms.saturating_sub(self.began_ms));
                instruments.agent_ended(&self.agent, name, took, is_run);
                self.span
                    .set(spans::number(names::STEPS, u64::from(*steps)));
                self.span.set(KeyValue::new(names::STOP_REASON, name));
                let is_good = matches!(
                    reason,
                    StopReason::Output | StopReason::Planned | StopReason::ToolCalls
                );
                self.end(at_ms, (!is_good).then_some(name));
            }
            _ => {}
        }
    }

    /// Counts the last reply, if it was not used or counted.
    fn unusable(&mut self, instruments: &Instruments) {
        if let Some(fault) = self.fault.take() {
            instruments.unusable(&self.request.model, fault);
        }
    }

    /// Counts the last reply, if all that it did was to ask for calls that cannot be made. The calls of a plan, and of a
    /// module, are in no reply.
    fn of_no_use(&mut self, instruments: &Instruments) {
        let asked = std::mem::take(&mut self.asked_calls);
        if let (AskedCalls::Impossible(fault), false) = (asked, self.request.model.is_empty()) {
            instruments.unusable(&self.request.model, fault);
        }
    }

    fn routed(&mut self, routing: &Routing, at_ms: u64, instruments: &Instruments) {
        match routing {
            Routing::Retry {
                endpoint,
                attempt,
                wait_ms,
                ..
            } => {
                instruments.retried(endpoint);
                if let Some(chat) = &self.chat {
                    let attributes = vec![
                        KeyValue::new(names::ENDPOINT, endpoint.clone()),
                        KeyValue::new(names::ATTEMPT, i64::from(*attempt)),
                        spans::number(names::WAIT_MS, *wait_ms),
                    ];
                    chat.span.event("retry", at_ms, attributes);
                }
            }
            Routing::NoCompletion { .. } => {
                instruments.unusable(&self.request.model, NO_COMPLETION);
            }
            Routing::Waited { endpoint, wait_ms } => {
                instruments.waited_for_endpoint(endpoint, Duration::from_millis(*wait_ms));
            }
            _ => {}
        }
    }

    /// Ends all open spans, innermost first.
    fn end(&mut self, at_ms: u64, error: Option<&str>) {
        for sub in self.subs.values_mut() {
            sub.end(at_ms, Some("cancelled"));
        }
        for call in self.calls.values() {
            // In a run that ended well, these are calls that its client makes.
            call.span.end(at_ms, error.map(|_| "cancelled"));
        }
        if let Some(chat) = self.chat.take() {
            chat.span.end(at_ms, Some("cancelled"));
        }
        (self.subs, self.calls) = Default::default();
        self.span
            .set(spans::number(names::INPUT_TOKENS, self.tokens.0));
        self.span
            .set(spans::number(names::OUTPUT_TOKENS, self.tokens.1));
        self.span.end(at_ms, error);
    }
}

/// What is wrong with a reply that cannot be used.
fn fault(completion: &Completion) -> &'static str {
    let is_empty = completion.content.trim().is_empty() && completion.tool_calls.is_empty();
    match completion.finish_reason.as_deref() {
        Some("length") => "cut_off",
        Some("content_filter") => "filtered",
        _ if is_empty && !completion.reasoning.trim().is_empty() => "only_thought",
        _ if is_empty => "empty",
        _ => "unreadable",
    }
}

/// The fault of a successful answer of an endpoint that is no completion.
const NO_COMPLETION: &str = "no_completion";

/// The kind of failure of a call whose tool does not exist; and what is wrong with a reply that makes no other calls.
const UNKNOWN_TOOL: &str = "unknown_tool";

/// The kind of failure of a call whose arguments do not fit; also a fault of a reply.
const ARGUMENTS: &str = "arguments";

/// The fault of a reply whose end never came.
const BROKEN_OFF: &str = "broken_off";

/// The conventions' label for values that are not told apart.
const OTHER: &str = "_OTHER";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_of_no_use_if_none_of_its_calls_can_be_made() {
        let after = |kinds: &[&str]| {
            let calls = kinds.iter();
            calls.fold(AskedCalls::None, |calls, kind| calls.and_refused(kind))
        };
        assert_eq!(after(&[]), AskedCalls::None);
        let unknown = AskedCalls::Impossible(UNKNOWN_TOOL);
        assert_eq!(after(&[UNKNOWN_TOOL, UNKNOWN_TOOL]), unknown);
        let arguments = AskedCalls::Impossible(ARGUMENTS);
        assert_eq!(after(&[UNKNOWN_TOOL, ARGUMENTS]), arguments);
        assert_eq!(after(&[ARGUMENTS, UNKNOWN_TOOL]), arguments);
        // A person refused it, or a shield.
        assert_eq!(after(&[UNKNOWN_TOOL, "refused"]), AskedCalls::Fit);
        assert_eq!(after(&["shield", ARGUMENTS]), AskedCalls::Fit);
        assert_eq!(AskedCalls::Fit.and_refused(ARGUMENTS), AskedCalls::Fit);
    }
}
