//! Writes that get on: a client that asks and does not read would keep its connection for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream on which a write that waits fails with [`io::ErrorKind::TimedOut`] once nothing of it was taken for
/// so long. A stream on which there is nothing to write may be idle.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    patience: Duration,
    /// While a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
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
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep(patience)));
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

    const PATIENCE: Duration = Duration::from_secs(30);
    const ROOM: usize = 1_000;

    fn pair() -> (DuplexStream, WriteTimeout<DuplexStream>) {
        let (client, server) = duplex(ROOM);
        (client, WriteTimeout::new(server, PATIENCE))
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_written_to_who_does_not_read() {
        let (_client, mut server) = pair();
        server.write_all(&[7; ROOM]).await.unwrap();
        let started = tokio::time::Instant::now();
        let failed = server.write_all(&[7]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_and_who_is_told_nothing_are_waited_for() {
        let (mut client, mut server) = pair();
        let reading = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(PATIENCE.mul_f32(0.9)).await;
                client.read_exact(&mut [0; ROOM]).await.unwrap();
            }
            client
        });
        server.write_all(&[7; ROOM * 5]).await.unwrap();
        let client = reading.await.unwrap();
        tokio::time::sleep(PATIENCE * 10).await;
        server.write_all(&[7]).await.unwrap();
        drop(client);
    }
}
