//! One model at one server, behind the server's limits, its circuit breaker and its Retry-After.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::admission::{Admission, AdmissionPermit, EndpointLimits, NotAdmitted};
use super::breaker::{
    AttemptOutcome, Breaker, BreakerChange, BreakerPermit, BreakerPolicy, Circuit, OpenCircuit,
};
use super::estimate::prompt_tokens;
use super::images::ImageSupport;
use super::listening::ObserverRelay;
use super::log::LoggedRequest;
use super::rest::{RestPermit, Rests};
use super::revision::{PinnedModel, PinnedRevision};
use crate::chat::ChatRequest;
use crate::condition::EndpointCondition;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model};
use crate::side::{CancelledHedge, millis};
use crate::tokenizer::Counter;
use crate::unavailable::Unavailable;
use toolhold_admission::Seldom;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::cost::Price;
use toolhold_protocol::routing::Routing;

/// Longest time for which a Retry-After keeps all runs from an endpoint before a request probes it.
const DEFAULT_MAX_REST: Duration = Duration::from_mins(1);
/// Minimum queue wait that is reported as an event.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(1);
/// How often a full queue is logged.
const FULL_QUEUE_LOG_PERIOD: Duration = Duration::from_secs(10);
/// Assumed tokens of an answer whose length the request does not bound.
const ASSUMED_ANSWER_TOKENS: u64 = 1_024;

/// Limits, circuit breaker and price of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPolicy {
    pub limits: EndpointLimits,
    pub breaker: BreakerPolicy,
    /// Longest time for which a Retry-After keeps all runs from the endpoint before a request probes it.
    pub max_rest: Duration,
    /// Tokens of prompt and answer together; `None`: not known, so everything may fit.
    pub window: Option<u64>,
    /// The price of replies, if configured.
    pub price: Option<Price>,
    /// The model takes no images, as the configuration says: they are left out.
    pub refuses_images: bool,
    /// The revision that its replies must tell, if one is pinned.
    pub revision: Option<PinnedRevision>,
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            limits: EndpointLimits::default(),
            breaker: BreakerPolicy::default(),
            max_rest: DEFAULT_MAX_REST,
            window: None,
            price: None,
            refuses_images: false,
            revision: None,
        }
    }
}

/// A model at one server. Makes one attempt; shared by all runs.
#[derive(Debug)]
pub struct Endpoint {
    protection: Arc<Protection>,
    model: Box<dyn Model>,
    window: Option<u64>,
    price: Option<Price>,
    images: ImageSupport,
}

/// The limits and the breaker of one server, shared by all its models and all endpoints that name
/// it.
#[derive(Debug)]
pub struct Protection {
    name: String,
    limits: EndpointLimits,
    admission: Admission,
    breaker: Breaker,
    rests: Rests,
    failed_at: Mutex<Option<Instant>>,
    full_queue: Seldom,
    has_answered: AtomicBool,
}

/// Whether an endpoint is asked at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Its name in the configuration.
    pub name: String,
    pub circuit: Circuit,
    pub rest: Option<EndpointRest>,
    /// Requests that wait in the queue before it.
    pub waiting: usize,
}

/// A rest that an endpoint asked for with Retry-After.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRest {
    /// Time until a request probes the endpoint; zero: one does, or the next one will.
    pub left: Duration,
    /// Time until the end that the endpoint asked for.
    pub asked: Duration,
}

impl EndpointState {
    /// Whether requests are let through.
    pub fn is_asked(&self) -> bool {
        self.circuit == Circuit::Closed && self.rest.is_none()
    }
}

impl Endpoint {
    /// `name` is what it is called in the configuration.
    pub fn new(
        name: impl Into<String>,
        model: impl Model + 'static,
        policy: EndpointPolicy,
    ) -> Self {
        let protection = Arc::new(Protection::new(name, &policy));
        Self::behind(protection, model, &policy)
    }

    /// A model at a server that others use as well: `policy` gives its window and its price, and the limits
    /// and the breaker are those that the server has already.
    pub fn behind(
        protection: Arc<Protection>,
        model: impl Model + 'static,
        policy: &EndpointPolicy,
    ) -> Self {
        let model: Box<dyn Model> = match &policy.revision {
            Some(pinned) => Box::new(PinnedModel {
                endpoint: protection.name.clone(),
                pinned: pinned.clone(),
                model: Box::new(model),
            }),
            None => Box::new(model),
        };
        Self {
            protection,
            model,
            window: policy.window,
            price: policy.price,
            images: ImageSupport::new(policy.refuses_images),
        }
    }

    /// True if the request can be sent unchanged: it has no images, or nothing says that the model takes none.
    pub(super) fn takes(&self, request: &ChatRequest) -> bool {
        request.images() == 0 || self.images.are_sent()
    }

    /// Returns the request with a text in the place of its images, and tells of it.
    fn without_images(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> ChatRequest {
        watch.routing(Routing::ImagesLeftOut {
            endpoint: self.label().to_owned(),
            images: request.images() as u64,
        });
        request.without_images()
    }

    /// Asks the model. One that turns out to take no images is asked again without them: nothing of an answer was given out.
    async fn ask(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        if !self.takes(request) {
            let without = self.without_images(request, watch);
            return self.model.complete(&without, watch).await;
        }
        let result = self.model.complete(request, watch).await;
        match result {
            Err(error) if request.images() > 0 && error.refuses_images() => {
                let without = self.without_images(request, watch);
                let again = self.model.complete(&without, watch).await;
                // An error about another part of the request may have the same words. Only one that is gone without the
                // images was about them, and counts for the requests of others.
                if again.is_ok() {
                    self.images.were_refused();
                }
                again
            }
            result => result,
        }
    }

    /// Its name in the configuration.
    pub fn label(&self) -> &str {
        &self.protection.name
    }

    /// The record for a request sent now, in case another one overtakes it.
    pub(super) fn overtaken(&self) -> CancelledHedge {
        CancelledHedge {
            endpoint: self.label().to_owned(),
            model: self.name().to_owned(),
            price: self.price,
            sent: Instant::now(),
        }
    }

    pub(super) fn window(&self) -> Option<u64> {
        self.window
    }

    /// Whether it is left alone because no connection to it could be opened.
    pub(super) fn is_unreached(&self) -> bool {
        let circuit = self.protection.breaker.check();
        circuit.is_err_and(|circuit| circuit.is_unreached)
    }

    /// Whether a call failed here within `time`.
    pub(super) fn failed_within(&self, time: Duration) -> bool {
        let failed_at = *self.protection.failed_at();
        failed_at.is_some_and(|at| at.elapsed() < time)
    }

    /// A lease, if the endpoint accepts a request of `tokens` tokens now.
    ///
    /// # Errors
    /// Why it does not; `None` if it is only busy, so that waiting helps.
    pub(super) fn try_enter(
        &self,
        owner: &Arc<str>,
        tokens: u64,
    ) -> Result<EndpointLease<'_>, Option<Unavailable>> {
        let protection = self.protection.as_ref();
        let rest = protection.rested()?;
        // Checked before admission, which takes one of this minute's requests.
        let passage = protection.passage()?;
        let place = protection.admission.try_enter(owner, tokens).ok_or(None)?;
        Ok(EndpointLease {
            endpoint: self,
            place,
            passage,
            rest,
            attempt: 1,
        })
    }

    /// Waits for a place.
    pub(super) async fn enter(
        &self,
        owner: &Arc<str>,
        tokens: u64,
    ) -> Result<EndpointLease<'_>, Unavailable> {
        let protection = self.protection.as_ref();
        let check = protection.rests.check();
        check.map_err(|wait| protection.resting(wait))?;
        let check = protection.breaker.check();
        check.map_err(|circuit| protection.open(circuit))?;
        let place = protection.admission.enter(owner, tokens).await;
        let place = place.map_err(|full| protection.refusal(full))?;
        // The endpoint may have asked for a rest since the wait began.
        let rest = protection.rested()?;
        Ok(EndpointLease {
            endpoint: self,
            place,
            passage: protection.passage()?,
            rest,
            attempt: 1,
        })
    }

    /// Logs that the request was not sent.
    pub(super) fn log_refusal(&self, request: &ChatRequest, refusal: &Unavailable) {
        let full = match refusal {
            Unavailable::QueueFull { .. } => self.protection.full_queue.occurs(),
            _ => None,
        };
        self.logged(request).refused(refusal, full);
    }

    fn logged<'a>(&'a self, request: &'a ChatRequest) -> LoggedRequest<'a> {
        LoggedRequest {
            request,
            endpoint: self.label(),
        }
    }

    /// Waits for a place for such a request, and tells of it.
    pub(super) async fn enter_for(
        &self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<EndpointLease<'_>, ModelError> {
        let tokens = need(request, prompt_tokens(request));
        let asked = Instant::now();
        let entry = self.enter(&request.owner, tokens).await;
        let entry = entry.inspect_err(|refusal| self.log_refusal(request, refusal))?;
        tell_wait(self.label(), asked, watch);
        Ok(entry)
    }
}

impl Protection {
    /// `name` is what the server's endpoint is called in the configuration.
    pub fn new(name: impl Into<String>, policy: &EndpointPolicy) -> Self {
        Self {
            name: name.into(),
            admission: Admission::new(policy.limits.clone()),
            limits: policy.limits.clone(),
            breaker: Breaker::new(policy.breaker.clone()),
            rests: Rests::new(policy.max_rest),
            failed_at: Mutex::default(),
            full_queue: Seldom::every(FULL_QUEUE_LOG_PERIOD),
            has_answered: AtomicBool::new(false),
        }
    }

    /// True once the server has answered anything in this process, a refusal included.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Notes that the server has answered.
    pub fn answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Name of the server's endpoint in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the server is asked at present.
    pub fn state(&self) -> EndpointState {
        let rest = self.rests.left();
        EndpointState {
            name: self.name.clone(),
            circuit: self.breaker.circuit(),
            rest: rest.map(|(left, asked)| EndpointRest { left, asked }),
            waiting: self.admission.waiting(),
        }
    }

    /// Ends the rest and closes the breaker, as a person asks for it. Returns whether there was one of them.
    pub fn clear(&self) -> bool {
        let (rested, was_open) = (self.rests.clear(), self.breaker.close());
        *self.failed_at() = None;
        let is_cleared = rested || was_open;
        if is_cleared {
            tracing::info!(
                endpoint = self.name,
                rested,
                was_open,
                "an endpoint is asked again, because a person says so"
            );
        }
        is_cleared
    }

    fn rested(&self) -> Result<RestPermit<'_>, Unavailable> {
        self.rests.pass().map_err(|wait| self.resting(wait))
    }

    fn resting(&self, wait: Duration) -> Unavailable {
        Unavailable::Resting {
            endpoint: self.name.clone(),
            wait,
        }
    }

    fn passage(&self) -> Result<BreakerPermit<'_>, Unavailable> {
        self.breaker.pass().map_err(|circuit| self.open(circuit))
    }

    fn open(&self, circuit: OpenCircuit) -> Unavailable {
        Unavailable::Open {
            endpoint: self.name.clone(),
            wait: circuit.wait,
            is_unreached: circuit.is_unreached,
        }
    }

    fn refusal(&self, full: NotAdmitted) -> Unavailable {
        let endpoint = self.name.clone();
        match full {
            NotAdmitted::Queue { waiting } => Unavailable::QueueFull { endpoint, waiting },
            NotAdmitted::Timeout { wait } => Unavailable::QueueTimeout {
                endpoint,
                after: self.limits.queue_timeout,
                wait,
            },
        }
    }

    fn note(&self, error: &ModelError, logged: LoggedRequest<'_>) {
        if error.condition() == EndpointCondition::Working {
            return;
        }
        *self.failed_at() = Some(Instant::now());
        let asked = error.retry_after().filter(|_| is_overload(error));
        if let Some(begun) = asked.and_then(|asked| self.rests.begin(asked)) {
            logged.rests(begun);
        }
    }

    fn failed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to send one request to an endpoint.
#[derive(Debug)]
pub(super) struct EndpointLease<'a> {
    endpoint: &'a Endpoint,
    place: AdmissionPermit,
    passage: BreakerPermit<'a>,
    rest: RestPermit<'a>,
    /// Number of the attempt at its request: 1, 2, 3…
    attempt: u32,
}

impl<'a> EndpointLease<'a> {
    /// Sets the number of the attempt, for a request that failed before.
    pub fn of_attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    pub fn endpoint(&self) -> &'a Endpoint {
        self.endpoint
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Sends the request, and updates the endpoint's health from the outcome.
    pub async fn complete(
        self,
        request: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> Result<Completion, ModelError> {
        let Self {
            endpoint,
            place,
            mut passage,
            mut rest,
            attempt,
        } = self;
        let logged = endpoint.logged(request);
        let protection = endpoint.protection.as_ref();
        let label = || protection.name.clone();
        if passage.is_trial || rest.is_probe {
            watch.routing(Routing::Trial { endpoint: label() });
        }
        let mut is_served = || {
            if rest.is_served() {
                logged.rest_is_over();
            }
            let change = passage.is_served()?;
            logged.breaker(change);
            Some(Routing::Closed { endpoint: label() })
        };
        // The first piece of an answer ends the rest of an endpoint and closes its breaker: a whole answer may take minutes.
        let mut probe = ObserverRelay::hearing(&mut *watch, &mut is_served);
        let result = endpoint.ask(request, &mut probe).await;
        if result.is_ok()
            && let Some(closed) = is_served()
        {
            watch.routing(closed);
        }
        let outcome = match &result {
            Ok(completion) => {
                protection.answered();
                *protection.failed_at() = None;
                if let Some(usage) = &completion.usage {
                    let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
                    protection.admission.settle(&place, tokens);
                }
                AttemptOutcome::Healthy
            }
            Err(error) => {
                if error.is_answer() {
                    protection.answered();
                }
                logged.failed(attempt, endpoint.name(), error);
                protection.note(error, logged);
                outcome(error)
            }
        };
        if matches!(result, Err(ModelError::NotAnEndpoint { .. })) {
            watch.routing(Routing::NoCompletion { endpoint: label() });
        }
        let change = passage.report(outcome);
        if let Some(change) = change {
            logged.breaker(change);
        }
        match change {
            Some(BreakerChange::Opened { failures, rest }) => watch.routing(Routing::Opened {
                endpoint: label(),
                failures,
                rest_ms: millis(rest),
            }),
            Some(BreakerChange::Closed) => watch.routing(Routing::Closed { endpoint: label() }),
            None => {}
        }
        result
    }
}

impl Model for Endpoint {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let entry = self.enter_for(request, watch).await?;
            entry.complete(request, watch).await
        }
        .boxed()
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

/// Maximum tokens of a request whose prompt has `prompt` tokens.
pub(super) fn need(request: &ChatRequest, prompt: u64) -> u64 {
    prompt.saturating_add(request.max_tokens.map_or(ASSUMED_ANSWER_TOKENS, u64::from))
}

pub(super) fn tell_wait(endpoint: &str, asked: Instant, watch: &mut dyn CompletionObserver) {
    let waited = asked.elapsed();
    if waited >= MIN_REPORTED_WAIT {
        watch.routing(Routing::Waited {
            endpoint: endpoint.to_owned(),
            wait_ms: millis(waited),
        });
    }
}

/// Whether the endpoint, or our own limits for it, said that there is too much to do just now.
pub(super) fn is_overload(error: &ModelError) -> bool {
    matches!(
        error.condition(),
        EndpointCondition::Busy | EndpointCondition::Unready
    )
}

/// The health that an error implies. An overloaded endpoint is healthy; one that cannot load its model answers 503 as well,
/// so only 429 is taken for that.
fn outcome(error: &ModelError) -> AttemptOutcome {
    match error.condition() {
        EndpointCondition::Unreached => AttemptOutcome::Unreached,
        EndpointCondition::Unready | EndpointCondition::Failing => AttemptOutcome::Failed,
        EndpointCondition::Busy | EndpointCondition::Working => AttemptOutcome::Refused,
    }
}
