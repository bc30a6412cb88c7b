//! Calls of saved Requests: each is a recorded run of the default agent.

use crate::agents::{Agent, Agents, RunClient};
use crate::cancellation;
use crate::config::{Configuration, DEFAULT_AGENT};
use crate::host;
use crate::recorded::Recorder;
use crate::stored_decider::first_decision;
use anyhow::{Context as _, Result};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, oneshot};
use tokio_util::sync::CancellationToken;
use toolhold_agent::Run;
use toolhold_agent::language::recognise_in;
use toolhold_agent::run::decider::Decider;
use toolhold_agent::user_text::UserText;
use toolhold_mcp::serve::{RequestCall, RequestRunner};
use toolhold_policy::ErrorClass;
use toolhold_policy::{Listener, LogLevel, LogLine, Progress};
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::result_cache::CacheScope;
use toolhold_protocol::settings::DEFAULT_INSTRUCTIONS;
use toolhold_protocol::settings::RunRequest;
use toolhold_sandbox::Registry;
use toolhold_storage::{Label, Origin, Store};
use toolhold_telemetry::{ObservedRun, Observer};
use uuid::Uuid;

/// Runs saved Requests. Database and model are set up by the first call: until then no endpoint is needed.
#[derive(Debug)]
pub struct Runs {
    config: Configuration,
    registry: Registry,
    recorder: Recorder,
    /// Cancelled when the server ends.
    stop: CancellationToken,
    means: OnceCell<RunResources>,
}

#[derive(Debug)]
struct RunResources {
    agent: Arc<Agent>,
    store: Store,
}

/// How a run ended.
struct FinishedRun {
    reason: StopReason,
    output: Value,
    error: Option<(ErrorClass, String)>,
    duration_ms: u64,
}

impl Runs {
    pub fn new(
        config: &Configuration,
        registry: &Registry,
        recorder: &Recorder,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            config: config.clone(),
            registry: registry.clone(),
            recorder: recorder.clone(),
            stop: stop.clone(),
            means: OnceCell::new(),
        }
    }

    async fn done(&self, asked: RequestCall<'_>) -> Result<FinishedRun, ToolFailure> {
        let means = self.means.get_or_try_init(|| self.made()).await;
        let RunResources { agent, store } = means.map_err(|error| ToolFailure {
            kind: "host".into(),
            class: ErrorClass::Retryable,
            message: format!("saved Requests cannot be run now: {error:#}"),
        })?;
        let behalf = RunClient {
            session: asked.session.to_owned(),
            trace: asked.trace.clone(),
            ..RunClient::default()
        };
        let request = request(agent, &behalf, &asked)?;
        let observer = self.recorder.telemetry().observe(ObservedRun {
            run: asked.id,
            agent: agent.name.clone(),
            parent: behalf.trace.clone(),
            ..ObservedRun::default()
        });
        let label = Label {
            owner: asked.owner.to_owned(),
            agent: agent.name.clone(),
            origin: Origin::Cli,
            trace: observer.trace(),
            ..Label::default()
        };
        let journal = store.journal(asked.id, label);
        // Of the user of this machine, whose blobs have no quota.
        let (mut driver, notes) = agent.driver(store, &behalf, None).await;
        for note in notes {
            tracing::warn!(request = asked.name, "{note}");
        }
        driver.decider = Arc::new(FirstDecider {
            store: store.clone(),
            client: asked.decider,
        });
        driver.begin = asked.begin;
        let started = driver.start(request, Box::new(journal)).await;
        let (run, observer) = observer.begun(started).map_err(|refused| {
            let message = format!("the Request cannot be run: {refused}");
            ToolFailure::correctable("request", message)
        })?;
        let _cancels = run.cancel.clone().drop_guard();
        let (ended, done) = oneshot::channel();
        // A run whose client is gone still ends with an event, which is recorded.
        let (store, stop, open) = (store.clone(), self.stop.clone(), self.recorder.open());
        let listener = asked.listener;
        tokio::spawn(async move {
            let _ = ended.send(followed(run, observer, listener, &store, &stop).await);
            drop(open);
        });
        done.await
            .unwrap_or_else(|_| Err(not_recorded("it broke off")))
    }

    async fn made(&self) -> Result<RunResources> {
        let (config, registry) = (self.config.clone(), self.registry.clone());
        let known = self.recorder.store().cloned();
        let (made, means) = oneshot::channel();
        let runtime = Handle::current();
        // The future that opens the database and asks the endpoint for its models is not `Send`.
        std::thread::spawn(move || {
            let _ = made.send(runtime.block_on(RunResources::new(&config, registry, known)));
        });
        means.await?
    }
}

impl RequestRunner for Runs {
    fn run<'a>(&'a self, call: RequestCall<'a>) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let (name, id) = (call.name, call.id);
            let language = call.input.as_ref().and_then(recognise_in);
            match self.done(call).await {
                Ok(done) => ToolResult {
                    usage: ToolUsage {
                        duration_us: done.duration_ms.saturating_mul(1_000),
                        ..ToolUsage::default()
                    },
                    outcome: outcome(done, name, id, language).map(ToolOutput::from),
                    printed: Vec::new(),
                    module: None,
                    cached: None,
                },
                Err(failure) => ToolResult::failed(failure),
            }
        })
    }
}

/// The first decision counts: the client's user, or `toolhold approvals`.
#[derive(Debug)]
struct FirstDecider {
    store: Store,
    client: Arc<dyn Decider>,
}

impl Decider for FirstDecider {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let asked = self.client.decide(run, pending);
        Box::pin(first_decision(&self.store, run, pending, asked))
    }
}

impl RunResources {
    async fn new(config: &Configuration, registry: Registry, known: Option<Store>) -> Result<Self> {
        let agents = Box::pin(Agents::new(config, registry, None)).await?;
        let agent = agents
            .named(DEFAULT_AGENT)
            .with_context(|| format!("there is no agent {DEFAULT_AGENT:?}"))?;
        let store = match known {
            Some(store) => store,
            None => host::store(config).await?,
        };
        Ok(Self { agent, store })
    }
}

/// The run of the Request. As for a sub-agent, its meaning does not depend on the caller.
fn request(
    agent: &Agent,
    behalf: &RunClient,
    asked: &RequestCall<'_>,
) -> Result<RunRequest, ToolFailure> {
    let saved = asked.saved;
    let mut request = agent.request();
    request.id = asked.id;
    request.own_tools_only = true;
    request.retrieval = None;
    // All MCP clients of the process are one client here.
    let caching = &mut request.settings.result_cache;
    if caching.scope == CacheScope::Client {
        caching.scope = CacheScope::Run;
    }
    request.allowed = agent.allowed(behalf);
    request.context = match &asked.input {
        None => saved.context.clone(),
        Some(input) => saved.with_input(input.clone()).map_err(|error| {
            ToolFailure::correctable("arguments", format!("input: {}", error.reason))
        })?,
    };
    request.instructions = saved
        .instructions
        .clone()
        .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned());
    request.output_schema.clone_from(&saved.schema);
    // The Request's limits may be lower than the operator's, not higher.
    let most = &mut request.settings.max_steps;
    *most = saved.max_steps.unwrap_or(*most).min(*most);
    Ok(request)
}

/// Follows a run to its end, and reports progress. Another process may cancel the run.
async fn followed(
    mut run: Run,
    mut observer: Observer,
    listener: Option<Arc<dyn Listener>>,
    store: &Store,
    stop: &CancellationToken,
) -> Result<FinishedRun, ToolFailure> {
    let (id, cancel) = (run.id, run.cancel.clone());
    let mut stopped = pin!(async {
        tokio::select! {
            () = cancellation::wait_for_request(store, id) => {}
            () = stop.cancelled() => {}
        }
        cancel.cancel();
        std::future::pending::<()>().await;
    });
    let (mut told, mut done) = (0, None);
    loop {
        let event = tokio::select! {
            event = run.events.recv() => event,
            () = &mut stopped => None,
        };
        let Some(event) = event else {
            break;
        };
        observer.take(&event);
        if let Some(listener) = &listener {
            tell(&event, &**listener, &mut told);
        }
        if let EventKind::Done {
            reason,
            output,
            error,
            duration_ms,
            ..
        } = event.kind
        {
            done = Some(FinishedRun {
                reason,
                output,
                error: error.map(|error| (error.class, error.message)),
                duration_ms,
            });
        }
    }
    match (run.finished().await, done) {
        (Ok(()), Some(done)) => Ok(done),
        (Err(error), _) => Err(not_recorded(&error.to_string())),
        (Ok(()), None) => Err(not_recorded("it did not say how it ended")),
    }
}

fn not_recorded(reason: &str) -> ToolFailure {
    ToolFailure {
        kind: "host".into(),
        class: ErrorClass::Retryable,
        message: format!("the run was stopped: {reason}"),
    }
}

/// Each begin or end of a step is a unit of progress. The total is unknown.
fn tell(event: &Event, listener: &dyn Listener, told: &mut u64) {
    let level = LogLevel::Warn;
    let warned = |message| listener.logged(LogLine { level, message });
    let note = match &event.kind {
        EventKind::Request { step, .. } => format!("step {step}: the model is asked"),
        EventKind::ToolStart { call, .. } => format!("{} is called", call.tool),
        EventKind::ToolResult { tool, .. } => format!("{tool} is done"),
        EventKind::Approval { pending, .. } => format!(
            "{} waits for a person (toolhold approvals approve {})",
            pending.call.tool, pending.call.id
        ),
        EventKind::UnusableReply(reply) => {
            return warned(reply.to_string());
        }
        EventKind::Notice { message, .. } => return warned(message.clone()),
        _ => return,
    };
    *told += 1;
    listener.progressed(Progress {
        done: *told,
        total: None,
        note,
    });
}

/// Returns the output of a run. A limit or a shield is explained in a text for users, because a user of an MCP client cannot
/// change the configuration of this host. The record of the run has its error. Of a run that failed, the error stands behind the
/// text: it says what was refused.
fn outcome(
    done: FinishedRun,
    name: &str,
    id: Uuid,
    language: Option<&str>,
) -> Result<Value, ToolFailure> {
    let (class, why) = match (done.reason, done.error) {
        (StopReason::Output | StopReason::Planned, _) => return Ok(done.output),
        (_, Some((class, message))) => (class, format!(": {message}")),
        (StopReason::Timeout | StopReason::Model, None) => (ErrorClass::Retryable, String::new()),
        (_, None) => (ErrorClass::Correctable, String::new()),
    };
    let reason = serde_json::to_value(done.reason).unwrap_or_default();
    let reason = reason.as_str().unwrap_or_default();
    let ended = format!("the run of the Request {name} ended without an output ({reason})");
    let message = match UserText::of(done.reason) {
        Some(text) => {
            let why = if text.is_of_failure() { &*why } else { "" };
            let text = text.in_language(language);
            format!("{text} [{ended}{why}; it is run {id}]")
        }
        None => format!("{ended}{why}; it is run {id}"),
    };
    Err(ToolFailure {
        kind: reason.to_owned(),
        class,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(reason: StopReason, language: Option<&str>) -> String {
        let done = FinishedRun {
            reason,
            output: Value::Null,
            error: Some((ErrorClass::Correctable, "run.x refused it".to_owned())),
            duration_ms: 0,
        };
        let failure = outcome(done, "say", Uuid::nil(), language).unwrap_err();
        failure.message
    }

    /// The caller of a saved Request corrects its input by what was refused.
    #[test]
    fn a_run_that_failed_tells_why_behind_the_text_for_its_user() {
        for (reason, text) in [
            (StopReason::Unusable, UserText::Unusable),
            (StopReason::Cancelled, UserText::Cancelled),
        ] {
            for language in [None, Some("de")] {
                let message = message(reason, language);
                let begin = format!("{} [the run of ", text.in_language(language));
                assert!(message.starts_with(&begin), "{message}");
                let end = format!("): run.x refused it; it is run {}]", Uuid::nil());
                assert!(message.ends_with(&end), "{message}");
            }
        }
        let model = message(StopReason::Model, None);
        assert!(
            model.contains("(model): run.x refused it; it is"),
            "{model}"
        );
        // Its user can change no setting.
        let limit = message(StopReason::MaxSteps, None);
        assert!(!limit.contains("run.x"), "{limit}");
    }
}
