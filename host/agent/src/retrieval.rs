//! What finds passages of documents for a run, before its model is asked.

use futures_util::future::BoxFuture;
use std::fmt::Debug;
use std::time::Instant;
use toolhold_protocol::knowledge::{Retrieval, Retrieved};

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrievalQuestion {
    /// Where, and how much.
    pub retrieval: Retrieval,
    /// The question, in one way or several; none, where only attached documents are to be shown.
    pub texts: Vec<String>,
}

/// Finds passages in what the run's owner may read.
pub trait Retriever: Send + Sync + Debug {
    /// The passages, best first. What cannot be searched is told in [`Retrieved::notes`]: a run goes on without it. It
    /// ends in bounded time.
    fn retrieve<'a>(&'a self, question: &'a RetrievalQuestion) -> BoxFuture<'a, Retrieved>;
}

/// What `retriever` finds, and how long it took.
pub(crate) async fn retrieve(
    retriever: Option<&dyn Retriever>,
    question: &RetrievalQuestion,
) -> Retrieved {
    let began = Instant::now();
    let found = match retriever {
        Some(retriever) => retriever.retrieve(question).await,
        None => Retrieved {
            notes: vec!["there are no documents here that could be searched".into()],
            ..Retrieved::default()
        },
    };
    Retrieved {
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        ..found
    }
}
