//! Tells when a connection has taken an answer to its end, for those who must know whether a client got it.

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body like `body` that calls `taken` when the connection has its last byte. If the client leaves before, `taken` is
/// dropped without a call.
pub fn when_taken(body: Body, taken: impl FnOnce() + Send + 'static) -> Body {
    if body.is_end_stream() {
        taken();
        return body;
    }
    Body::new(TakenBody {
        body,
        taken: Some(Box::new(taken)),
    })
}

/// Body that calls `taken` after its last byte, once.
struct TakenBody {
    body: Body,
    taken: Option<Box<dyn FnOnce() + Send>>,
}

impl HttpBody for TakenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, taken } = self.get_mut();
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        let is_end = match &frame {
            None => true,
            // A body of known length is not asked again after its last piece.
            Some(Ok(_)) => body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if is_end && let Some(taken) = taken.take() {
            taken();
        }
        Poll::Ready(frame)
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
    use axum::body::to_bytes;
    use futures_util::{StreamExt as _, stream};
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted(body: Body) -> (Body, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let taken = count.clone();
        let body = when_taken(body, move || {
            taken.fetch_add(1, Ordering::Relaxed);
        });
        (body, count)
    }

    fn pieces() -> Body {
        Body::from_stream(stream::iter(["a", "b"]).map(Ok::<_, Infallible>))
    }

    #[tokio::test]
    async fn the_end_of_an_answer_is_told_once() {
        for body in [Body::empty(), Body::from("ab"), pieces()] {
            let (body, count) = counted(body);
            to_bytes(body, usize::MAX).await.unwrap();
            assert_eq!(count.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn an_answer_that_was_left_is_not_taken() {
        let (body, count) = counted(pieces());
        let mut pieces = body.into_data_stream();
        assert!(pieces.next().await.is_some());
        drop(pieces);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let (body, count) = counted(Body::from("ab"));
        assert_eq!(body.size_hint().exact(), Some(2));
        drop(body);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
