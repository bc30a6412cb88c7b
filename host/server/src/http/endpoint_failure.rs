//! The error about a run that its model's endpoint ended, with the meaning that the endpoint's answer had
//! (`docs/server.md`, "Statuses").

use crate::http::error::ApiError;
use std::borrow::Cow;
use std::time::Duration;
use toolhold_protocol::event::RunFailure;

/// Facts about the failure of an endpoint that decide the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFailure {
    /// HTTP status of the endpoint's answer.
    status: Option<u16>,
    /// True if the request did not fit the model's window.
    is_overflow: bool,
    /// The time after which the same may succeed.
    retry_after: Option<Duration>,
    /// True if the model made no call although the client demanded one.
    lacks_call: bool,
    /// The endpoint's own code.
    code: Option<String>,
    /// The parameter that the endpoint's error is about.
    param: Option<String>,
}

/// The code of an error about a call that the client demanded (`tool_choice`) and the model did not make.
const LACKS_CALL: &str = "tool_choice_unmet";

/// The code of an error about an account without money or quota. Waiting does not help.
const NO_QUOTA: &str = "insufficient_quota";

/// Codes that have a meaning of their own at this server. An endpoint means its own key, models and addresses.
const RESERVED: [&str; 20] = [
    "answer_changed",
    "context_length_exceeded",
    "endpoint_credentials",
    "endpoint_not_found",
    "image_quota",
    "incorrect_api_key",
    "invalid_api_key",
    "invalid_json",
    "max_cost",
    "max_steps",
    "max_tool_calls",
    "model_not_found",
    "previous_response_not_found",
    "rate_limit_exceeded",
    "timeout",
    LACKS_CALL,
    "unknown_url",
    "unsupported_endpoint",
    "unsupported_file",
    "unsupported_parameter",
];

impl EndpointFailure {
    pub fn of(failure: &RunFailure) -> Self {
        Self {
            status: failure.status,
            is_overflow: failure.overflow.is_some(),
            retry_after: failure.retry_after_ms.map(Duration::from_millis),
            lacks_call: failure.lacks_call,
            code: failure.code.clone(),
            param: failure.param.clone(),
        }
    }

    /// The error that an API answers with. It is the outcome of a run, so it is not to be repeated.
    pub fn fault(&self, message: String) -> ApiError {
        let has_quota = !self.lacks_quota();
        let (fault, may_succeed_later) = match self.status {
            _ if self.lacks_call => (ApiError::upstream(message).coded(LACKS_CALL), false),
            _ if self.is_overflow => {
                let fault = ApiError::invalid(message).coded("context_length_exceeded");
                (fault, false)
            }
            Some(400 | 413 | 415 | 422) if has_quota => {
                let fault = ApiError::invalid(message);
                let fault = fault.coded(self.code_or("endpoint_refused_request"));
                (self.about_param(fault), false)
            }
            Some(401) => {
                let fault = ApiError::unauthenticated(message).coded("endpoint_credentials");
                (fault, false)
            }
            Some(403) if has_quota => {
                let fault = ApiError::forbidden(message).coded("endpoint_credentials");
                (fault, false)
            }
            // Clients name an agent. The model of its endpoint is the operator's affair.
            Some(404) => {
                let fault = ApiError::upstream(message).coded("endpoint_not_found");
                (fault, false)
            }
            _ if !has_quota => {
                let code = match self.status {
                    Some(402) => self.code_or(NO_QUOTA),
                    _ => NO_QUOTA.into(),
                };
                (ApiError::too_many(message, 0).coded(code), false)
            }
            Some(429) => {
                let fault = ApiError::too_many(message, 0);
                (fault.coded(self.code_or("endpoint_rate_limit")), true)
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

    /// True if the account at the endpoint has no money or quota left. OpenAI answers so with 429, others with 402.
    fn lacks_quota(&self) -> bool {
        let code = self.code.as_deref();
        self.status == Some(402)
            || code.is_some_and(|code| matches!(code, NO_QUOTA | "billing_hard_limit_reached"))
    }

    /// The endpoint's own code, or this one where it has none that means the same here.
    fn code_or(&self, other: &'static str) -> Cow<'static, str> {
        let own = self.code.as_deref();
        let own = own.filter(|code| !RESERVED.contains(code));
        own.map_or(Cow::Borrowed(other), |code| code.to_owned().into())
    }

    fn about_param(&self, fault: ApiError) -> ApiError {
        match &self.param {
            Some(param) => fault.of(param),
            None => fault,
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
            (
                Some(404),
                None,
                502,
                ("server_error", Some("endpoint_not_found")),
                None,
            ),
            (
                Some(402),
                Some(7),
                429,
                ("rate_limit_error", Some("insufficient_quota")),
                None,
            ),
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
    fn an_endpoints_own_names_go_on_where_they_mean_the_same_here() {
        for (status, code, param, expect) in [
            (
                400,
                "invalid_value",
                Some("temperature"),
                (400, "invalid_value", Some("temperature")),
            ),
            (
                422,
                "model_not_found",
                None,
                (400, "endpoint_refused_request", None),
            ),
            (
                429,
                "insufficient_quota",
                None,
                (429, "insufficient_quota", None),
            ),
            (
                403,
                "insufficient_quota",
                None,
                (429, "insufficient_quota", None),
            ),
            (429, "tokens", Some("model"), (429, "tokens", None)),
            (
                429,
                "rate_limit_exceeded",
                None,
                (429, "endpoint_rate_limit", None),
            ),
            (
                400,
                "unsupported_parameter",
                Some("seed"),
                (400, "endpoint_refused_request", Some("seed")),
            ),
            (
                400,
                "max_cost",
                None,
                (400, "endpoint_refused_request", None),
            ),
            (402, "no_balance", None, (429, "no_balance", None)),
            (
                401,
                "invalid_api_key",
                None,
                (401, "endpoint_credentials", None),
            ),
            (
                404,
                "model_not_found",
                Some("model"),
                (502, "endpoint_not_found", None),
            ),
        ] {
            let failure = RunFailure {
                status: Some(status),
                code: Some(code.into()),
                param: param.map(str::to_owned),
                ..RunFailure::new(ErrorClass::Fatal, "no")
            };
            let fault = EndpointFailure::of(&failure).fault("no".into());
            let told = fault.body().error;
            let answered = fault.into_response().status().as_u16();
            let names = (told.code.as_deref().unwrap(), told.param.as_deref());
            assert_eq!((answered, names.0, names.1), expect, "{status} {code}");
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
