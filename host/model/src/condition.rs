//! Reads failures as conditions of their endpoint: a status, an error inside of an answer and a missing connection alike.

use std::time::Duration;

use crate::error::{ErrorDetail, ModelError, TimeoutPhase};
use crate::transport::TransportError;
use toolhold_policy::ErrorClass;

/// Wait in the answer to a client where an endpoint opens no connection and no other wait is known.
const AWAY_WAIT: Duration = Duration::from_secs(5);

/// Condition of an endpoint that a failure shows. Retries, the reliefs of a pool and the circuit breaker read it here alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointCondition {
    /// No connection could be opened: no process listens there.
    Unreached,
    /// The endpoint works, and has too much to do for this request.
    Busy,
    /// The endpoint has too much to do, or is still loading its model.
    Unready,
    /// The endpoint fails.
    Failing,
    /// The endpoint works: the request was refused, or the run ended.
    Working,
}

impl ModelError {
    /// Returns the condition of the endpoint that the failure shows: a status, an error in a stream, or no connection.
    pub fn condition(&self) -> EndpointCondition {
        match self {
            Self::Connect {
                source: TransportError::Connect { .. },
                ..
            } => EndpointCondition::Unreached,
            // The time of the run, and not of the endpoint.
            Self::Timeout {
                phase: TimeoutPhase::Total,
                ..
            } => EndpointCondition::Working,
            // Our own limits, or what the endpoint asked for.
            Self::Unavailable(_) => EndpointCondition::Busy,
            Self::Status { status, detail, .. } => detail.condition(Some(*status)),
            Self::InStream { detail, .. } => detail.condition(None),
            Self::GaveUp { source, .. } => source.condition(),
            error if error.class() == ErrorClass::Retryable => EndpointCondition::Failing,
            _ => EndpointCondition::Working,
        }
    }

    /// Returns the HTTP status that the failure amounts to, for those who answer a client: errors inside of a stream and limits
    /// behind another status have the same meaning as those with a status of their own.
    pub fn meant_status(&self) -> Option<u16> {
        match self {
            Self::Status { status, detail, .. } => detail.status(Some(*status)),
            Self::InStream { detail, .. } => detail.status(None),
            Self::GaveUp { source, .. } => source.meant_status(),
            _ => None,
        }
    }

    /// Returns an error that came in the place of an answer, with the status that it amounts to: it may be one of the request,
    /// which can be sent otherwise. Servers that began an event stream have it there. None if a part of an answer came before.
    pub(crate) fn as_refusal(&self) -> Option<(Option<u16>, &ErrorDetail)> {
        let detail: &ErrorDetail = match self {
            Self::Status { detail, .. } => detail,
            Self::InStream { detail, received } if received.is_blank() => detail,
            _ => return None,
        };
        Some((self.meant_status(), detail))
    }

    /// Returns the wait after which a client may send the same request again, where it is known: the endpoint asked for it,
    /// is left alone for a while, or opens no connection.
    pub fn available_after(&self) -> Option<Duration> {
        let is_away = match self {
            Self::GaveUp { source, .. } => return source.available_after(),
            Self::Timeout { phase, .. } => *phase == TimeoutPhase::Connect,
            error => error.condition() == EndpointCondition::Unreached,
        };
        self.retry_after().or(is_away.then_some(AWAY_WAIT))
    }
}

impl ErrorDetail {
    /// Returns the HTTP status that the error amounts to. Errors inside of a stream have none of their own, and gateways hide a
    /// limit of theirs behind another status: where the body tells of too many requests, it counts.
    pub(crate) fn status(&self, http: Option<u16>) -> Option<u16> {
        let code = self.code.as_deref().unwrap_or_default();
        let number = code
            .parse::<u16>()
            .ok()
            .filter(|code| (400..600).contains(code));
        match number.or_else(|| status_of_name(code)) {
            Some(said @ (429 | OVERLOADED)) => Some(said),
            said => http.or(said).or_else(|| status_of_words(&self.message)),
        }
    }

    /// Returns the condition of the endpoint that the error shows.
    fn condition(&self, http: Option<u16>) -> EndpointCondition {
        if self.class(http) != ErrorClass::Retryable {
            return EndpointCondition::Working;
        }
        match self.status(http) {
            Some(429 | OVERLOADED) => EndpointCondition::Busy,
            Some(503) => EndpointCondition::Unready,
            _ => EndpointCondition::Failing,
        }
    }
}

/// Status of servers that have too much to do for any client. No RFC has it.
const OVERLOADED: u16 = 529;

/// The status that a code's name stands for.
fn status_of_name(code: &str) -> Option<u16> {
    let code = code.to_ascii_lowercase();
    let is = |names: &[&str]| names.iter().any(|name| code.contains(name));
    if is(&[
        "rate_limit",
        "ratelimit",
        "too_many_requests",
        "toomanyrequests",
        "throttl",
        "resource_exhausted",
    ]) {
        Some(429)
    } else if is(&["overloaded"]) {
        Some(OVERLOADED)
    } else if is(&["unavailable"]) {
        Some(503)
    } else if is(&["authentication", "permission"]) {
        Some(401)
    } else if is(&["invalid", "bad_request", "badrequest"]) || code == "validation" {
        Some(400)
    } else {
        None
    }
}

/// The status that an error without a code tells in words.
fn status_of_words(message: &str) -> Option<u16> {
    let message = message.to_ascii_lowercase();
    let is_limit = message.contains("rate limit") || message.contains("too many requests");
    is_limit.then_some(429)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, code: Option<&str>) -> ModelError {
        ModelError::Status {
            status,
            retry_after: None,
            detail: Box::new(ErrorDetail {
                code: code.map(Into::into),
                ..ErrorDetail::default()
            }),
        }
    }

    fn in_stream(code: &str) -> ModelError {
        ModelError::InStream {
            detail: Box::new(ErrorDetail {
                code: Some(code.into()),
                ..ErrorDetail::default()
            }),
            received: Box::default(),
        }
    }

    #[test]
    fn a_failure_has_one_reading_wherever_it_comes_from() {
        use EndpointCondition::{Busy, Failing, Unready, Working};
        for (error, condition) in [
            (status(429, None), Busy),
            (in_stream("429"), Busy),
            (in_stream("rate_limit_exceeded"), Busy),
            (in_stream("RateLimitError"), Busy),
            (in_stream("RESOURCE_EXHAUSTED"), Busy),
            (in_stream("overloaded_error"), Busy),
            (status(529, None), Busy),
            (status(500, Some("rate_limit_error")), Busy),
            (status(400, Some("429")), Busy),
            (status(503, None), Unready),
            (in_stream("503"), Unready),
            (in_stream("service_unavailable"), Unready),
            (status(500, None), Failing),
            (status(502, Some("400")), Failing),
            (in_stream("500"), Failing),
            (in_stream("internal_error"), Failing),
            (status(400, None), Working),
            (in_stream("400"), Working),
            (status(401, None), Working),
            (status(429, Some("insufficient_quota")), Working),
        ] {
            assert_eq!(error.condition(), condition, "{error:?}");
        }
        let words = ModelError::InStream {
            detail: Box::new(ErrorDetail {
                message: "Rate limit reached for requests".into(),
                ..ErrorDetail::default()
            }),
            received: Box::default(),
        };
        assert_eq!(words.condition(), Busy);
        for (error, meant) in [
            (words, Some(429)),
            (in_stream("400"), Some(400)),
            (in_stream("server_error"), None),
            (status(500, Some("rate_limit_error")), Some(429)),
            (status(400, None), Some(400)),
        ] {
            let gave_up = ModelError::GaveUp {
                attempts: 1,
                waited: Duration::ZERO,
                source: Box::new(error),
            };
            assert_eq!(gave_up.meant_status(), meant, "{gave_up:?}");
        }
    }

    #[test]
    fn an_endpoint_that_opens_no_connection_has_a_wait_for_clients_and_none_for_retries() {
        let url = String::from("http://h/v1");
        let refused = ModelError::from(TransportError::Connect {
            url: url.clone(),
            reason: "connection refused".into(),
        });
        assert_eq!(refused.condition(), EndpointCondition::Unreached);
        assert_eq!(refused.retry_after(), None);
        assert_eq!(refused.available_after(), Some(AWAY_WAIT));
        let broken = ModelError::from(TransportError::Broken {
            url,
            reason: "connection reset".into(),
        });
        assert_eq!(broken.condition(), EndpointCondition::Failing);
        assert_eq!(broken.available_after(), None);
    }
}
