//! Why an expression has no value.

use toolhold_guest::{Error, json};

/// What is wrong with an expression, and where.
#[derive(Debug, PartialEq)]
pub struct Fault {
    /// Character of the expression, counted from 1.
    position: usize,
    message: String,
}

impl Fault {
    pub fn new(position: usize, message: impl Into<String>) -> Self {
        Self {
            position,
            message: message.into(),
        }
    }

    /// Every fault is in the expression, so the model can correct it.
    pub fn into_error(self) -> Error {
        Error::correctable(format!("at character {}: {}", self.position, self.message))
            .with_data(json!({ "position": self.position }))
    }
}
