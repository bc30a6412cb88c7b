//! Policy: redaction of texts.
#![forbid(unsafe_code)]

pub mod pii;
pub mod redaction;
