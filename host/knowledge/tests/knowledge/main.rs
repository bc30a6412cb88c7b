//! The crate's behaviour through its public interface: one binary, because each links the database.

mod documents;
mod retrieval;
