//! What a validator finds, and what schemas and values that are made to cost much take of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod attacks;
mod faults;
