//! For `host/fuzz` alone: what reads an endpoint's bytes, without an endpoint. Not part of the public
//! API.

use crate::decode::Decoder;
use crate::error::ModelError;
use toolhold_protocol::completion::{Completion, Delta};

/// The answer that arrives in these chunks, and the pieces that were shown on the way.
pub fn completion<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
    content_type: Option<&str>,
) -> (Vec<Delta>, Result<Completion, ModelError>) {
    const URL: &str = "http://localhost/v1/chat/completions";
    let mut deltas = Vec::new();
    let mut emit = |delta| deltas.push(delta);
    let mut decoder = Decoder::new(limit, content_type);
    for chunk in chunks {
        if decoder.is_done() {
            break;
        }
        if let Err(error) = decoder.push(chunk, URL, &mut emit) {
            return (deltas, Err(error));
        }
    }
    let completion = decoder.finish(URL, &mut emit);
    (deltas, completion)
}
