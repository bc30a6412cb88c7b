//! A response's body on its way to the connection: in pieces, and its request is under way until all of it was sent.

use crate::pieces::PiecedBody;
use crate::places::Busy;
use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

pub struct BusyBody {
    body: PiecedBody,
    _busy: Busy,
}

impl BusyBody {
    pub fn wrap(body: Body, busy: Busy) -> Body {
        Body::new(Self {
            body: PiecedBody::new(body),
            _busy: busy,
        })
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::PIECE_BYTES;
    use crate::places::Places;
    use axum::body::to_bytes;
    use futures_util::{StreamExt as _, stream};
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Bytes whose memory is counted.
    struct Counted(Vec<u8>, Arc<AtomicUsize>);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_frame_goes_out_in_pieces_and_leaves_nothing_behind() {
        let place = Places::new(1, 0).enter([127, 0, 0, 1].into()).await;
        let place = place.unwrap();
        let kept = Arc::new(AtomicUsize::new(0));
        let frame = |bytes: usize| {
            kept.fetch_add(1, Ordering::Relaxed);
            Bytes::from_owner(Counted(vec![7; bytes], kept.clone()))
        };
        let frames = [frame(PIECE_BYTES), frame(3 * PIECE_BYTES + 5)].map(Ok::<_, Infallible>);
        // As a stream of events that has no more for now.
        let body = Body::from_stream(stream::iter(frames).chain(stream::pending()));
        let mut pieces = BusyBody::wrap(body, place.busy()).into_data_stream();
        let mut sizes = Vec::new();
        for _ in 0..5 {
            sizes.push(pieces.next().await.unwrap().unwrap().len());
        }
        assert_eq!(
            sizes,
            [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 5]
        );
        assert_eq!(kept.load(Ordering::Relaxed), 0);

        let whole = BusyBody::wrap(Body::from(vec![1; 200_000]), place.busy());
        assert_eq!(whole.size_hint().exact(), Some(200_000));
        assert_eq!(to_bytes(whole, usize::MAX).await.unwrap().len(), 200_000);
    }
}
