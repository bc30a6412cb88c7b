//! The agent protocol as pure data and pure functions: no I/O, no clock.

pub mod advisor;
pub mod compose;
pub mod lower;
pub mod message;
pub mod meta;
pub mod reference;
pub mod solution;
pub mod tool;

pub use compose::Shape;
pub use message::{Exchange, Message, Role};
pub use solution::{Call, Solution};
pub use tool::{Annotations, Example, Tool};
