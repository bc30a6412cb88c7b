//! A timeout for writes: a client that does not read its response would keep its connection for ever.

use std::pin::Pin;
use std::time::Duration;
use tokio_io_timeout::TimeoutWriter;

/// A stream whose writes fail with [`TimedOut`](std::io::ErrorKind::TimedOut) if the peer takes nothing for
/// `timeout`. A stream without a pending write may be idle for ever.
pub fn write_timeout<S>(stream: S, timeout: Duration) -> Pin<Box<TimeoutWriter<S>>>
where
    S: tokio::io::AsyncWrite,
{
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(timeout));
    Box::pin(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, DuplexStream, duplex};

    const TIMEOUT: Duration = Duration::from_secs(30);
    const BUFFER_BYTES: usize = 1_000;

    fn pair() -> (DuplexStream, Pin<Box<TimeoutWriter<DuplexStream>>>) {
        let (client, server) = duplex(BUFFER_BYTES);
        (client, write_timeout(server, TIMEOUT))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_times_out() {
        let (_client, mut server) = pair();
        server.write_all(&[7; BUFFER_BYTES]).await.unwrap();
        let started = tokio::time::Instant::now();
        let failed = server.write_all(&[7]).await.unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_vectored_write_times_out_as_others_do() {
        let (_client, mut server) = pair();
        assert!(server.is_write_vectored());
        let pieces = [IoSlice::new(&[7; BUFFER_BYTES]), IoSlice::new(&[8])];
        let written = server.write_vectored(&pieces).await.unwrap();
        assert_eq!(written, BUFFER_BYTES);
        let failed = server.write_vectored(&pieces).await.unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut);
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
