//! Lines of the log about endpoints: failed requests, breakers, rests and full queues (`docs/operations.md`, "The log").

use tracing::field::display;

use super::breaker::BreakerChange;
use super::rest::RestBegin;
use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::side::millis;
use crate::unavailable::Unavailable;

/// A request that an endpoint saw, for its lines of the log.
#[derive(Clone, Copy)]
pub(super) struct LoggedRequest<'a> {
    pub request: &'a ChatRequest,
    pub endpoint: &'a str,
}

impl<'a> LoggedRequest<'a> {
    fn key(self) -> Option<&'a str> {
        let owner = self.request.owner.as_ref();
        (!owner.is_empty()).then_some(owner)
    }

    /// The request failed, for the `attempt`th time.
    pub fn failed(self, attempt: u32, model: &str, error: &ModelError) {
        tracing::info!(
            run = self.request.run.map(display),
            key = self.key(),
            endpoint = self.endpoint,
            model,
            attempt,
            kind = error.kind(),
            status = error.status(),
            retry_after_ms = error.retry_after().map(millis),
            reason = %error,
            "a request to an endpoint failed"
        );
    }

    /// The outcome of the request changed the endpoint's breaker.
    pub fn breaker(self, change: BreakerChange) {
        let (run, key, endpoint) = (self.request.run.map(display), self.key(), self.endpoint);
        match change {
            BreakerChange::Opened { failures, rest } => tracing::info!(
                run,
                key,
                endpoint,
                failures,
                rest_ms = millis(rest),
                "the circuit breaker of an endpoint opened"
            ),
            BreakerChange::Closed => tracing::info!(
                run,
                key,
                endpoint,
                "the circuit breaker of an endpoint closed"
            ),
        }
    }

    /// The endpoint asked to be left alone.
    pub fn rests(self, RestBegin { asked, rest }: RestBegin) {
        tracing::info!(
            run = self.request.run.map(display),
            key = self.key(),
            endpoint = self.endpoint,
            asked_ms = millis(asked),
            rest_ms = millis(rest),
            "an endpoint asked for a rest, and no run asks it meanwhile"
        );
    }

    /// The endpoint answers the request that probed it.
    pub fn rest_is_over(self) {
        tracing::info!(
            run = self.request.run.map(display),
            key = self.key(),
            endpoint = self.endpoint,
            "the rest of an endpoint is over, because it answers a request"
        );
    }

    /// The request was not sent. `full` is how many the queue refused since that was last told.
    pub fn refused(self, refusal: &Unavailable, full: Option<u64>) {
        let (run, key, endpoint) = (self.request.run.map(display), self.key(), self.endpoint);
        match (refusal, full) {
            (Unavailable::QueueFull { .. }, Some(refused)) => tracing::info!(
                run,
                key,
                endpoint,
                refused,
                reason = %refusal,
                "the queue before an endpoint is full"
            ),
            _ => tracing::debug!(
                run,
                key,
                endpoint,
                kind = refusal.kind(),
                reason = %refusal,
                "a request was not sent"
            ),
        }
    }
}
