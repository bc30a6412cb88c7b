//! The model's window: token counts, the summaries that take the place of dropped
//! history and of earlier turns, results that are read part by part, tools that are found when they are needed
//! (docs/protocol.md, 7.11). Pure functions and data: the machine decides when.

pub mod counts;
mod facts;
pub mod meter;
pub mod said;
pub mod stored;
pub mod summary;
pub mod toolbook;

pub use counts::TokenCounts;
pub use meter::TokenMeter;
pub use said::{ConversationSummary, TrimOrder};
pub use stored::Stored;
pub use summary::Summary;
pub use toolbook::Toolbook;
