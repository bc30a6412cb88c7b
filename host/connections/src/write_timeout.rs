//! A timeout for writes: a client that does not read its response would keep its connection for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail with [`io::ErrorKind::TimedOut`] if the peer takes nothing for `timeout`. A stream
/// without a pending write may be idle for ever.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// The timer of a pending write.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            waiting: None,
        }
    }

    fn in_time(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.in_time(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.in_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const TIMEOUT: Duration = Duration::from_secs(30);
    const BUFFER_BYTES: usize = 1_000;

    fn pair() -> (DuplexStream, WriteTimeout<DuplexStream>) {
        let (client, server) = duplex(BUFFER_BYTES);
        (client, WriteTimeout::new(server, TIMEOUT))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_times_out() {
        let (_client, mut server) = pair();
        server.write_all(&[7; BUFFER_BYTES]).await.unwrap();
        let started = tokio::time::Instant::now();
        let failed = server.write_all(&[7]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_and_an_idle_stream_do_not_time_out() {
        let (mut client, mut server) = pair();
        let reading = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(TIMEOUT.mul_f32(0.9)).await;
                client.read_exact(&mut [0; BUFFER_BYTES]).await.unwrap();
            }
            client
        });
        server.write_all(&[7; BUFFER_BYTES * 5]).await.unwrap();
        let client = reading.await.unwrap();
        tokio::time::sleep(TIMEOUT * 10).await;
        server.write_all(&[7]).await.unwrap();
        drop(client);
    }
}
