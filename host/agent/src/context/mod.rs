//! What fits into the model's window: token counts, the summary that takes the place of dropped
//! history, results that are read part by part, tools that are found when they are needed
//! (PROTOCOL.md, 7, "Budget"). Pure functions and data: the machine decides when.

pub mod counts;
mod facts;
pub mod meter;
pub mod parts;
pub mod stored;
pub mod summary;
pub mod toolbook;

pub use counts::Counts;
pub use meter::Meter;
pub use parts::{Part, Parts};
pub use stored::Stored;
pub use summary::Summary;
pub use toolbook::Toolbook;

use serde::{Deserialize, Serialize};

/// How the window is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Tokens of prompt and reply together; nothing if nobody knows. An endpoint that refuses a
    /// Request for its length may say.
    pub tokens: Option<u64>,
    /// How many tools the model is shown at most; the others it finds by what they are for.
    pub max_tools: usize,
    /// Whether the endpoint counts the tokens of a text, so that nobody need estimate them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
    /// How it is kept.
    #[serde(default = "Habits::first", skip_serializing_if = "Habits::is_first")]
    pub habits: Habits,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            tokens: None,
            max_tools: 64,
            counted: false,
            habits: Habits::default(),
        }
    }
}

/// What the loop does about a window that is full. A record is replayed by the habits that it was made
/// with, and the first are of records that do not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Habits {
    /// As little is dropped as makes a Request fit, and never is a reply given less. Of a result that was
    /// cut only words are kept.
    First,
    /// A reply is given less before history is dropped; then enough is dropped for a while. Of a result
    /// that was cut everything is kept that it told.
    #[default]
    Second,
}

impl Habits {
    fn first() -> Self {
        Self::First
    }

    pub fn is_first(&self) -> bool {
        *self == Self::First
    }
}
