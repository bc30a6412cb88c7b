//! The faults that a validator finds, and the time and stack of schemas and values that are made to cost much.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod attacks;
mod brief;
mod faults;
