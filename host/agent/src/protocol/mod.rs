//! Where the protocol was before it had a crate of its own.

pub use toolhold_json::lower;
pub use toolhold_protocol::compose::Shape;
pub use toolhold_protocol::context::Message;
pub use toolhold_protocol::saved::Saved;
pub use toolhold_protocol::solution::{Call, Solution};
pub use toolhold_protocol::tool::{Annotations, Example, Execution, Resolve, Scopes, Tool};
pub use toolhold_protocol::turn::{Exchange, Role, Turn};
pub use toolhold_protocol::{
    advisor, compose, context, data, meta, plan, reference, saved, solution, tool, turn,
};
