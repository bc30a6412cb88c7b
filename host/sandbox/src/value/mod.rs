//! JSON ↔ component values, guided by their [`Shape`]. Errors name the JSON path.
//!
//! `lower` goes into the component, `lift` out of it. Both walk the value and its shape side by side
//! and pay for a path only when something is wrong.

mod lift;
mod lower;
mod misfit;

pub use lift::{Unliftable, to_json};
pub use lower::{arguments, from_json};

/// Integers beyond this lose digits in readers that hold numbers as doubles.
const MAX_SAFE: u64 = 1 << 53;

#[cfg(doc)]
use crate::shape::Shape;

#[cfg(test)]
mod tests;
