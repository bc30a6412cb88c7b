//! Admission: waits between attempts.
#![forbid(unsafe_code)]

mod backoff;

pub use backoff::Backoff;
