//! The user's documents and the facts that are remembered, as tools for a model.
//!
//! Results are short: a quote of each passage with an id that an answer can cite, and by which more is read.

mod documents;
mod memory;

use toolhold_guest::knowledge::KnowledgeError;
use toolhold_guest::{Error, Tool};

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        documents::search_tool(),
        documents::read_tool(),
        memory::remember_tool(),
        memory::recall_tool(),
        memory::forget_tool(),
    ]
}

/// Whose move it is, in the host's words.
fn refused(error: KnowledgeError) -> Error {
    match error {
        KnowledgeError::Denied(reason) => Error::fatal(format!("denied: {reason}")),
        KnowledgeError::Invalid(reason) => Error::correctable(reason),
        KnowledgeError::Quota(reason) => Error::correctable(format!("no more room: {reason}")),
        KnowledgeError::Unavailable(reason) => Error::retryable(reason),
    }
}
