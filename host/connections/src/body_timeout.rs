//! A timeout for bodies of requests: a slow one would hold its connection, and the memory of what was read,
//! for as long as its client likes.

use crate::settings::BodyPace;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

/// Why reading a body failed: it came more slowly than its [`BodyPace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the body of the request came too slowly")]
pub struct BodyTooSlow;

/// Whether `error` or one of its causes is [`BodyTooSlow`]. The response is then 408 (RFC 9110, 15.5.9).
pub fn is_too_slow(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<BodyTooSlow>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Middleware that bounds the body of a request, from the first time that it is read.
pub async fn limit_body_time(
    State(pace): State<BodyPace>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let paced = |body| {
        Body::new(PacedBody {
            body,
            pace,
            bytes: 0,
            waiting: None,
        })
    };
    next.run(request.map(paced)).await
}

struct PacedBody {
    body: Body,
    pace: BodyPace,
    bytes: u64,
    /// When the body was first waited for, and the timer that ends the wait.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self {
            body,
            pace,
            bytes,
            waiting,
        } = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                *bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            return Poll::Ready(frame);
        }
        let (begun, until) = waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now)))
        });
        let earned = *bytes / u64::from(pace.bytes_per_second.max(1));
        let due = *begun + pace.grace + Duration::from_secs(earned);
        if until.deadline() != due {
            until.as_mut().reset(due);
        }
        ready!(until.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(BodyTooSlow))))
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
    use futures_util::stream;

    const PACE: BodyPace = BodyPace {
        grace: Duration::from_secs(30),
        bytes_per_second: 100,
    };

    /// Reads a body of `pieces` chunks of `bytes` each, `every` apart.
    async fn read(pieces: u32, bytes: usize, every: Duration) -> Result<Bytes, axum::Error> {
        let pieces = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(every).await;
            (sent < pieces).then(|| (Ok::<_, BodyTooSlow>(vec![b'x'; bytes]), sent + 1))
        });
        let paced = PacedBody {
            body: Body::from_stream(pieces),
            pace: PACE,
            bytes: 0,
            waiting: None,
        };
        to_bytes(Body::new(paced), usize::MAX).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_the_time_that_its_size_takes() {
        for (pieces, bytes, seconds, is_read) in [
            (0, 0, 1, true),
            (1, 1, 14, true),
            // Over the grace, and at the pace.
            (100, 1_000, 10, true),
            // A byte now and then is no progress.
            (100, 1, 10, false),
            (1, 1, 40, false),
        ] {
            let read = read(pieces, bytes, Duration::from_secs(seconds)).await;
            let case = format!("{pieces} × {bytes} every {seconds} s");
            match read {
                Ok(read) => assert!(is_read && read.len() == pieces as usize * bytes, "{case}"),
                Err(error) => assert!(!is_read && is_too_slow(&error), "{case}"),
            }
        }
    }
}
