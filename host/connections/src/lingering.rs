//! Closes a connection in two stages: first our half, then, once the client has stopped writing, the rest.
//! If the whole connection closed at once, further bytes of the client would cause a reset, which destroys the
//! response on its way (RFC 9112, 9.6); a client that sends too much would never read its 413.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client may go on writing after its response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes read and dropped in that time.
const LINGER_BYTES: usize = 64 << 20;

/// A stream whose shutdown reads on for a while, so that the client can read its response.
#[derive(Debug)]
pub struct LingeringStream {
    stream: TcpStream,
    /// Set once our half is shut down.
    closing: Option<Closing>,
}

#[derive(Debug)]
struct Closing {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl LingeringStream {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            closing: None,
        }
    }
}

impl AsyncRead for LingeringStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LingeringStream {
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
        let Self { stream, closing } = self.get_mut();
        let closing = match closing {
            Some(closing) => closing,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                closing.insert(Closing {
                    until: Box::pin(sleep(LINGER_TIMEOUT)),
                    bytes: 0,
                })
            }
        };
        let mut piece = [0; 16 << 10];
        while closing.bytes < LINGER_BYTES && closing.until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut piece);
            // The client has closed its half, or is gone.
            if ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)).is_err()
                || buffer.filled().is_empty()
            {
                break;
            }
            closing.bytes += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, LingeringStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), LingeringStream::new(accepted.unwrap().0))
    }

    #[tokio::test]
    async fn a_client_that_still_writes_reads_its_answer() {
        let (mut client, mut server) = pair().await;
        let serving = tokio::spawn(async move {
            server.read_exact(&mut [0; 10]).await.unwrap();
            server.write_all(b"too much").await.unwrap();
            server.shutdown().await.unwrap();
        });
        // More than the buffers between client and server hold.
        client.write_all(&vec![7; 32 << 20]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too much");
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_and_its_body_are_one_write() {
        let (mut client, mut server) = pair().await;
        assert!(server.is_write_vectored());
        let pieces = [io::IoSlice::new(b"head, "), io::IoSlice::new(b"body")];
        assert_eq!(server.write_vectored(&pieces).await.unwrap(), 10);
        let mut answer = [0; 10];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"head, body");
    }

    #[tokio::test]
    async fn closing_waits_only_so_long() {
        let (client, mut server) = pair().await;
        let started = Instant::now();
        server.shutdown().await.unwrap();
        assert!(started.elapsed() < LINGER_TIMEOUT * 10);
        drop(client);
    }
}
