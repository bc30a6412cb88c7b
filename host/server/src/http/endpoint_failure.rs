//! The error about a run that its model's endpoint ended, with the meaning that the endpoint's answer had
//! (`docs/server.md`, "Statuses").

use crate::http::error::ApiError;
use std::time::Duration;
use toolhold_protocol::event::RunFailure;

/// Facts about the failure of an endpoint that decide the status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointFailure {
    /// HTTP status of the endpoint's answer.
    status: Option<u16>,
    /// True if the request did not fit the model's window.
    is_overflow: bool,
    /// The time after which the same may succeed.
    retry_after: Option<Duration>,
    /// True if the model made no call although the client demanded one.
    lacks_call: bool,
}

/// The code of an error about a call that the client demanded (`tool_choice`) and the model did not make.
const LACKS_CALL: &str = "tool_choice_unmet";

impl EndpointFailure {
    pub fn of(failure: &RunFailure) -> Self {
        Self {
            status: failure.status,
            is_overflow: failure.overflow.is_some(),
            retry_after: failure.retry_after_ms.map(Duration::from_millis),
            lacks_call: failure.lacks_call,
        }
    }

    /// The error that an API answers with. It is the outcome of a run, so it is not to be repeated.
    pub fn fault(self, message: String) -> ApiError {
        let (fault, may_succeed_later) = match self.status {
            _ if self.lacks_call => (ApiError::upstream(message).coded(LACKS_CALL), false),
            _ if self.is_overflow => {
                let fault = ApiError::invalid(message).coded("context_length_exceeded");
                (fault, false)
            }
            Some(400 | 413 | 415 | 422) => {
                let fault = ApiError::invalid(message).coded("endpoint_refused_request");
                (fault, false)
            }
            Some(401) => {
                let fault = ApiError::unauthenticated(message).coded("endpoint_credentials");
                (fault, false)
            }
            Some(403) => {
                let fault = ApiError::forbidden(message).coded("endpoint_credentials");
                (fault, false)
            }
            Some(429) => {
                let fault = ApiError::too_many(message, 0).coded("endpoint_rate_limit");
                (fault, true)
            }
            _ if self.retry_after.is_some() => (ApiError::unavailable(message), true),
            _ => (ApiError::upstream(message), false),
        };
        let fault = fault.of_a_run();
        match self.retry_after {
            Some(wait) if may_succeed_later => fault.after(wait),
            _ => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;
    use axum::response::IntoResponse as _;
    use toolhold_policy::ErrorClass;
    use toolhold_protocol::completion::ContextOverflow;

    #[test]
    fn an_endpoints_answer_keeps_its_meaning() {
        let invalid = ("invalid_request_error", Some("endpoint_refused_request"));
        for (status, retry_after, expect, (kind, code), wait) in [
            (Some(400), None, 400, invalid, None),
            (Some(413), Some(7), 400, invalid, None),
            (Some(422), None, 400, invalid, None),
            (
                Some(401),
                None,
                401,
                ("authentication_error", Some("endpoint_credentials")),
                None,
            ),
            (
                Some(403),
                None,
                403,
                ("permission_error", Some("endpoint_credentials")),
                None,
            ),
            (
                Some(429),
                Some(7),
                429,
                ("rate_limit_error", Some("endpoint_rate_limit")),
                Some("7"),
            ),
            (
                Some(429),
                None,
                429,
                ("rate_limit_error", Some("endpoint_rate_limit")),
                None,
            ),
            (
                Some(503),
                Some(7),
                503,
                ("overloaded_error", None),
                Some("7"),
            ),
            (Some(500), None, 502, ("server_error", None), None),
            (Some(404), None, 502, ("server_error", None), None),
            (None, Some(7), 503, ("overloaded_error", None), Some("7")),
            (None, None, 502, ("server_error", None), None),
        ] {
            let failure = RunFailure {
                status,
                retry_after_ms: retry_after.map(|seconds: u64| seconds * 1_000),
                ..RunFailure::new(ErrorClass::Fatal, "no")
            };
            let fault = EndpointFailure::of(&failure).fault("run 1: no".into());
            let told = fault.body().error;
            assert_eq!(told.kind, kind, "{status:?} {retry_after:?}");
            assert_eq!(told.code.as_deref(), code, "{status:?} {retry_after:?}");
            assert_eq!(told.message, "run 1: no");
            let response = fault.into_response();
            assert_eq!(
                response.status().as_u16(),
                expect,
                "{status:?} {retry_after:?}"
            );
            let headers = response.headers();
            let after = headers.get(header::RETRY_AFTER);
            let after = after.map(|after| after.to_str().unwrap());
            assert_eq!(after, wait, "{status:?} {retry_after:?}");
            assert_eq!(headers["x-should-retry"], "false");
        }
    }

    #[test]
    fn a_demanded_call_that_was_not_made_has_a_code() {
        let failure = RunFailure {
            lacks_call: true,
            ..RunFailure::new(ErrorClass::Correctable, "it answers")
        };
        let fault = EndpointFailure::of(&failure).fault("it answers".into());
        let code = fault.body().error.code;
        assert_eq!(code.as_deref(), Some("tool_choice_unmet"));
        assert_eq!(fault.into_response().status().as_u16(), 502);
    }

    #[test]
    fn a_request_that_is_too_long_is_the_clients() {
        let failure = RunFailure {
            status: Some(400),
            overflow: Some(ContextOverflow::default()),
            ..RunFailure::new(ErrorClass::Correctable, "too long")
        };
        let fault = EndpointFailure::of(&failure).fault("too long".into());
        let code = fault.body().error.code;
        assert_eq!(code.as_deref(), Some("context_length_exceeded"));
        assert_eq!(fault.into_response().status().as_u16(), 400);
    }
}
