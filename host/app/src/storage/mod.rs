//! Where runs are kept.

pub mod decisions;
pub mod dialects;
pub mod journal;

pub use decisions::Decisions;
pub use dialects::{Dialects, Probed};
pub use journal::FileJournal;
