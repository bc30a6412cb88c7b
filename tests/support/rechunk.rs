//! A transport whose replies come in other pieces.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use toolhold_model::{HttpRequest, HttpResponse, Transport, TransportError};

/// Bytes: short enough that every event is cut.
const MAX_PIECE: usize = 24;

/// Cuts the bodies of another transport anew, inside of characters and of field names. The same seed cuts the same
/// way.
#[derive(Debug)]
pub struct RechunkedTransport {
    inner: Arc<dyn Transport>,
    seed: u64,
}

impl RechunkedTransport {
    pub fn new(inner: Arc<dyn Transport>, seed: u64) -> Self {
        Self { inner, seed }
    }
}

impl Transport for RechunkedTransport {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let response = self.inner.send(request).await?;
            let pieces: Vec<_> = response.body.collect().await;
            let mut whole = Vec::new();
            let mut failure = None;
            for piece in pieces {
                match piece {
                    Ok(bytes) => whole.extend_from_slice(&bytes),
                    Err(error) => failure = Some(Err(error)),
                }
            }
            let cut = rechunk(&Bytes::from(whole), self.seed);
            Ok(HttpResponse {
                body: stream::iter(cut.into_iter().map(Ok).chain(failure)).boxed(),
                ..response
            })
        }
        .boxed()
    }
}

fn rechunk(whole: &Bytes, seed: u64) -> Vec<Bytes> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut start = 0;
    let mut cut = Vec::new();
    while start < whole.len() {
        let end = whole.len().min(start + random.usize(1..=MAX_PIECE));
        cut.push(whole.slice(start..end));
        start = end;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_come_in_other_pieces() {
        let whole = Bytes::from("data: {\"t\":\"grüße 😀\"}\n\ndata: [DONE]\n\n");
        let mut was_inside_a_character = false;
        for seed in 0..50 {
            let cut = rechunk(&whole, seed);
            assert_eq!(cut.concat(), whole);
            assert_eq!(cut, rechunk(&whole, seed));
            was_inside_a_character |= cut.iter().any(|piece| std::str::from_utf8(piece).is_err());
        }
        assert!(was_inside_a_character);
    }
}
