//! Counts what one call uses of outbound HTTP, against its limits.

use crate::denial_log::DenialLog;
use crate::descriptors::{CallDescriptors, DescriptorPermit};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use toolhold_policy::{CallError, HttpLimit, HttpLimits};
use wasmtime_wasi_http::Error;

/// What the guest gets when a limit fired.
fn error_code(limit: HttpLimit) -> Error {
    match limit {
        HttpLimit::RequestBytes(limit) => Error::HttpRequestBodySize(Some(limit)),
        HttpLimit::ResponseBytes(limit) => Error::HttpResponseBodySize(Some(limit)),
        HttpLimit::Time(_) => Error::HttpResponseTimeout,
        // `Requests`, `Concurrent`, and whatever limit is added to them.
        _ => Error::ConnectionLimitReached,
    }
}

/// Why the host ended an exchange of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedExchange {
    Limit(HttpLimit),
    /// The response held a secret that must not come back.
    SecretReflected,
}

impl From<EndedExchange> for CallError {
    fn from(end: EndedExchange) -> Self {
        match end {
            EndedExchange::Limit(limit) => Self::HttpBody { limit },
            EndedExchange::SecretReflected => Self::SecretReflected,
        }
    }
}

/// Counts one call's use of HTTP. Shared by the call's requests, which run side by side.
#[derive(Debug)]
pub(super) struct HttpMeter {
    pub limits: HttpLimits,
    descriptors: CallDescriptors,
    requests: AtomicU32,
    running: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    redactions: AtomicU64,
    /// Whether the call is over.
    is_over: AtomicBool,
    /// The first: later ones are its consequences.
    fired: OnceLock<EndedExchange>,
    /// Requests that were refused.
    pub denials: DenialLog,
}

impl HttpMeter {
    pub fn new(limits: HttpLimits, descriptors: CallDescriptors) -> Self {
        Self {
            limits,
            descriptors,
            requests: AtomicU32::new(0),
            running: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            redactions: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            fired: OnceLock::new(),
            denials: DenialLog::default(),
        }
    }

    /// Notes that the call is over.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    pub fn fired(&self) -> Option<EndedExchange> {
        self.fired.get().copied()
    }

    pub fn redactions(&self) -> u64 {
        self.redactions.load(Relaxed)
    }

    pub fn redacted(&self, count: u64) {
        self.redactions.fetch_add(count, Relaxed);
    }

    /// Notes that `limit` fired; returns the error for the guest.
    pub fn fire(&self, limit: HttpLimit) -> Error {
        let _ = self.fired.set(EndedExchange::Limit(limit));
        error_code(limit)
    }

    /// Notes that a response held a secret that must not come back; returns the error for the guest.
    pub fn reflected(&self) -> Error {
        let _ = self.fired.set(EndedExchange::SecretReflected);
        Error::InternalError(Some(
            "the response held a secret that must not come back, and was refused".into(),
        ))
    }

    /// A permit to be one of the concurrent requests, held until it is dropped.
    pub fn start(self: &Arc<Self>) -> Result<RunningRequest, Error> {
        let mut running = RunningRequest {
            meter: self.clone(),
            descriptor: None,
        };
        if self.running.fetch_add(1, Relaxed) >= self.limits.concurrent {
            return Err(self.fire(HttpLimit::Concurrent(self.limits.concurrent)));
        }
        let descriptor = self.descriptors.take();
        running.descriptor = Some(descriptor.ok_or(Error::ConnectionLimitReached)?);
        Ok(running)
    }

    /// One more request goes out.
    pub fn request(&self) -> Result<(), Error> {
        if self.requests.fetch_add(1, Relaxed) >= self.limits.requests {
            return Err(self.fire(HttpLimit::Requests(self.limits.requests)));
        }
        Ok(())
    }

    /// `bytes` more of request bodies.
    pub fn send(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limits.request_bytes;
        let before = self.sent.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            return Err(self.fire(HttpLimit::RequestBytes(limit)));
        }
        Ok(())
    }

    /// `bytes` more of responses.
    pub fn receive(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limits.response_bytes;
        let before = self.received.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            return Err(self.fire(HttpLimit::ResponseBytes(limit)));
        }
        Ok(())
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct RunningRequest {
    meter: Arc<HttpMeter>,
    /// For its connection.
    descriptor: Option<DescriptorPermit>,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.meter.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_fires_at_its_bound_and_the_first_is_remembered() {
        let limits = HttpLimits {
            requests: 2,
            request_bytes: 10,
            response_bytes: 10,
            concurrent: 1,
            ..HttpLimits::default()
        };
        let meter = Arc::new(HttpMeter::new(limits, CallDescriptors::at_most(10)));
        let running = meter.start().unwrap();
        assert!(meter.request().is_ok() && meter.request().is_ok());
        assert!(meter.send(10).is_ok() && meter.receive(10).is_ok());
        assert_eq!(meter.fired(), None);
        assert!(matches!(
            meter.receive(1),
            Err(Error::HttpResponseBodySize(Some(10)))
        ));
        assert!(matches!(
            meter.send(1),
            Err(Error::HttpRequestBodySize(Some(10)))
        ));
        assert!(meter.start().is_err() && meter.request().is_err());
        let limit = EndedExchange::Limit(HttpLimit::ResponseBytes(10));
        assert_eq!(meter.fired(), Some(limit));
        drop(running);
        assert!(meter.start().is_ok());
    }

    #[test]
    fn a_request_takes_a_descriptor_until_it_is_over() {
        let descriptors = CallDescriptors::at_most(1);
        let meter = Arc::new(HttpMeter::new(HttpLimits::default(), descriptors.clone()));
        let running = meter.start().unwrap();
        assert!(matches!(meter.start(), Err(Error::ConnectionLimitReached)));
        assert!(descriptors.take().is_none());
        drop(running);
        assert!(descriptors.take().is_some() && meter.start().is_ok());
    }
}
