//! A transport that writes down what another one carries.

use std::fmt;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::Map;

use crate::exchange::{BodyChunk, Exchange, KEPT_HEADERS, canonical};
use crate::side::millis;
use crate::transport::{HttpRequest, HttpResponse, Transport, TransportError};

/// Maximum bytes recorded of a body: twice what the client reads by default. The rest is still
/// passed on, and the recording is marked as cut.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Pieces of a body that are recorded as they came. Of what follows, pieces are gathered until they have [`GATHERED_BYTES`]:
/// a piece of one byte takes forty in memory.
const MAX_CHUNKS: usize = 10_000;
const GATHERED_BYTES: usize = 16 << 10;

type Sink = Arc<Mutex<dyn Write + Send>>;

/// Passes everything through to another transport, and appends one line an exchange to a sink: when
/// its body has ended, or was dropped. No request header is written, so no key either.
#[derive(Clone)]
pub struct RecordingTransport {
    inner: Arc<dyn Transport>,
    sink: Sink,
}

impl RecordingTransport {
    /// Each line is written with one `write_all` and a flush, so that a file opened for appending
    /// stays readable when the process dies.
    pub fn new(inner: Arc<dyn Transport>, sink: impl Write + Send + 'static) -> Self {
        Self {
            inner,
            sink: Arc::new(Mutex::new(sink)),
        }
    }
}

impl fmt::Debug for RecordingTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingTransport")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl Transport for RecordingTransport {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let mut exchange = Exchange {
                method: request.method,
                path: request.path.clone(),
                request: canonical(request.body.as_ref()),
                status: 0,
                headers: Map::new(),
                body: Vec::new(),
                // Until its end is seen.
                cut: true,
            };
            let sent = Instant::now();
            let response = self.inner.send(request).await?;
            exchange.status = response.status;
            for name in KEPT_HEADERS {
                if let Some(value) = response.header(name) {
                    exchange.headers.insert(name.into(), value.into());
                }
            }
            let body = RecordedBody {
                inner: response.body,
                sink: Arc::clone(&self.sink),
                exchange: Some(exchange),
                gathered: BytesMut::new(),
                size: 0,
                last: sent,
            };
            Ok(HttpResponse {
                status: response.status,
                headers: response.headers,
                body: body.boxed(),
            })
        }
        .boxed()
    }
}

struct RecordedBody {
    inner: BoxStream<'static, Result<Bytes, TransportError>>,
    sink: Sink,
    /// `None` once it is written.
    exchange: Option<Exchange>,
    /// The end of the body, behind the pieces of the exchange.
    gathered: BytesMut,
    size: usize,
    last: Instant,
}

impl RecordedBody {
    fn keep(&mut self, bytes: &Bytes) {
        self.size += bytes.len();
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        if self.size > MAX_BODY_BYTES {
            return;
        }
        if exchange.body.len() < MAX_CHUNKS {
            let now = Instant::now();
            exchange.body.push(BodyChunk {
                delay_ms: millis(now.duration_since(self.last)),
                // A copy: a piece may keep the whole buffer that it was read into.
                bytes: Bytes::copy_from_slice(bytes),
            });
            self.last = now;
            return;
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHERED_BYTES {
            self.flush();
        }
    }

    /// Adds what was gathered to the exchange.
    fn flush(&mut self) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        if self.gathered.is_empty() {
            return;
        }
        let now = Instant::now();
        exchange.body.push(BodyChunk {
            delay_ms: millis(now.duration_since(self.last)),
            bytes: self.gathered.split().freeze(),
        });
        self.last = now;
    }

    fn write(&mut self, is_whole: bool) -> io::Result<()> {
        self.flush();
        let Some(mut exchange) = self.exchange.take() else {
            return Ok(());
        };
        exchange.cut = !is_whole || self.size > MAX_BODY_BYTES;
        let mut line = serde_json::to_string(&exchange)?;
        line.push('\n');
        // A writer that panicked half-way leaves a broken line, which the reader names.
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write_all(line.as_bytes())?;
        sink.flush()
    }
}

impl Stream for RecordedBody {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let item = ready!(this.inner.poll_next_unpin(context));
        let written = match &item {
            Some(Ok(bytes)) => {
                this.keep(bytes);
                return Poll::Ready(item);
            }
            Some(Err(_)) => this.write(false),
            None => this.write(true),
        };
        Poll::Ready(match written {
            Ok(()) => item,
            Err(source) => Some(Err(TransportError::Recording { source })),
        })
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        // The body was dropped, so no caller is left that could receive the error.
        if let Err(error) = self.write(false) {
            tracing::warn!(%error, "an exchange with the model endpoint was not recorded");
        }
    }
}
