//! Retries a request when that may help: with growing, jittered, bounded waits, and never after a piece of
//! the answer was given out.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::endpoint::{Endpoint, need};
use super::estimate::prompt_tokens;
use super::hedge::race;
use super::listening::ObserverRelay;
use crate::chat::ChatRequest;
use crate::condition::EndpointCondition;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model};
use crate::side::millis;
use crate::tokenizer::Counter;
use crate::unavailable::Unavailable;
use toolhold_admission::Backoff;
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::routing::Routing;

/// Minimum wait between attempts, whatever is configured: an endpoint that refuses at once must not be called
/// in a hot loop.
const MIN_BACKOFF: Duration = Duration::from_millis(10);

/// How often, and after which waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included. Those that no endpoint saw do not count: only
    /// `total_wait` bounds them.
    pub attempts: u32,
    /// The wait after the first attempt, which doubles with each. Half of it is random, so that runs that
    /// failed together do not retry together.
    pub backoff: Duration,
    pub max_backoff: Duration,
    /// The longest Retry-After that is waited out; an endpoint that asks for more is given up.
    pub max_retry_after: Duration,
    /// All waits of one request together.
    pub total_wait: Duration,
    /// Maximum wait after attempts that found no connection, a part of `total_wait`: where nothing listens, a person has to
    /// act, and a client should be told soon.
    pub unreached_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(10),
            max_retry_after: Duration::from_mins(1),
            total_wait: Duration::from_mins(2),
            unreached_wait: Duration::from_secs(2),
        }
    }
}

impl RetryPolicy {
    /// The wait after the `n`th failure (1, 2, 3…); `chance` is between 0 and 1.
    fn wait(&self, n: u32, chance: f64) -> Duration {
        Backoff::new(self.backoff, self.max_backoff)
            .jittered(n, chance)
            .max(MIN_BACKOFF)
    }

    /// For requests other than completions, such as a list of models: the wait after the `n`th failure (1, 2,
    /// 3…), `waited` so far. `None` where a retry is no use, or where a completion would be given up.
    pub fn wait_after(&self, error: &ModelError, n: u32, waited: Duration) -> Option<Duration> {
        if !may_pass(error) {
            return None;
        }
        let waits = RetryWaits {
            all: waited,
            unreached: waited,
        };
        self.patience(error, n, n, waits)
    }

    /// The wait before the next attempt, if there is to be one.
    fn patience(
        &self,
        error: &ModelError,
        attempts: u32,
        failures: u32,
        waits: RetryWaits,
    ) -> Option<Duration> {
        let chance = fastrand::f64();
        let wait = match error.retry_after() {
            // Not before the requested time, and not all at the same moment.
            Some(asked) if !asked.is_zero() => asked.saturating_add(self.wait(1, chance)),
            _ => self.wait(failures, chance),
        };
        let is_over = self.is_asked_too_much(error)
            || attempts >= self.attempts
            || waits.all.saturating_add(wait) > self.total_wait
            || is_unreached(error) && waits.unreached.saturating_add(wait) > self.unreached_wait;
        (!is_over).then_some(wait)
    }

    fn is_asked_too_much(&self, error: &ModelError) -> bool {
        error
            .retry_after()
            .is_some_and(|asked| asked > self.max_retry_after)
    }
}

/// Waits of one request so far.
#[derive(Clone, Copy, Debug, Default)]
struct RetryWaits {
    all: Duration,
    /// Waits after attempts that found no connection.
    unreached: Duration,
}

/// One endpoint, asked again.
#[derive(Clone, Debug)]
pub struct Retry {
    endpoint: Arc<Endpoint>,
    policy: RetryPolicy,
    hedge_after: Option<Duration>,
}

impl Retry {
    pub fn new(endpoint: Arc<Endpoint>, policy: RetryPolicy) -> Self {
        Self {
            endpoint,
            policy,
            hedge_after: None,
        }
    }

    /// Sends a request a second time, once, if no piece of an answer has come after so long; `None`: never.
    #[must_use]
    pub fn hedging(mut self, after: Option<Duration>) -> Self {
        self.hedge_after = after;
        self
    }
}

impl Model for Retry {
    fn name(&self) -> &str {
        self.endpoint.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let once = EndpointAttempt {
            endpoint: &self.endpoint,
            request,
            hedge_after: self.hedge_after,
        };
        retry(self.endpoint.label(), &self.policy, once, watch).boxed()
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.endpoint.counter()
    }
}

/// One attempt, which can be repeated.
pub(super) trait Attempt: Send {
    /// `number` is 1 for the first attempt, 2 for the second, and so on.
    fn attempt<'a>(
        &'a mut self,
        number: u32,
        watch: &'a mut ObserverRelay<'_>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// Whether nothing that could be asked accepts a connection, so that another attempt would be refused unsent.
    fn is_unreached(&self) -> bool;
}

struct EndpointAttempt<'a> {
    endpoint: &'a Endpoint,
    request: &'a ChatRequest,
    /// Until it was done.
    hedge_after: Option<Duration>,
}

impl Attempt for EndpointAttempt<'_> {
    fn attempt<'a>(
        &'a mut self,
        number: u32,
        watch: &'a mut ObserverRelay<'_>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let entry = self.endpoint.enter_for(self.request, watch).await?;
            let entry = entry.of_attempt(number);
            let Some(after) = self.hedge_after else {
                return entry.complete(self.request, watch).await;
            };
            let again = || {
                let tokens = need(self.request, prompt_tokens(self.request));
                let entry = self.endpoint.try_enter(&self.request.owner, tokens).ok()?;
                Some((entry.of_attempt(number), self.request))
            };
            let raced = race(entry, self.request, after, again, watch).await;
            if raced.is_hedged {
                self.hedge_after = None;
            }
            raced.result
        }
        .boxed()
    }

    fn is_unreached(&self) -> bool {
        self.endpoint.is_unreached()
    }
}

/// Tries until an answer arrives, an error makes retries useless, or the limits are used up.
pub(super) async fn retry(
    name: &str,
    policy: &RetryPolicy,
    mut tried: impl Attempt,
    watch: &mut dyn CompletionObserver,
) -> Result<Completion, ModelError> {
    let mut watch = ObserverRelay::new(watch);
    let (mut attempts, mut failures) = (0_u32, 0_u32);
    let mut waits = RetryWaits::default();
    loop {
        let error = match tried.attempt(failures.saturating_add(1), &mut watch).await {
            Ok(completion) => return Ok(completion),
            Err(error) => error,
        };
        if watch.has_spoken || !may_pass(&error) {
            return Err(error);
        }
        failures = failures.saturating_add(1);
        attempts = attempts.saturating_add(u32::from(was_sent(&error)));
        let is_gone = is_unreached(&error) && tried.is_unreached();
        let wait = policy.patience(&error, attempts, failures, waits);
        let waited = waits.all;
        let Some(wait) = wait.filter(|_| !is_gone) else {
            // One attempt says all that there is to say.
            if attempts < 2 && waited.is_zero() && !policy.is_asked_too_much(&error) {
                return Err(error);
            }
            watch.routing(Routing::GaveUp {
                endpoint: name.to_owned(),
                attempts,
                waited_ms: millis(waited),
                reason: error.to_string(),
            });
            return Err(ModelError::GaveUp {
                attempts,
                waited,
                source: Box::new(error),
            });
        };
        watch.routing(Routing::Retry {
            endpoint: name.to_owned(),
            attempt: failures,
            wait_ms: millis(wait),
            reason: error.to_string(),
        });
        sleep(wait).await;
        waits.all = waits.all.saturating_add(wait);
        if is_unreached(&error) {
            waits.unreached = waits.unreached.saturating_add(wait);
        }
    }
}

/// Whether a retry may help. A request that already used its whole queue time is not retried, nor one to an endpoint that
/// is left alone because it accepts no connection.
fn may_pass(error: &ModelError) -> bool {
    let is_of_no_use = match error {
        ModelError::Unavailable(refusal) => match refusal {
            Unavailable::QueueFull { .. } | Unavailable::QueueTimeout { .. } => true,
            Unavailable::Open { is_unreached, .. } => *is_unreached,
            Unavailable::Resting { .. } => false,
        },
        _ => false,
    };
    !is_of_no_use && error.class() == ErrorClass::Retryable
}

fn is_unreached(error: &ModelError) -> bool {
    error.condition() == EndpointCondition::Unreached
}

fn was_sent(error: &ModelError) -> bool {
    !matches!(error, ModelError::Unavailable(_))
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
