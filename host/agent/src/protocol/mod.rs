//! The agent protocol as pure data and pure functions: no I/O, no clock.

pub mod advisor;
pub mod compose;
pub mod data;
pub mod lower;
pub mod meta;
pub mod plan;
pub mod reference;
pub mod solution;
pub mod tool;

pub use compose::Shape;
pub use solution::{Call, Solution};
pub use tool::{Annotations, Example, Tool};
