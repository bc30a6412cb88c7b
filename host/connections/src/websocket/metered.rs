//! A stream with a bound on the bytes that are read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// At the bound a read is pending for good and wakes no task, so callers ask [`is_spent`](Self::is_spent) after each poll.
/// An error would keep the library from sending a close frame.
#[derive(Debug)]
pub struct Metered<S> {
    stream: S,
    most: usize,
    left: usize,
}

impl<S> Metered<S> {
    pub fn new(stream: S, most: usize) -> Self {
        Self {
            stream,
            most,
            left: most,
        }
    }

    /// Lets all bytes be read again.
    pub fn refill(&mut self) {
        self.left = self.most;
    }

    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_spent() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len().saturating_sub(before);
        this.left = this.left.saturating_sub(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
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
    use futures_util::FutureExt as _;
    use std::io::IoSlice;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn reads_count_and_vectored_writes_pass_whole_and_uncounted() {
        let (mut peer, stream) = duplex(1_000);
        let mut metered = Metered::new(stream, 5);
        assert!(metered.is_write_vectored());
        let pieces = [IoSlice::new(b"two "), IoSlice::new(b"pieces")];
        assert_eq!(metered.write_vectored(&pieces).await.unwrap(), 10);
        let mut text = [0; 10];
        peer.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"two pieces");
        assert!(!metered.is_spent());
        peer.write_all(b"answer").await.unwrap();
        metered.read_exact(&mut text[..5]).await.unwrap();
        assert!(metered.is_spent());
        assert!(metered.read(&mut text).now_or_never().is_none());
        metered.refill();
        assert_eq!(metered.read(&mut text).await.unwrap(), 1);
    }
}
