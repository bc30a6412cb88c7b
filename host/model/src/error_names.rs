//! The names for programs in an endpoint's error: its code, and the parameter that it is about. They go on to clients, so they
//! are names and no texts.

use crate::error::{ErrorDetail, ModelError};
use serde_json::{Map, Value};

/// Most characters of a name.
const MAX_NAME: usize = 64;
/// Parameters that the host composes: a path in one of them leads nowhere in the client's request.
const COMPOSED: [&str; 3] = ["messages", "input", "tools"];

/// The code of an error, as it was written; `None` for numbers.
pub(crate) fn code_of(error: &Map<String, Value>) -> Option<String> {
    let code = error.get("code")?.as_str()?;
    is_name(code).then(|| code.to_owned())
}

/// The parameter that an error is about.
pub(crate) fn param_of(error: &Map<String, Value>) -> Option<String> {
    let param = error.get("param")?.as_str()?;
    let (first, _) = param.split_once('.').unwrap_or((param, ""));
    (is_name(param) && !COMPOSED.contains(&first)).then(|| param.to_owned())
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_part)
}

impl ModelError {
    /// The endpoint's own code of the error, a name of at most 64 characters.
    pub fn own_code(&self) -> Option<&str> {
        self.detail()?.own_code.as_deref()
    }

    /// The parameter that the endpoint's error is about, a name of at most 64 characters.
    pub fn param(&self) -> Option<&str> {
        self.detail()?.param.as_deref()
    }

    fn detail(&self) -> Option<&ErrorDetail> {
        match self {
            Self::Status { detail, .. } | Self::InStream { detail, .. } => Some(detail),
            Self::GaveUp { source, .. } => source.detail(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_body::from_status;

    #[test]
    fn names_are_kept_and_texts_are_not() {
        let long = format!(
            r#"{{"error":{{"message":"m","code":"{}"}}}}"#,
            "x".repeat(65)
        );
        for (body, code, param) in [
            (
                r#"{"error":{"message":"m","param":"temperature","code":"invalid_value"}}"#,
                Some("invalid_value"),
                Some("temperature"),
            ),
            (
                r#"{"error":{"message":"m","param":"response_format.type","code":400}}"#,
                None,
                Some("response_format.type"),
            ),
            (
                r#"{"error":{"message":"m","param":"The reasoning_content must be passed back.","code":"400"}}"#,
                None,
                None,
            ),
            // The host wrote these.
            (
                r#"{"error":{"message":"m","param":"messages"}}"#,
                None,
                None,
            ),
            (
                r#"{"error":{"message":"m","param":"messages[2].content"}}"#,
                None,
                None,
            ),
            (
                r#"{"error":{"message":"m","type":"invalid_request_error"}}"#,
                None,
                None,
            ),
            (
                r#"{"code":"Throttling.RateQuota","message":"m"}"#,
                Some("Throttling.RateQuota"),
                None,
            ),
            (long.as_str(), None, None),
        ] {
            let error = ModelError::GaveUp {
                attempts: 1,
                waited: std::time::Duration::ZERO,
                source: Box::new(ModelError::Status {
                    status: 400,
                    retry_after: None,
                    detail: Box::new(from_status(400, body.as_bytes(), None)),
                }),
            };
            assert_eq!((error.own_code(), error.param()), (code, param), "{body}");
        }
    }
}
