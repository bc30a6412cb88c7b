//! Guards of calls: hidden data and shields.

pub mod pii;
pub mod shield;
