//! Errors of searching and adding.

use crate::embed::EmbedError;
use crate::vectors::WrongDimensions;
use toolhold_storage::{PublishError, StagingError, StoreError};

/// A search found nothing because it failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The collection's vectors are of another length than its row says: its rows were changed by other means.
    #[error(transparent)]
    Dimensions(#[from] WrongDimensions),
    /// The search took longer than it may.
    #[error("the search took longer than {seconds} s: ask for less, or in fewer collections")]
    Late { seconds: u64 },
    /// What is looked for is longer than a question.
    #[error("what is looked for has {has} {what}, and may have {most}")]
    Question {
        /// `bytes` or `texts`.
        what: &'static str,
        has: usize,
        most: usize,
    },
}

/// A document was not added. What was there under its source stays.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error("its text has {bytes} bytes, and a document may have {most}")]
    TooLong { bytes: u64, most: u64 },
    /// What describes the document is too long, or holds a NUL, which no database keeps in a text.
    #[error("its {what} may have {most} bytes, and no NUL")]
    Description {
        /// `source`, `title`, `labels` and the like.
        what: &'static str,
        most: usize,
    },
    #[error("there is no text in it")]
    Empty,
    /// What is stored of it stays staged, and adding it again goes on from there.
    #[error("it took longer than {seconds} s; add it again, which goes on where this stopped")]
    Late { seconds: u64 },
    #[error("it cannot be cut into passages: {0}")]
    Cut(Box<dyn std::error::Error + Send + Sync>),
    /// It stays staged, and adding it again goes on from there.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error("{model} made {vectors} vectors of {texts} texts")]
    Count {
        model: String,
        vectors: usize,
        texts: usize,
    },
    /// The collection was made with another model.
    #[error(
        "the collection's vectors are of the model {expected}, and here is {model}: use that model, or another \
         collection"
    )]
    OtherModel { expected: String, model: String },
    #[error(transparent)]
    Dimensions(#[from] WrongDimensions),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
