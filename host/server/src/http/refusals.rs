//! Members of requests that are refused because an agent cannot do what they ask for (`docs/server.md`, "Parameters").

use crate::http::error::ApiError;
use serde_json::Value;

/// True where the member asks for something, its name, and why it is refused.
pub type UnsupportedMember = (bool, &'static str, &'static str);

/// # Errors
/// One of the members asks for what an agent cannot do.
pub fn refuse(refusals: &[UnsupportedMember]) -> Result<(), ApiError> {
    match refusals.iter().find(|(is_asked, ..)| *is_asked) {
        None => Ok(()),
        Some((_, param, reason)) => {
            Err(ApiError::member(param, reason).coded("unsupported_parameter"))
        }
    }
}

/// Whether a member that clients write as `null` or empty, where they want nothing, asks for something.
pub fn is_asked(member: &Value) -> bool {
    match member {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

/// Why probabilities of tokens are not given.
pub const NO_LOGPROBS: &str =
    "an agent's answer has none: it is not the reply of one model as it was written";
