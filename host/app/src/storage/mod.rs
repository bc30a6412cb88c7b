//! Where runs are kept.

mod journal;

pub use journal::FileJournal;
