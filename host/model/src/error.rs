//! Errors between a request and its completion, and who must act on each.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::error_words::{refuses_images, speaks_of_tool_choice};
use crate::transport::TransportError;
use crate::unavailable::Unavailable;
use toolhold_intake::encoding::EncodingError;
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::{Completion, ContextOverflow};

/// Why there is no completion. Every message says what was tried and what to do.
#[derive(Debug, Error)]
pub enum ModelError {
    /// No connection, or it broke before an answer began.
    #[error(
        "cannot reach the model endpoint at {url} ({source}): is the server running there? \
         `toolhold doctor` checks it"
    )]
    Connect { url: String, source: TransportError },

    /// The endpoint was too slow.
    #[error("{phase} took longer than {after:?}: {}", phase.advice())]
    Timeout {
        phase: TimeoutPhase,
        after: Duration,
    },

    /// The endpoint refused the request.
    #[error("the model endpoint answered {status}: {detail}")]
    Status {
        status: u16,
        /// How long the endpoint asked to wait before the next attempt.
        retry_after: Option<Duration>,
        detail: Box<ErrorDetail>,
    },

    /// The endpoint accepted the request and then reported an error in its answer.
    #[error("the model endpoint reported an error in its answer: {detail}")]
    InStream {
        detail: Box<ErrorDetail>,
        received: Box<Completion>,
    },

    /// The answer stopped in the middle: no `[DONE]`, no finish reason.
    #[error(
        "the model endpoint ended its answer in the middle, after {} characters and {} tool calls: \
         it may have crashed or been restarted; its log says why",
        received.content.chars().count(),
        received.tool_calls.len()
    )]
    Truncated {
        received: Box<Completion>,
        /// What broke the connection; `None` when it was closed in good order.
        source: Option<TransportError>,
    },

    /// Something answered, but it speaks no OpenAI API.
    #[error(
        "{url} answered with {content_type} where a chat completion was due: it is no \
         OpenAI-compatible endpoint, the base URL lacks its path (usually `/v1`), or a balancer before it \
         answered; the answer begins: {excerpt}"
    )]
    NotAnEndpoint {
        url: String,
        content_type: String,
        /// The first 200 characters of the answer, on one line.
        excerpt: String,
    },

    /// The answer, or an event of it, is not the JSON that was due.
    #[error("the model endpoint sent {what} that cannot be read; it begins: {excerpt}")]
    Decode {
        what: &'static str,
        excerpt: String,
        source: Option<serde_json::Error>,
    },

    /// The answer is compressed, although nothing asked for it, and cannot be expanded.
    #[error("the answer of the model endpoint at {url} cannot be read: {source}")]
    Encoding { url: String, source: EncodingError },

    /// The answer grew beyond its bound and was cut off.
    #[error(
        "the model's answer exceeded the limit of {limit} {unit}, and the connection was closed: \
         lower `max_tokens`, or raise the limit if an answer may be that long"
    )]
    TooLarge { limit: usize, unit: &'static str },

    /// A request that is in no recording.
    #[error("this run replays a recording, and the recording holds no answer: {source}")]
    Unrecorded { source: TransportError },

    /// The reply is of another revision than the one that the operator pinned.
    #[error(
        "{endpoint} answered as {}, and {pinned} is pinned: set `revision` in its [endpoints.NAME] to the new one when it was \
         checked, or have the server go back to the old one",
        told.as_deref().unwrap_or("a model that tells no revision")
    )]
    OtherRevision {
        endpoint: String,
        pinned: String,
        told: Option<String>,
    },

    /// The client's own configuration is wrong.
    #[error("the model endpoint is misconfigured: {message}")]
    Config { message: String },

    /// The request was not sent.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),

    /// The attempts or the total wait are used up; `source` is the last error.
    #[error("given up after {attempts} attempts and {:.1} s of waiting: {source}", waited.as_secs_f64())]
    GaveUp {
        attempts: u32,
        waited: Duration,
        source: Box<ModelError>,
    },
}

impl ModelError {
    /// Who must act: the host, the model or the operator (docs/protocol.md, 7).
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Truncated { .. }
            | Self::Decode { .. }
            | Self::Encoding { .. }
            // Balancers answer so while nothing is behind them.
            | Self::NotAnEndpoint { .. }
            | Self::Unavailable(_) => ErrorClass::Retryable,
            Self::GaveUp { source, .. } => source.class(),
            Self::Status { status, detail, .. } => detail.class(Some(*status)),
            Self::InStream { detail, .. } => detail.class(None),
            // The same request would produce the same flood.
            Self::TooLarge { .. } => ErrorClass::Correctable,
            Self::Unrecorded { .. } | Self::OtherRevision { .. } | Self::Config { .. } => {
                ErrorClass::Fatal
            }
        }
    }

    /// True if the server itself answered, with an error or with something else. False for the statuses with which a
    /// balancer answers for a server that is away.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Status { status, .. } => !matches!(status, 502..=504 | 520..=530),
            Self::InStream { .. }
            | Self::Truncated { .. }
            | Self::NotAnEndpoint { .. }
            | Self::Decode { .. }
            | Self::Encoding { .. }
            | Self::OtherRevision { .. }
            | Self::TooLarge { .. } => true,
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Unrecorded { .. }
            | Self::Config { .. }
            | Self::Unavailable(_) => false,
            Self::GaveUp { source, .. } => source.is_answer(),
        }
    }

    /// Its name in the log (`docs/operations.md`, "The log").
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Timeout { phase, .. } => match phase {
                TimeoutPhase::Connect => "connect_timeout",
                TimeoutPhase::FirstToken => "first_token_timeout",
                TimeoutPhase::Idle => "idle_timeout",
                TimeoutPhase::Total => "total_timeout",
            },
            Self::Status { .. } => "status",
            Self::InStream { .. } => "error_in_answer",
            Self::Truncated { .. } => "truncated",
            Self::NotAnEndpoint { .. } => "no_endpoint",
            Self::Decode { .. } => "unreadable",
            Self::Encoding { .. } => "compressed",
            Self::TooLarge { .. } => "too_large",
            Self::Unrecorded { .. } => "unrecorded",
            Self::OtherRevision { .. } => "other_revision",
            Self::Config { .. } => "configuration",
            Self::Unavailable(unavailable) => unavailable.kind(),
            Self::GaveUp { source, .. } => source.kind(),
        }
    }

    /// The HTTP status of the answer that is the error.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::GaveUp { source, .. } => source.status(),
            _ => None,
        }
    }

    /// True if the endpoint refused the request because its model takes no images.
    pub(crate) fn refuses_images(&self) -> bool {
        self.as_refusal().is_some_and(|(status, detail)| {
            matches!(status, None | Some(400 | 404 | 415 | 422 | 500 | 501))
                && refuses_images(detail.words())
        })
    }

    /// True if the endpoint refused the request because it demands a call of a tool. Servers name the field; models that
    /// think and servers without a grammar refuse it.
    pub(crate) fn is_about_tool_choice(&self) -> bool {
        self.as_refusal().is_some_and(|(status, detail)| {
            matches!(status, None | Some(400 | 404 | 422 | 500 | 501))
                && detail.overflow.is_none()
                && speaks_of_tool_choice(detail.words())
        })
    }

    /// The request that was refused has images. No two servers refuse them alike: llama.cpp answers 500, others 400,
    /// 404 or 415.
    pub(crate) fn advise_of_images(&mut self) {
        let Self::Status { status, detail, .. } = self else {
            return;
        };
        if !matches!(status, 400 | 404 | 413 | 415 | 422 | 500 | 501) || detail.overflow.is_some() {
            return;
        }
        let advice = "the request has images: if the model takes none, name another one or leave them out, and set \
                      images = false in its [endpoints.NAME], so that they are left out";
        detail.advice = Some(match detail.advice.take() {
            Some(own) => format!("{own}; {advice}"),
            None => advice.into(),
        });
    }

    /// How long the endpoint asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status {
                retry_after,
                detail,
                ..
            } => retry_after.or(detail.retry_after),
            Self::InStream { detail, .. } => detail.retry_after,
            Self::Unavailable(unavailable) => unavailable.retry_after(),
            Self::GaveUp { source, .. } => source.retry_after(),
            _ => None,
        }
    }

    /// Set when the request did not fit the model's context window.
    pub fn context_overflow(&self) -> Option<ContextOverflow> {
        match self {
            Self::Status { detail, .. } | Self::InStream { detail, .. } => detail.overflow,
            Self::GaveUp { source, .. } => source.context_overflow(),
            _ => None,
        }
    }
}

impl From<TransportError> for ModelError {
    fn from(source: TransportError) -> Self {
        match source {
            TransportError::ConnectTimeout { after, .. } => Self::Timeout {
                phase: TimeoutPhase::Connect,
                after,
            },
            TransportError::Config { message } => Self::Config { message },
            TransportError::Unrecorded { .. } => Self::Unrecorded { source },
            TransportError::Recording { .. } => Self::Config {
                message: source.to_string(),
            },
            TransportError::Encoding { url, source } => Self::Encoding { url, source },
            TransportError::Connect { ref url, .. } | TransportError::Broken { ref url, .. } => {
                Self::Connect {
                    url: url.clone(),
                    source,
                }
            }
        }
    }
}

/// Which wait ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// Opening the connection.
    Connect,
    /// From sending the request to the first piece of the answer.
    FirstToken,
    /// Between two pieces of the answer.
    Idle,
    /// The whole answer.
    Total,
}

impl TimeoutPhase {
    fn advice(self) -> &'static str {
        match self {
            Self::Connect => {
                "the host may be down or behind a firewall, which `toolhold doctor` checks; if it is only far away, \
                 raise connect_timeout_ms in [endpoints.NAME]"
            }
            Self::FirstToken => {
                "the server may be overloaded, still loading, or reading a long prompt; if that is normal for it, \
                 raise first_token_timeout_ms in [endpoints.NAME]"
            }
            Self::Idle => {
                "the server stopped in the middle of its answer, and its log may say why; if it is only slow, raise \
                 idle_timeout_ms in [endpoints.NAME]"
            }
            Self::Total => {
                "lower run.max_tokens, or raise run.timeout_ms if answers may take that long"
            }
        }
    }
}

impl fmt::Display for TimeoutPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting to the model endpoint",
            Self::FirstToken => "waiting for the model's first token",
            Self::Idle => "waiting for the model's next token",
            Self::Total => "the model's whole answer",
        })
    }
}

/// An error as the endpoint described it, whatever the shape it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorDetail {
    /// The endpoint's code or type: `exceed_context_size_error`, `429`, …
    pub code: Option<String>,
    pub message: String,
    /// All texts of the error. Empty if the message is the only one.
    pub words: String,
    /// What a person can do about it, where we know.
    pub advice: Option<String>,
    /// Set when the request did not fit.
    pub overflow: Option<ContextOverflow>,
    /// How long to wait before the next attempt, where the message says it.
    pub retry_after: Option<Duration>,
    /// The code as the endpoint wrote it, where it is a name.
    pub own_code: Option<String>,
    /// The parameter that the error is about, where that is a name.
    pub param: Option<String>,
}

impl ErrorDetail {
    /// The words of the endpoint, for those who look for the name of what it refused: it may stand beside the message.
    pub(crate) fn words(&self) -> &str {
        match self.words.as_str() {
            "" => &self.message,
            words => words,
        }
    }

    /// The class, by what the body says first and the HTTP status second. Errors inside a stream
    /// have no status of their own, but most servers put one into `code`.
    pub(crate) fn class(&self, status: Option<u16>) -> ErrorClass {
        let code = self.code.as_deref().unwrap_or_default();
        if self.overflow.is_some() {
            return ErrorClass::Correctable;
        }
        // Independent of the status: waiting does not fill an account, and rewording does not find
        // a model.
        if is_final(code) {
            return ErrorClass::Fatal;
        }
        match self.status(status) {
            // 424 is how TGI says that a generation failed.
            Some(408 | 409 | 424 | 425 | 429) => ErrorClass::Retryable,
            // A redirect is not followed, so it is a wrong URL.
            Some(300..=399 | 401..=405 | 407 | 410 | 451 | 501) => ErrorClass::Fatal,
            Some(400..=499) => ErrorClass::Correctable,
            Some(_) | None => ErrorClass::Retryable,
        }
    }
}

/// Codes that say more than the status they come with.
fn is_final(code: &str) -> bool {
    matches!(
        code,
        "insufficient_quota"
            | "billing_hard_limit_reached"
            | "account_deactivated"
            | "invalid_api_key"
            | "incorrect_api_key"
            | "model_not_found"
    )
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
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
    fn classes_follow_the_status_unless_the_body_knows_better() {
        use ErrorClass::{Correctable, Fatal, Retryable};
        for (error, class) in [
            (status(429, None), Retryable),
            (status(429, Some("insufficient_quota")), Fatal),
            (status(500, None), Retryable),
            (status(503, None), Retryable),
            (status(424, None), Retryable),
            (status(400, None), Correctable),
            (status(422, None), Correctable),
            (status(413, None), Correctable),
            (status(401, None), Fatal),
            (status(404, None), Fatal),
            (status(308, None), Fatal),
            (status(501, None), Fatal),
            (in_stream("500"), Retryable),
            (in_stream("400"), Correctable),
            (in_stream("overloaded_error"), Retryable),
            (in_stream("invalid_request_error"), Correctable),
            (in_stream("authentication_error"), Fatal),
            (in_stream("invalid_api_key"), Fatal),
            (status(400, Some("model_not_found")), Fatal),
            (status(410, None), Fatal),
        ] {
            assert_eq!(error.class(), class, "{error:?}");
        }
    }

    #[test]
    fn errors_of_a_balancer_are_no_answers_of_the_server() {
        for number in [200, 401, 404, 429, 500, 501] {
            assert!(status(number, None).is_answer(), "{number}");
        }
        for number in [502, 503, 504, 522] {
            assert!(!status(number, None).is_answer(), "{number}");
        }
        assert!(in_stream("500").is_answer());
        let late = ModelError::Timeout {
            phase: TimeoutPhase::Connect,
            after: Duration::from_secs(1),
        };
        assert!(!late.is_answer());
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(
            size_of::<ModelError>() <= 128,
            "{}",
            size_of::<ModelError>()
        );
    }
}
