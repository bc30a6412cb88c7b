//! A body in pieces: the connection is given a frame of any size bit by bit, so that what it has is what it is about to
//! write.

use axum::body::Body;
use hyper::body::{Body as HttpBody, Buf as _, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes that the connection is given at a time. It asks for more when it has room, so its own memory is bounded, and
/// the memory of the inner body counts as unsent until then.
pub const PIECE_BYTES: usize = 64 << 10;

/// A body whose frames have at most [`PIECE_BYTES`].
#[derive(Debug)]
pub struct PiecedBody {
    body: Body,
    /// The part of the last frame that the connection has not taken.
    rest: Bytes,
}

impl PiecedBody {
    pub fn new(body: Body) -> Self {
        Self {
            body,
            rest: Bytes::new(),
        }
    }
}

impl HttpBody for PiecedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, rest } = self.get_mut();
        if rest.is_empty() {
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > PIECE_BYTES => *rest = data,
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        // A copy: a part of the whole would keep all of it in memory until the connection has written it.
        let piece = Bytes::copy_from_slice(&rest[..rest.len().min(PIECE_BYTES)]);
        rest.advance(piece.len());
        if rest.is_empty() {
            // What was advanced to its end still holds the whole.
            *rest = Bytes::new();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
