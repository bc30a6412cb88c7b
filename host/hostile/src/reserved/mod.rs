//! Row 47: files from which the host takes decisions, in directories that a module may write.

mod host_files;

pub mod bytes;
pub mod grants;
pub mod names;
