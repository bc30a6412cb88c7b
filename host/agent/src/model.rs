//! Where the model client was before it had a crate of its own.

pub use toolhold_model::tokenizer as tokenize;
pub use toolhold_model::*;
pub use toolhold_protocol::completion::{ChatToolCall, Completion, ContextOverflow, Delta, Usage};
pub use toolhold_protocol::routing::{self, Classifier, Degradation, Routing};
pub use toolhold_protocol::side_request::{SideRequest, SideRole};

pub mod route {
    pub use crate::router::{Class, Router, RouterPolicy, Rules};
    pub use toolhold_model::route::*;
}
