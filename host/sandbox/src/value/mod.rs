//! JSON ↔ component values, guided by their [`Shape`]. Errors name the JSON path.
//!
//! `lower` goes into the component, `lift` out of it. Both walk the value and its shape side by side
//! and pay for a path only when something is wrong.

pub mod fuel;
mod lift;
mod lower;
mod misfit;
mod named_parts;
pub mod schema;
pub mod shape;
mod weight;

pub use lift::{LiftError, to_json};
pub use lower::{arguments, from_json};
pub use weight::weight;

/// The largest integer that readers keep exactly which hold numbers as doubles.
const MAX_SAFE_INTEGER: u64 = 1 << 53;

#[cfg(doc)]
use shape::Shape;

#[cfg(test)]
mod tests;
