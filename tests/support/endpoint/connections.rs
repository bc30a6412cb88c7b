//! Counts what is open: connections, and answers under way.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// How many of something are open, how many were at once, and how many ever.
#[derive(Clone, Debug, Default)]
pub(super) struct Gauge(Arc<ConnectionCounts>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    open: AtomicUsize,
    most: AtomicUsize,
    ever: AtomicUsize,
}

impl Gauge {
    pub(super) fn enter(&self) -> CountedConnection {
        let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(open, Ordering::SeqCst);
        self.0.ever.fetch_add(1, Ordering::SeqCst);
        CountedConnection(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.open.load(Ordering::SeqCst)
    }

    pub(super) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    pub(super) fn total(&self) -> usize {
        self.0.ever.load(Ordering::SeqCst)
    }
}

/// Counts as open until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection(Gauge);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A listener whose connections are counted.
#[derive(Debug)]
pub(super) struct CountedListener {
    pub(super) inner: TcpListener,
    pub(super) open: Gauge,
}

impl Listener for CountedListener {
    type Io = CountedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CountedStream, SocketAddr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, address)) => {
                    // Without it small events wait for the client's acknowledgement of the last.
                    let _ = stream.set_nodelay(true);
                    let place = self.open.enter();
                    return (
                        CountedStream {
                            stream,
                            _place: place,
                        },
                        address,
                    );
                }
                // Out of file descriptors, perhaps: some connection will close.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

#[derive(Debug)]
pub(super) struct CountedStream {
    stream: TcpStream,
    _place: CountedConnection,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
