//! For `host/fuzz` alone: what reads an endpoint's bytes, without an endpoint. Not part of the public
//! API.

use crate::decode::Decoder;
use crate::error::ModelError;
use crate::sse::SseDecoder;
use toolhold_protocol::completion::{Completion, Delta};

/// The events in a stream that arrives in these chunks, as names and data; `None` where one has more
/// than `limit` bytes.
pub fn events<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Option<Vec<(Option<String>, String)>> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(decoder.push(chunk).ok()?);
    }
    events.extend(decoder.finish());
    let pairs = events.into_iter().map(|event| (event.name, event.data));
    Some(pairs.collect())
}

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
