//! Vectors from a table of weights: the mean of the vectors of a text's tokens.
//!
//! No network and no processor of its own is needed, and a text costs microseconds. Such vectors know which words are alike
//! and nothing of their order. PyPI's `wordllama` has weights of this form: a tensor of one row for each token, and the
//! tokenizer.

use crate::embed::{EmbedError, Embedder, Embedding};
use half::f16;
use half::slice::HalfFloatSliceExt as _;
use kitoken::convert::ConversionError;
use kitoken::{Definition, EncodeError, Kitoken, Processing};
use safetensors::{Dtype, SafeTensors};
use std::sync::Arc;
use std::{fmt, panic};
use toolhold_admission::WorkKind;
use toolhold_json::hex::sha256;

/// Most numbers of a vector: what models of this kind have, several times over.
const MAX_DIMENSIONS: usize = 4_096;

/// Vectors of texts, which documents and searches need.
const VECTORS: WorkKind = WorkKind::new("vectors of texts", 16);

/// Weights or a tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StaticModelError {
    #[error("the weights are not of the form safetensors: {0}")]
    Weights(#[source] safetensors::SafeTensorError),
    #[error("the weights have {0} tensors, and a static model has one")]
    Tensors(usize),
    #[error(
        "the tensor has the form {shape:?} of {dtype:?}; a static model has one row for each token, of at most \
         {MAX_DIMENSIONS} numbers of F16, BF16 or F32"
    )]
    Form { shape: Vec<usize>, dtype: Dtype },
    #[error("the tokenizer cannot be read: {0}")]
    Tokenizer(#[source] ConversionError),
    #[error(
        "the tokenizer cannot be read: it has no tokens beside special ones, or values that no tokenizer has"
    )]
    Unusual,
    #[error("the tokenizer has a token of the number {id}, and the weights have {rows} rows")]
    Tokens { id: u32, rows: usize },
}

/// A model whose vectors are means of rows of a table.
#[derive(Clone)]
pub struct StaticModel(Arc<WeightTable>);

struct WeightTable {
    name: String,
    tokenizer: Kitoken,
    dimensions: usize,
    /// A row for each token.
    rows: Vec<f16>,
}

impl StaticModel {
    /// The model of `weights`, a file of the form safetensors, and of `tokenizer`, a `tokenizer.json`.
    ///
    /// # Errors
    /// They are of another form, or do not belong together.
    pub fn new(weights: &[u8], tokenizer: &[u8]) -> Result<Self, StaticModelError> {
        let tensors = SafeTensors::deserialize(weights).map_err(StaticModelError::Weights)?;
        let tensors = tensors.tensors();
        let [(_, tensor)] = tensors.as_slice() else {
            return Err(StaticModelError::Tensors(tensors.len()));
        };
        let form = || StaticModelError::Form {
            shape: tensor.shape().to_vec(),
            dtype: tensor.dtype(),
        };
        let &[count, dimensions] = tensor.shape() else {
            return Err(form());
        };
        if count == 0 || !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(form());
        }
        let rows = numbers(tensor.dtype(), tensor.data()).ok_or_else(form)?;
        // kitoken panics at a file without tokens beside the special ones, or with a score that is no number.
        let read = panic::catch_unwind(|| read_tokenizer(tokenizer, count))
            .unwrap_or(Err(StaticModelError::Unusual))?;
        Ok(Self(Arc::new(WeightTable {
            name: format!(
                "static {} {}",
                &sha256(weights)[..16],
                &sha256(tokenizer)[..16]
            ),
            tokenizer: read,
            dimensions,
            rows,
        })))
    }

    /// Numbers of each vector.
    pub fn dimensions(&self) -> usize {
        self.0.dimensions
    }
}

/// Reads a `tokenizer.json`. The number of each token has to be below `rows`.
fn read_tokenizer(json: &[u8], rows: usize) -> Result<Kitoken, StaticModelError> {
    let mut definition =
        Definition::from_tokenizers_slice(json).map_err(StaticModelError::Tokenizer)?;
    // A text counts as a whole, and nothing is added to it.
    let processing = &mut definition.config.processing;
    processing.retain(|step| !matches!(step, Processing::Pad { .. } | Processing::Truncate { .. }));
    let ids = definition.model.vocab().iter().map(|token| token.id);
    let special = definition.specials.iter().map(|token| token.id);
    let largest = ids.chain(special).max();
    if let Some(id) = largest.filter(|id| *id as usize >= rows) {
        return Err(StaticModelError::Tokens { id, rows });
    }
    Kitoken::from_definition(definition).map_err(|error| StaticModelError::Tokenizer(error.into()))
}

impl WeightTable {
    fn vector(&self, text: &str) -> Result<Vec<f32>, EncodeError> {
        // What looks like a special token in a text is text.
        let ids = self.tokenizer.encode(text, false)?;
        let mut sums = vec![0.0; self.dimensions];
        let mut row = vec![0.0; self.dimensions];
        for id in ids {
            let from = id as usize * self.dimensions;
            if let Some(numbers) = self.rows.get(from..from + self.dimensions) {
                numbers.convert_to_f32_slice(&mut row);
                for (sum, number) in sums.iter_mut().zip(&row) {
                    *sum += number;
                }
            }
        }
        // The mean has the direction of the sum, and only that counts.
        Ok(sums)
    }
}

fn numbers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f16>> {
    let pairs = bytes.chunks_exact(2).map(|it| [it[0], it[1]]);
    match dtype {
        Dtype::F16 => Some(pairs.map(f16::from_le_bytes).collect()),
        Dtype::BF16 => {
            let wide = pairs.map(|it| half::bf16::from_le_bytes(it).to_f32());
            Some(wide.map(f16::from_f32).collect())
        }
        Dtype::F32 => {
            let words = bytes.chunks_exact(4);
            let wide = words.map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]));
            Some(wide.map(f16::from_f32).collect())
        }
        _ => None,
    }
}

impl Embedder for StaticModel {
    fn model(&self) -> &str {
        &self.0.name
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> Embedding<'a> {
        let (model, texts) = (self.0.clone(), texts.to_vec());
        Box::pin(async move {
            let failed = |source: Arc<dyn std::error::Error + Send + Sync>| EmbedError {
                model: self.0.name.clone(),
                is_retryable: false,
                source,
            };
            // A long text is milliseconds of work: not on a thread that serves others.
            let work = move || {
                texts
                    .iter()
                    .map(|text| model.vector(text))
                    .collect::<Result<Vec<_>, _>>()
            };
            match VECTORS.run(None, work).await {
                Ok(Ok(vectors)) => Ok(vectors),
                Ok(Err(error)) => Err(failed(Arc::new(error))),
                Err(error) => Err(failed(Arc::new(error))),
            }
        })
    }
}

impl fmt::Debug for StaticModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticModel")
            .field("name", &self.0.name)
            .field("dimensions", &self.0.dimensions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    const TOKENIZER: &str = r###"{"version":"1.0","truncation":{"direction":"Right","max_length":1,"strategy":"LongestFirst",
        "stride":0},"padding":{"strategy":{"Fixed":9},"direction":"Right","pad_to_multiple_of":null,"pad_id":3,
        "pad_type_id":0,"pad_token":"tax"},"added_tokens":[{"id":0,"content":"?",
    "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,
        "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
        "model":{"type":"WordPiece","vocab":{"?":0,"cat":1,"dog":2,"tax":3},"unk_token":"?",
        "continuing_subword_prefix":"##","max_input_chars_per_word":100}}"###;

    fn weights(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
        let tensor = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        safetensors::serialize([("embedding", tensor)], None).unwrap()
    }

    /// Rows of `?`, cat, dog and tax.
    const ROWS: [f32; 8] = [0.0, 0.0, 1.0, 0.0, 0.5, 0.5, 0.0, 1.0];

    #[tokio::test]
    async fn a_text_has_the_direction_of_its_tokens() {
        let narrow: Vec<u8> = ROWS
            .iter()
            .flat_map(|it| f16::from_f32(*it).to_le_bytes())
            .collect();
        let brain: Vec<u8> = ROWS
            .iter()
            .flat_map(|it| half::bf16::from_f32(*it).to_le_bytes())
            .collect();
        let wide: Vec<u8> = ROWS.iter().flat_map(|it| it.to_le_bytes()).collect();
        for (dtype, bytes) in [
            (Dtype::F16, narrow),
            (Dtype::BF16, brain),
            (Dtype::F32, wide),
        ] {
            let model =
                StaticModel::new(&weights(dtype, &[4, 2], &bytes), TOKENIZER.as_bytes()).unwrap();
            assert_eq!(model.dimensions(), 2);
            let texts = [
                "cat dog".to_owned(),
                "tax tax unknown".into(),
                String::new(),
            ];
            let vectors = model.embed(&texts).await.unwrap();
            assert_eq!(vectors, [[1.5, 0.5], [0.0, 2.0], [0.0, 0.0]], "{dtype:?}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let bytes: Vec<u8> = ROWS.iter().flat_map(|it| it.to_le_bytes()).collect();
        let tokenizer = TOKENIZER.as_bytes();
        let refused = |weights: &[u8], tokenizer: &[u8]| {
            StaticModel::new(weights, tokenizer)
                .unwrap_err()
                .to_string()
        };
        let good = weights(Dtype::F32, &[4, 2], &bytes);
        for cut in [0, 8, 40, good.len() - 1] {
            assert!(refused(&good[..cut], tokenizer).contains("safetensors"));
        }
        assert!(refused(&good, b"{}").contains("tokenizer"));
        let special_alone = TOKENIZER.replace(r#","cat":1,"dog":2,"tax":3"#, "");
        assert!(refused(&good, special_alone.as_bytes()).contains("beside special ones"));
        assert!(refused(&weights(Dtype::F32, &[2, 4], &bytes), tokenizer).contains("2 rows"));
        for (dtype, shape) in [
            (Dtype::F32, &[8][..]),
            (Dtype::F32, &[4, 2, 1]),
            (Dtype::I32, &[4, 2]),
        ] {
            assert!(refused(&weights(dtype, shape, &bytes), tokenizer).contains("form"));
        }
        assert!(refused(&weights(Dtype::F32, &[0, 2], &[]), tokenizer).contains("form"));
        let tensor = || TensorView::new(Dtype::F32, vec![4, 2], &bytes).unwrap();
        let two = safetensors::serialize([("a", tensor()), ("b", tensor())], None).unwrap();
        assert!(refused(&two, tokenizer).contains("2 tensors"));
    }
}
