//! Embeddings: texts as vectors, over `/v1/embeddings`.

use serde_json::{Value, json};

use crate::client::OpenAiModel;
use crate::error::ModelError;
use crate::error_body::unreadable;
use crate::model::Model as _;
use crate::transport::HttpRequest;
use crate::usage;
use toolhold_protocol::completion::Usage;

/// Texts of one request: enough to keep a server's batch full, few enough for its limits (TGI's is 32).
const MAX_BATCH_TEXTS: usize = 32;

/// The vectors of some texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One for each text, in the order of the texts; all of one length.
    pub vectors: Vec<Vec<f32>>,
    /// Of all requests together; `None` where one of them was not counted.
    pub usage: Option<Usage>,
}

impl OpenAiModel {
    /// Embeds texts, 32 a request. Each request has the time of a whole answer
    /// ([`Timeouts::total`](crate::client::Timeouts)), and the bytes of one.
    ///
    /// # Errors
    /// As of a completion; and [`ModelError::Decode`] where vectors are missing, of unlike length, or no
    /// numbers. Nothing of what came before is returned then.
    pub async fn embed(&self, texts: &[String]) -> Result<Embeddings, ModelError> {
        let mut all = Embeddings {
            vectors: Vec::with_capacity(texts.len()),
            usage: Some(Usage::default()),
        };
        for batch in texts.chunks(MAX_BATCH_TEXTS) {
            let (vectors, usage) = self.embed_batch(batch).await?;
            all.vectors.extend(vectors);
            all.usage = all.usage.zip(usage).map(|(sum, usage)| Usage {
                prompt_tokens: sum.prompt_tokens.saturating_add(usage.prompt_tokens),
                ..sum
            });
        }
        let length = all.vectors.first().map_or(0, Vec::len);
        if all.vectors.iter().any(|vector| vector.len() != length) {
            return Err(unreadable("vectors of unlike length", &[], None));
        }
        Ok(all)
    }

    async fn embed_batch(
        &self,
        texts: &[String],
    ) -> Result<(Vec<Vec<f32>>, Option<Usage>), ModelError> {
        let body = json!({"model": self.name(), "input": texts, "encoding_format": "float"});
        let request = HttpRequest::post("embeddings", body);
        let answer = self.ask(request, self.timeouts().total).await?;
        let value = self.accepted(&answer)?;
        let error = || unreadable("embeddings", &answer.body, None);
        let vectors = vectors(&value, texts.len()).ok_or_else(error)?;
        Ok((vectors, value.get("usage").and_then(usage::from_wire)))
    }
}

/// One vector for each of `count` texts, in their order; `None` if that is not what is there.
fn vectors(answer: &Value, count: usize) -> Option<Vec<Vec<f32>>> {
    // llama.cpp's own route answers with the bare list.
    let items = answer.get("data").unwrap_or(answer).as_array()?;
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (place, item) in items.iter().enumerate() {
        let index = match item.get("index").and_then(Value::as_u64) {
            Some(index) => usize::try_from(index).ok()?,
            None => place,
        };
        let slot = vectors.get_mut(index)?;
        if slot.replace(vector(item.get("embedding")?)?).is_some() {
            return None;
        }
    }
    vectors.into_iter().collect()
}

fn vector(embedding: &Value) -> Option<Vec<f32>> {
    let numbers = match embedding.as_array()?.as_slice() {
        // A list with one vector for the whole text.
        [Value::Array(only)] => only,
        [Value::Array(_), ..] | [] => return None,
        numbers => numbers,
    };
    numbers.iter().map(number).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors are of single precision, and JSON has none"
)]
fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|number| number as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_find_their_texts_or_are_refused_together() {
        let good = vec![vec![1.0, 2.0], vec![3.0, 4.5]];
        for (answer, expected) in [
            (
                json!({"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [3, 4.5]}]}),
                Some(&good),
            ),
            (
                json!({"data": [{"index": 1, "embedding": [3, 4.5]}, {"index": 0, "embedding": [1, 2]}]}),
                Some(&good),
            ),
            (
                json!([{"embedding": [[1, 2]]}, {"embedding": [[3, 4.5]]}]),
                Some(&good),
            ),
            (json!({"data": [{"index": 0, "embedding": [1, 2]}]}), None),
            (
                json!({"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [2]}]}),
                None,
            ),
            (
                json!({"data": [{"index": 0, "embedding": [1]}, {"index": 7, "embedding": [2]}]}),
                None,
            ),
            (
                json!({"data": [{"embedding": [1, null]}, {"embedding": [1, 2]}]}),
                None,
            ),
            (
                json!({"data": [{"embedding": "AACAPw=="}, {"embedding": []}]}),
                None,
            ),
            (json!({"data": "none"}), None),
        ] {
            assert_eq!(vectors(&answer, 2).as_ref(), expected, "{answer}");
        }
    }
}
