//! Where runs are kept.

pub mod decisions;
pub mod journal;

pub use decisions::Decisions;
pub use journal::FileJournal;
