//! Bodies on their way through: counted, timed, and cleaned of secrets.

use super::headers::{header_bytes, holds_any, without_secrets};
use super::meter::{HttpMeter, RunningRequest};
use super::send::code;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use sync_wrapper::SyncWrapper;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use toolhold_policy::HttpLimit;
use toolhold_policy::redact::{Redactor, StreamRedaction};
use wasmtime_wasi_http::{Error, WasiBody};

/// Bytes from which on a piece of a request body goes out at once.
const WHOLE_PIECE: usize = 16 << 10;
/// Time in which at most one smaller piece goes out: each costs a write and, in chunked coding, more bytes than a small piece
/// has.
const BETWEEN_PIECES: Duration = Duration::from_millis(5);
/// Pieces of a guest that are looked at before other tasks have their turn.
const PIECES_IN_A_ROW: u32 = 128;

/// A guest's request body on its way out: empty pieces are left out, small ones are gathered. Trailers are dropped: few
/// servers read them, and they can carry what is forbidden as a header.
pub(super) struct RequestBody {
    // The client wants bodies that are `Sync`; guests' are not.
    body: SyncWrapper<WasiBody>,
    meter: Arc<HttpMeter>,
    /// What `Content-Length` says is still to come.
    announced: Option<u64>,
    gathered: BytesMut,
    /// Whether the guest has finished.
    is_over: bool,
    /// Ends when the next small piece may go out; absent before the first piece.
    pause: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    /// `headers` are the request's: a body of another length than they say is an error, not a
    /// request whose end the server has to guess.
    pub fn new(body: WasiBody, headers: &HeaderMap, meter: Arc<HttpMeter>) -> Self {
        let announced = headers.get(header::CONTENT_LENGTH);
        Self {
            body: SyncWrapper::new(body),
            meter,
            announced: announced.and_then(|value| value.to_str().ok()?.parse().ok()),
            gathered: BytesMut::new(),
            is_over: false,
            pause: None,
        }
    }

    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        if let Some(left) = &mut self.announced {
            *left = left
                .checked_sub(bytes)
                .ok_or(Error::HttpRequestBodySize(None))?;
        }
        self.meter.send(bytes)
    }

    fn end(&self) -> Option<Result<Frame<Bytes>, Error>> {
        let missing = self.announced.is_some_and(|left| left > 0);
        missing.then_some(Err(Error::HttpRequestBodySize(None)))
    }

    /// Reads pieces of the guest until [`WHOLE_PIECE`] bytes are gathered or the guest has written no more.
    ///
    /// # Errors
    /// The body is longer than its `Content-Length` or than the limit, or the guest's stream failed.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        for _ in 0..PIECES_IN_A_ROW {
            if self.is_over || self.gathered.len() >= WHOLE_PIECE {
                return Ok(());
            }
            let Poll::Ready(frame) = Pin::new(self.body.get_mut()).poll_frame(cx) else {
                return Ok(());
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    self.take(data.len() as u64)?;
                    if self.gathered.is_empty() {
                        // Without a copy, unless the guest's host keeps it as well.
                        self.gathered = BytesMut::from(data);
                    } else {
                        self.gathered.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(error),
                // The guest did not end the body; its call did.
                None if self.meter.is_over() => return Err(Error::HttpProtocolError),
                // Trailers are the end, too.
                Some(Ok(Err(_))) | None => self.is_over = true,
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Whether what was gathered goes out now.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_over || self.gathered.len() >= WHOLE_PIECE {
            return true;
        }
        let pause = self.pause.as_mut();
        pause.is_none_or(|pause| pause.as_mut().poll(cx).is_ready())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Err(error) = this.gather(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        if this.gathered.is_empty() {
            return if this.is_over {
                Poll::Ready(this.end())
            } else {
                Poll::Pending
            };
        }
        if !this.is_due(cx) {
            return Poll::Pending;
        }
        this.pause = Some(Box::pin(sleep(BETWEEN_PIECES)));
        let piece = mem::take(&mut this.gathered).freeze();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// How long a response may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseTimes {
    /// When the request as a whole must be over. The call may be over before.
    pub until: Instant,
    /// The limit that `until` comes from.
    pub limit: Duration,
    /// How long the guest wants to wait between two pieces of the body.
    pub between: Option<Duration>,
}

/// A response body on its way in.
pub(super) struct ResponseBody {
    /// Gone at the end, and with it the connection, unless it can be used again.
    open: Option<(reqwest::Body, RunningRequest)>,
    meter: Arc<HttpMeter>,
    redactor: Redactor,
    redaction: StreamRedaction,
    /// Finds the secrets with which the response is refused.
    refused: Redactor,
    refusal: StreamRedaction,
    /// For the names of errors.
    is_tls: bool,
    /// Came while bytes before them were still held back.
    trailers: Option<HeaderMap>,
    patience: ResponseTimes,
    until: Pin<Box<Sleep>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    pub fn new(
        body: reqwest::Body,
        running: RunningRequest,
        meter: Arc<HttpMeter>,
        (redactor, refused): (&Redactor, &Redactor),
        patience: ResponseTimes,
        is_tls: bool,
    ) -> Self {
        Self {
            open: Some((body, running)),
            meter,
            redaction: redactor.stream(),
            redactor: redactor.clone(),
            refusal: refused.stream(),
            refused: refused.clone(),
            is_tls,
            trailers: None,
            until: Box::pin(sleep_until(patience.until)),
            pause: None,
            patience,
        }
    }

    /// Out of time, by the host's measure or by the guest's own.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.meter.fire(HttpLimit::Time(self.patience.limit)));
        }
        let Some(between) = self.patience.between else {
            return Poll::Pending;
        };
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(between)));
        ready!(pause.as_mut().poll(cx));
        Poll::Ready(Error::ConnectionReadTimeout)
    }

    /// What can be passed on of a frame; nothing, if all of it is held back.
    fn accept(&mut self, frame: Frame<Bytes>) -> Result<Option<Frame<Bytes>>, Error> {
        match frame.into_data() {
            Ok(data) => {
                self.meter.receive(data.len() as u64)?;
                if !self.refused.is_empty() && self.refusal.push(&data).redactions > 0 {
                    return Err(self.meter.reflected());
                }
                if self.redactor.is_empty() {
                    return Ok(Some(Frame::data(data)));
                }
                let cleaned = self.redaction.push(&data);
                self.meter.redacted(cleaned.redactions);
                Ok((!cleaned.bytes.is_empty()).then(|| Frame::data(cleaned.bytes.into())))
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else {
                    return Ok(None);
                };
                self.meter.receive(header_bytes(&trailers))?;
                if holds_any(&trailers, &self.refused) {
                    return Err(self.meter.reflected());
                }
                self.trailers = Some(without_secrets(trailers, &self.redactor, &self.meter));
                Ok(None)
            }
        }
    }

    /// What is left once the server has finished.
    fn rest(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        if self.refusal.finish().redactions > 0 {
            self.fail();
            return Some(Err(self.meter.reflected()));
        }
        let cleaned = self.redaction.finish();
        self.meter.redacted(cleaned.redactions);
        if cleaned.bytes.is_empty() {
            return self.trailers.take().map(Frame::trailers).map(Ok);
        }
        Some(Ok(Frame::data(cleaned.bytes.into())))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        loop {
            let Some((body, _)) = &mut this.open else {
                return Poll::Ready(this.rest());
            };
            let next = Pin::new(body).poll_frame(cx);
            // After the poll, so that the wakers are set; before the data, so that a server that
            // never stops sending is out of time too.
            if let Poll::Ready(error) = this.poll_patience(cx) {
                this.fail();
                return Poll::Ready(Some(Err(error)));
            }
            let accepted = match ready!(next) {
                None => {
                    this.open = None;
                    continue;
                }
                Some(frame) => frame
                    .map_err(|error| code(&error, this.is_tls))
                    .and_then(|frame| this.accept(frame)),
            };
            this.pause = None;
            match accepted {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) => {}
                Err(error) => {
                    this.fail();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl ResponseBody {
    /// Closes the connection and forgets what was held back: it may be half a secret.
    fn fail(&mut self) {
        self.open = None;
        self.trailers = None;
        self.redaction = Redactor::default().stream();
        self.refusal = Redactor::default().stream();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::CallDescriptors;
    use http_body_util::{BodyExt as _, StreamBody};
    use std::convert::Infallible;
    use toolhold_policy::HttpLimits;

    /// A body of these pieces. Before each it waits the given milliseconds.
    fn body(pieces: Vec<(u64, Bytes)>, length: Option<&str>) -> RequestBody {
        let pieces = futures_util::stream::unfold(pieces.into_iter(), async |mut left| {
            let (wait, piece) = left.next()?;
            if wait > 0 {
                sleep(Duration::from_millis(wait)).await;
            }
            Some((Ok::<_, Infallible>(Frame::data(piece)), left))
        });
        let body = StreamBody::new(Box::pin(pieces)).map_err(|never| match never {});
        let mut headers = HeaderMap::new();
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
        }
        let meter = HttpMeter::new(HttpLimits::default(), CallDescriptors::at_most(8));
        RequestBody::new(body.boxed_unsync(), &headers, Arc::new(meter))
    }

    async fn sent(mut body: RequestBody) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            sizes.push(frame.unwrap().into_data().unwrap().len());
        }
        sizes
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_out_is_bounded_in_pieces_and_not_in_bytes_alone() {
        let byte = || Bytes::from_static(b"x");
        let empty = vec![(0, Bytes::new()); 100_000];
        assert!(sent(body(empty, None)).await.is_empty());
        let bytes = sent(body(vec![(0, byte()); 100_000], None)).await;
        assert!(bytes.len() < 10, "{}", bytes.len());
        assert_eq!(bytes.iter().sum::<usize>(), 100_000);
        // One a millisecond: one piece in five.
        let drops = sent(body(vec![(1, byte()); 1_000], None)).await;
        assert!((100..=210).contains(&drops.len()), "{}", drops.len());
        // What comes now and then goes out at once, and so does what is large.
        assert_eq!(sent(body(vec![(50, byte()); 4], None)).await, [1; 4]);
        let large = Bytes::from(vec![0; 100_000]);
        assert_eq!(sent(body(vec![(0, large); 3], None)).await, [100_000; 3]);
    }

    /// Its end is the store's, not the guest's.
    #[tokio::test]
    async fn a_body_whose_call_is_over_is_no_whole_one() {
        let cut = body(vec![(0, Bytes::from_static(b"abc"))], None);
        cut.meter.end();
        let error = cut.collect().await.map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::HttpProtocolError), "{error:?}");
    }

    #[tokio::test]
    async fn a_body_is_as_long_as_it_says() {
        let of = |length: &str| body(vec![(0, Bytes::from_static(b"abc"))], Some(length));
        assert_eq!(sent(of("3")).await, [3]);
        for length in ["2", "4"] {
            let collected = of(length).collect().await;
            let error = collected.map(|_| ()).unwrap_err();
            assert!(
                matches!(error, Error::HttpRequestBodySize(None)),
                "{error:?}"
            );
        }
    }
}
