//! The way of one request through a pool.

use std::borrow::Cow;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::endpoint::{EndpointLease, is_overload, need, tell_wait};
use super::estimate::prompt_tokens;
use super::hedge::race;
use super::listening::ObserverRelay;
use super::pool::{LastMember, PoolCandidate, PoolChoice, PoolState, Relief};
use super::retry::Attempt;
use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::CompletionObserver;
use crate::unavailable::Unavailable;
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::routing::{Degradation, Routing};

pub(super) struct PooledRequest<'a> {
    pool: &'a PoolState,
    home: &'a LastMember,
    /// Copied once it is changed.
    request: Cow<'a, ChatRequest>,
    prompt: u64,
    /// Windows of this size were too small, as an endpoint said itself.
    too_small: Option<u64>,
    /// Answers may be cut to a window.
    is_shortened: bool,
    /// Until it was done.
    hedge_after: Option<Duration>,
}

/// What happened in one attempt.
#[derive(Default)]
struct AttemptSummary {
    failed: Vec<usize>,
    error: Option<ModelError>,
    is_overloaded: bool,
    /// How many of the policy's reliefs were tried.
    reliefs: usize,
}

impl<'a> PooledRequest<'a> {
    pub fn new(pool: &'a PoolState, home: &'a LastMember, request: &'a ChatRequest) -> Self {
        Self {
            pool,
            home,
            prompt: prompt_tokens(request),
            // Each member has its own name for what it serves.
            request: request.unnamed(),
            too_small: None,
            is_shortened: false,
            hedge_after: pool.policy.hedge_after,
        }
    }

    /// Asks members until one answers or all have failed. The loop ends because each pass uses up a member
    /// or a relief.
    async fn round(
        &mut self,
        number: u32,
        watch: &mut ObserverRelay<'_>,
    ) -> Result<Completion, ModelError> {
        let mut round = AttemptSummary::default();
        loop {
            let candidates = self.candidates(&round);
            let is_any_left = !candidates.is_empty();
            let (member, entry) = match self.pool.place(&self.request.owner, candidates) {
                PoolChoice::Place(member, entry) => (member, entry),
                PoolChoice::Nothing(refusals) => {
                    round.is_overloaded |= is_any_left;
                    if round.is_overloaded && round.reliefs < self.pool.policy.overload.len() {
                        match self.relieve(&mut round, watch).await {
                            Some(result) => return result,
                            None => continue,
                        }
                    }
                    match self.wait(&round, watch).await {
                        Ok(found) => found,
                        Err(refusal) => return Err(round.error(refusal.or(soonest(refusals)))),
                    }
                }
            };
            let entry = entry.of_attempt(number);
            let (member, result) = self.ask(member, entry, &mut round, watch).await;
            let error = match result {
                Ok(completion) => return Ok(completion),
                Err(error) => error,
            };
            if watch.has_spoken {
                return Err(error);
            }
            if error.context_overflow().is_some() {
                // A member without a known window cannot be outdone by a larger one.
                let Some(window) = self.pool.members[member].endpoint.window() else {
                    return Err(error);
                };
                self.too_small = self.too_small.max(Some(window));
            } else if error.class() == ErrorClass::Correctable && !is_refusal(&error) {
                // Every other member would fail in the same way.
                return Err(error);
            }
            watch.routing(Routing::MemberFailed {
                pool: self.pool.name.clone(),
                endpoint: self.label(member),
                reason: error.to_string(),
            });
            round.failed.push(member);
            round.keep(error);
        }
    }

    /// Members that were not asked yet and that the request fits; if it fits none, those with the
    /// largest window, because it is only an estimate that says so.
    fn candidates(&self, round: &AttemptSummary) -> Vec<PoolCandidate> {
        let home = *self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = need(&self.request, self.prompt);
        let window = |member: usize| self.pool.members[member].endpoint.window();
        let candidate = |member, is_short| PoolCandidate {
            member,
            tokens: window(member).map_or(tokens, |window| window.min(tokens)),
            is_short,
            is_home: home == Some(member),
        };
        // Images go to a member that takes them, whether it can be asked now or not. Where none does, they are left out.
        let takes = |member: usize| self.pool.members[member].endpoint.takes(&self.request);
        let any_takes = (0..self.pool.members.len()).any(takes);
        let left: Vec<usize> = (0..self.pool.members.len())
            .filter(|member| !round.failed.contains(member))
            .filter(|member| !any_takes || takes(*member))
            .filter(|member| window(*member).is_none_or(|own| Some(own) > self.too_small))
            .collect();
        let least = self.prompt + u64::from(self.pool.policy.fewer_tokens);
        let fitting: Vec<PoolCandidate> = left
            .iter()
            .filter_map(|member| match window(*member) {
                Some(own) if own < tokens => {
                    (self.is_shortened && least <= own).then(|| candidate(*member, true))
                }
                _ => Some(candidate(*member, false)),
            })
            .collect();
        if !fitting.is_empty() {
            return fitting;
        }
        let windows = || (0..self.pool.members.len()).map(window);
        if windows().any(|own| own.is_none_or(|own| own >= tokens)) {
            return Vec::new();
        }
        let largest = windows().max();
        left.into_iter()
            .filter(|member| Some(window(*member)) == largest)
            .map(|member| candidate(member, true))
            .collect()
    }

    /// Applies the next relief that changes the request. Returns an answer if the relief produced one.
    async fn relieve(
        &mut self,
        round: &mut AttemptSummary,
        watch: &mut ObserverRelay<'_>,
    ) -> Option<Result<Completion, ModelError>> {
        let pool = self.pool;
        let relief = pool.policy.overload.get(round.reliefs)?;
        round.reliefs += 1;
        let mut tell = |how| {
            watch.routing(Routing::Degraded {
                pool: pool.name.clone(),
                how,
            });
        };
        match relief {
            Relief::FewerTokens => {
                let (from, to) = (self.request.max_tokens, pool.policy.fewer_tokens);
                if from.is_none_or(|from| from > to) {
                    tell(Degradation::FewerTokens { from, to });
                    self.request.to_mut().max_tokens = Some(to);
                }
                None
            }
            // Reported when such a member is found.
            Relief::ShortWindow => {
                self.is_shortened = true;
                None
            }
            Relief::SmallerModel => {
                let (name, model) = pool.policy.smaller.as_ref()?;
                tell(Degradation::SmallerModel { to: name.clone() });
                match model.complete(&self.request, watch).await {
                    Err(error) if !watch.has_spoken => {
                        watch.routing(Routing::MemberFailed {
                            pool: pool.name.clone(),
                            endpoint: name.clone(),
                            reason: error.to_string(),
                        });
                        round.keep(error);
                        None
                    }
                    result => Some(result),
                }
            }
        }
    }

    /// Waits in the queues of all suitable members; the first free one is used.
    async fn wait(
        &self,
        round: &AttemptSummary,
        watch: &mut ObserverRelay<'_>,
    ) -> Result<(usize, EndpointLease<'a>), Option<Unavailable>> {
        let asked = Instant::now();
        let pool = self.pool;
        let mut queues: FuturesUnordered<_> = self
            .candidates(round)
            .into_iter()
            .map(|PoolCandidate { member, tokens, .. }| {
                let endpoint = &pool.members[member].endpoint;
                endpoint
                    .enter(&self.request.owner, tokens)
                    .map(move |entered| (member, entered))
            })
            .collect();
        let mut refusals = Vec::new();
        while let Some((member, entered)) = queues.next().await {
            match entered {
                Ok(entry) => {
                    tell_wait(entry.endpoint().label(), asked, watch);
                    return Ok((member, entry));
                }
                Err(refusal) => {
                    let endpoint = &pool.members[member].endpoint;
                    endpoint.log_refusal(&self.request, &refusal);
                    refusals.push(refusal);
                }
            }
        }
        Err(soonest(refusals))
    }

    /// Asks the member, and hedges with another one if no piece arrives in time. Returns the member that
    /// produced the result.
    async fn ask(
        &mut self,
        member: usize,
        entry: EndpointLease<'a>,
        round: &mut AttemptSummary,
        watch: &mut ObserverRelay<'_>,
    ) -> (usize, Result<Completion, ModelError>) {
        let request = self.cut_to(entry.endpoint().window());
        self.settle(member, &request, watch);
        if let Cow::Owned(request) = &request {
            watch.routing(Routing::Degraded {
                pool: self.pool.name.clone(),
                how: Degradation::ShortWindow {
                    endpoint: self.label(member),
                    max_tokens: request.max_tokens.unwrap_or_default(),
                },
            });
        }
        let Some(after) = self.hedge_after else {
            return (member, entry.complete(&request, watch).await);
        };
        let (mut second, attempt) = (None, entry.attempt());
        let elsewhere = || {
            let mut others = self.candidates(round);
            others.retain(|other| other.member != member && !other.is_short);
            let PoolChoice::Place(other, entry) = self.pool.place(&self.request.owner, others)
            else {
                return None;
            };
            second = Some(other);
            Some((entry.of_attempt(attempt), self.request.as_ref()))
        };
        let raced = race(entry, &request, after, elsewhere, watch).await;
        let other = second.unwrap_or(member);
        let (own, other) = if raced.is_second {
            (other, member)
        } else {
            (member, other)
        };
        if raced.other_failed {
            round.failed.push(other);
        }
        if raced.is_second {
            self.settle(own, &self.request, watch);
        }
        if raced.is_hedged {
            self.hedge_after = None;
        }
        (own, raced.result)
    }

    /// The run stays with this member, whose prefix cache knows it from now on.
    fn settle(&self, member: usize, request: &ChatRequest, watch: &mut ObserverRelay<'_>) {
        let before = {
            let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
            home.replace(member)
        };
        if before != Some(member) {
            watch.routing(Routing::Chosen {
                pool: self.pool.name.clone(),
                endpoint: self.label(member),
                tokens: need(request, self.prompt),
            });
        }
    }

    /// The request, with an answer that the window has room for. Without room for any it is sent as it
    /// is: the estimate may be wrong.
    fn cut_to(&self, window: Option<u64>) -> Cow<'_, ChatRequest> {
        let room = window.map_or(u64::MAX, |window| window.saturating_sub(self.prompt));
        match u32::try_from(room) {
            Ok(room)
                if room > 0 && need(&self.request, self.prompt) > self.prompt + u64::from(room) =>
            {
                Cow::Owned(ChatRequest {
                    max_tokens: Some(room),
                    ..ChatRequest::clone(&self.request)
                })
            }
            _ => Cow::Borrowed(self.request.as_ref()),
        }
    }

    fn label(&self, member: usize) -> String {
        self.pool.members[member].endpoint.label().to_owned()
    }
}

impl Attempt for PooledRequest<'_> {
    fn attempt<'a>(
        &'a mut self,
        number: u32,
        watch: &'a mut ObserverRelay<'_>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        self.round(number, watch).boxed()
    }

    fn is_unreached(&self) -> bool {
        let mut members = self.pool.members.iter();
        members.all(|member| member.endpoint.is_unreached())
    }
}

impl AttemptSummary {
    /// Temporary errors are kept rather than permanent ones, because they are worth another
    /// attempt, and those that another request may correct rather than others.
    fn keep(&mut self, error: ModelError) {
        self.is_overloaded |= is_overload(&error);
        let rank = |error: &ModelError| match error.class() {
            ErrorClass::Retryable => 2,
            ErrorClass::Correctable => 1,
            ErrorClass::Fatal => 0,
        };
        if self
            .error
            .as_ref()
            .is_none_or(|kept| rank(kept) <= rank(&error))
        {
            self.error = Some(error);
        }
    }

    fn error(self, refusal: Option<Unavailable>) -> ModelError {
        match (self.error, refusal) {
            (Some(error), _) => error,
            (None, Some(refusal)) => refusal.into(),
            (None, None) => ModelError::Config {
                message: "the pool has no members".into(),
            },
        }
    }
}

/// The endpoint refused the request as it is. Servers differ in what they take, also those of one model.
fn is_refusal(error: &ModelError) -> bool {
    matches!(
        error,
        ModelError::Status { .. } | ModelError::InStream { .. }
    )
}

/// The refusal that passes first; one that no wait helps comes last.
fn soonest(refusals: Vec<Unavailable>) -> Option<Unavailable> {
    refusals.into_iter().min_by_key(|refusal| {
        let is_unreached = matches!(
            refusal,
            Unavailable::Open {
                is_unreached: true,
                ..
            }
        );
        (is_unreached, refusal.retry_after().unwrap_or_default())
    })
}
