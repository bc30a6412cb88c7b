//! A response's body that keeps its request under way until all of it was sent.

use crate::places::Busy;
use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

pub struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl BusyBody {
    pub fn wrap(body: Body, busy: Busy) -> Body {
        Body::new(Self { body, _busy: busy })
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
