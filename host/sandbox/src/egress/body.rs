//! Bodies on their way through: counted, timed, and cleaned of secrets.

use super::headers::{header_bytes, holds_any, without_secrets};
use super::meter::{HttpMeter, RunningRequest};
use super::send::code;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use sync_wrapper::SyncWrapper;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use toolhold_policy::HttpLimit;
use toolhold_policy::redact::{Redaction, Redactor};
use wasmtime_wasi_http::{Error, WasiBody};

/// A guest's request body on its way out. Trailers are dropped: few servers read them, and they can
/// carry what is forbidden as a header.
pub(super) struct RequestBody {
    // The client wants bodies that are `Sync`; guests' are not.
    body: SyncWrapper<WasiBody>,
    meter: Arc<HttpMeter>,
    /// What `Content-Length` says is still to come.
    announced: Option<u64>,
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
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(self.body.get_mut()).poll_frame(cx));
        Poll::Ready(match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                let taken = self.take(data.len() as u64);
                Some(taken.map(|()| Frame::data(data)))
            }
            Some(Ok(Err(_trailers))) => self.end(),
            Some(Err(error)) => Some(Err(error)),
            None => self.end(),
        })
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
    redaction: Redaction,
    /// Finds the secrets with which the response is refused.
    refused: Redactor,
    refusal: Redaction,
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
