//! The agent protocol as pure data and pure functions: no I/O, no clock.

pub mod advisor;
pub mod compose;
pub mod context;
pub mod data;
pub use toolhold_json::lower;
pub mod meta;
pub mod plan;
pub mod reference;
pub mod saved;
pub mod solution;
pub mod tool;
pub mod turn;

pub use compose::Shape;
pub use context::Message;
pub use saved::Saved;
pub use solution::{Call, Solution};
pub use tool::{Annotations, Example, Execution, Resolve, Scopes, Tool};
pub use turn::{Exchange, Role, Turn};
