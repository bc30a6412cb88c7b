//! What a call is checked by: data that is hidden, shields.

pub mod pii;
pub mod shield;
