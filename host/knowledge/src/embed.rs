//! What makes vectors of texts.

use std::pin::Pin;
use std::sync::Arc;

/// A future that an [`Embedder`] returns.
pub type Embedding<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Vec<f32>>, EmbedError>> + Send + 'a>>;

/// Makes vectors of texts: the nearer two texts in meaning, the larger the dot product of their vectors.
pub trait Embedder: Send + Sync {
    /// Names the model, with what its vectors depend on: vectors of different names are never compared.
    fn model(&self) -> &str;

    /// One vector for each text, in their order, all of one length. A text that is too long may be cut.
    fn embed<'a>(&'a self, texts: &'a [String]) -> Embedding<'a>;
}

/// Texts have no vectors.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{model} made no vectors: {source}")]
pub struct EmbedError {
    /// As [`Embedder::model`].
    pub model: String,
    /// Whether the same may succeed later: an endpoint is down, or busy.
    pub is_retryable: bool,
    pub source: Arc<dyn std::error::Error + Send + Sync>,
}

/// Brings a vector to length 1, so that a dot product is the cosine. A vector without a direction stays 0.
pub fn normalize(vector: &mut [f32]) {
    let length = vector
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt();
    if length.is_normal() {
        for number in vector {
            *number /= length;
        }
    } else {
        vector.fill(0.0);
    }
}
