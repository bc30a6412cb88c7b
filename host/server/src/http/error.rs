//! Error responses in the shape of OpenAI's API, which its SDKs read.

use crate::rights::RightEnd;
use crate::runs::{NotReady, RunRefusal, WatchError};
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use toolhold_admission::WorkFailure;
use toolhold_connections::is_too_slow;
use toolhold_protocol::failure::ToolFailure;
use toolhold_storage::{RecordError, StoreError};
use toolhold_text::cut;
use utoipa::ToSchema;

/// An error response with its status.
#[derive(Debug, Clone)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    retry_after: Option<u32>,
    /// The part of the request that is wrong, by its path.
    param: Option<String>,
    code: Option<Cow<'static, str>>,
    /// A run was created: the header tells SDKs not to repeat the request, which would create another run.
    is_final: bool,
}

/// The body of every answer that is not 2xx.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// The cause, and what to do about it.
    pub message: String,
    /// `invalid_request_error`, `authentication_error`, `permission_error`, `not_found_error`,
    /// `conflict_error`, `rate_limit_error`, `overloaded_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Path of the wrong part of the request, such as `messages[0].content`, where one is known.
    pub param: Option<String>,
    /// The cause for programs, where it has a name (`docs/server.md`, "Errors").
    pub code: Option<String>,
}

/// Seconds of the Retry-After header of a request that was refused because all places are taken.
const RETRY_AFTER_SECONDS: u32 = 5;

/// The code of a part of the request with a value that it cannot have, where no other tells more.
const INVALID_VALUE: &str = "invalid_value";

/// Maximum characters of the path of a wrong part.
const MAX_PARAM_CHARS: usize = 200;

/// Most seconds of a Retry-After that an endpoint of a model asked for.
const MAX_RETRY_AFTER_SECONDS: u128 = 3_600;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            retry_after: None,
            param: None,
            code: None,
            is_final: false,
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::invalid_as(StatusCode::BAD_REQUEST, message)
    }

    fn invalid_as(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// The member `param` of the request has a value that it cannot have.
    pub fn member(param: &str, reason: impl fmt::Display) -> Self {
        Self::invalid(format!("{param}: {reason}")).of(param)
    }

    /// The same, of a part of the request.
    pub fn at(self, place: &str) -> Self {
        Self {
            message: format!("{place}: {}", self.message),
            ..self.of(place)
        }
    }

    /// Names the part of the request that is wrong. Its names may be the client's, so they are bounded.
    pub fn of(self, param: &str) -> Self {
        let is_invalid = self.status == StatusCode::BAD_REQUEST;
        Self {
            param: Some(cut(param, MAX_PARAM_CHARS)),
            code: self.code.or(is_invalid.then_some(INVALID_VALUE.into())),
            ..self
        }
    }

    /// Names the cause for programs.
    pub fn coded(self, code: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Some(code.into()),
            ..self
        }
    }

    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self {
            code: Some("invalid_api_key".into()),
            ..Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
        }
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// Also for a resource of another owner: a client must not learn that it exists.
    pub fn not_found(what: impl fmt::Display) -> Self {
        let message = format!("there is no {what}");
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// The request is one that this server never takes.
    pub fn refused(status: StatusCode, message: impl Into<String>) -> Self {
        Self::invalid_as(status, message)
    }

    pub fn method(message: impl Into<String>) -> Self {
        Self::invalid_as(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict_error", message)
    }

    pub fn payload_too_large(message: impl Into<String>) -> Self {
        Self::invalid_as(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The body of the request did not arrive in time.
    pub fn too_slow() -> Self {
        let message = "the body of the request came too slowly; send it again";
        Self::invalid_as(StatusCode::REQUEST_TIMEOUT, message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::invalid_as(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// The request is well-formed JSON with a wrong value.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::invalid_as(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// The resource is not the one that If-Match names.
    pub fn precondition_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "conflict_error", message)
    }

    /// The resource exists, and the request has no If-Match that names it.
    pub fn precondition_required(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_REQUIRED, "conflict_error", message)
    }

    /// A rate a minute was exceeded; it has room again after `wait`.
    pub fn too_many_in_a_minute(what: &str, wait: Duration) -> Self {
        let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(60);
        Self::too_many(format!("{what}; try again in {seconds} s"), seconds)
    }

    pub fn too_many(message: impl Into<String>, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds),
            code: Some("rate_limit_exceeded".into()),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        }
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_SECONDS),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", message)
        }
    }

    /// The endpoint of the model failed.
    pub fn upstream(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "server_error", message)
    }

    pub fn internal(error: &dyn fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        let message = "the server failed; its log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Adds a Retry-After of `wait`.
    pub fn after(self, wait: Duration) -> Self {
        let seconds = wait
            .as_millis()
            .div_ceil(1_000)
            .clamp(1, MAX_RETRY_AFTER_SECONDS);
        Self {
            retry_after: u32::try_from(seconds).ok(),
            ..self
        }
    }

    /// The error is the outcome of a run, so a client must not begin another run because of it.
    pub fn of_a_run(self) -> Self {
        Self {
            is_final: true,
            retry_after: None,
            ..self
        }
    }

    /// As the audit log has it.
    pub fn failure(&self) -> ToolFailure {
        ToolFailure::correctable(self.kind, self.message.as_str())
    }

    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The cause for programs, or the type where it has no name.
    pub fn cause(&self) -> &str {
        self.code.as_deref().unwrap_or(self.kind)
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                kind: self.kind,
                param: self.param.clone(),
                code: self.code.as_deref().map(str::to_owned),
            },
        }
    }

    /// The response of the error with another body, which has the error among its members.
    pub fn respond(self, body: &impl Serialize) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // The outcome of a run says nothing of the client's own key.
        if self.status == StatusCode::UNAUTHORIZED && !self.is_final {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.is_final {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        self.respond(&body)
    }
}

impl From<RunRefusal> for ApiError {
    fn from(refused: RunRefusal) -> Self {
        let message = refused.to_string();
        match refused {
            RunRefusal::Full | RunRefusal::Late => Self::too_many(message, RETRY_AFTER_SECONDS),
            RunRefusal::Memory(full) if full.is_for_ever() => Self::payload_too_large(message),
            RunRefusal::Closing
            | RunRefusal::Memory(_)
            | RunRefusal::NotRecorded
            | RunRefusal::AgentWaits { .. }
            | RunRefusal::ModulesLoad { .. }
            | RunRefusal::SilentServers { .. } => Self::unavailable(message),
            RunRefusal::Request(_) => Self::invalid(message),
            RunRefusal::NoAgent { .. } | RunRefusal::Replay(_) | RunRefusal::TurnTaken => {
                Self::conflict(message)
            }
            RunRefusal::NoSession { .. } => Self::not_found(message),
            // The run's owner, who may not be the client.
            RunRefusal::Right(_) => Self::conflict(message),
            RunRefusal::Broken(error) => Self::internal(&error),
            RunRefusal::Record(error) => error.into(),
            RunRefusal::Store(error) => error.into(),
        }
    }
}

impl From<NotReady> for ApiError {
    fn from(obstacle: NotReady) -> Self {
        Self::unavailable(obstacle.to_string())
    }
}

/// The client's own right has ended.
impl From<RightEnd> for ApiError {
    fn from(end: RightEnd) -> Self {
        Self::unauthenticated(end.to_string())
    }
}

impl From<WatchError> for ApiError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Right(end) => end.into(),
            WatchError::Record(error) => error.into(),
        }
    }
}

impl From<RecordError> for ApiError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Held => Self::conflict(error.to_string()),
            RecordError::Over { .. } => Self::conflict("this run is over"),
            RecordError::Unknown { .. } | RecordError::None => Self::not_found("such run"),
            RecordError::Store(error) => error.into(),
            _ => Self::internal(&error),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        // The log has the details already.
        if !matches!(error, StoreError::Outage(_)) {
            tracing::error!(%error, "the database failed");
        }
        match error.outage() {
            Some(trouble) => Self::unavailable(format!("{trouble}; try again in a while")),
            None => Self::unavailable("the database cannot be used just now; try again in a while"),
        }
    }
}

impl From<WorkFailure> for ApiError {
    fn from(failure: WorkFailure) -> Self {
        match failure {
            WorkFailure::Full | WorkFailure::Late => Self::unavailable(failure.to_string()),
            WorkFailure::Stopped | WorkFailure::Panicked { .. } => Self::internal(&failure),
        }
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        if is_too_slow(&rejection) {
            return Self::too_slow();
        }
        Self {
            status: rejection.status(),
            ..Self::invalid(rejection.body_text()).coded("invalid_json")
        }
    }
}

/// A member of the body has a value that it cannot have.
impl From<serde_path_to_error::Error<serde_json::Error>> for ApiError {
    fn from(error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        let place = error.path().to_string();
        let reason = error.into_inner().to_string();
        let fault = match place.as_str() {
            // The body itself.
            "." => Self::invalid(reason),
            place => Self::member(&cut(place, MAX_PARAM_CHARS), reason),
        };
        fault.coded(INVALID_VALUE)
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::invalid(rejection.body_text())
    }
}
