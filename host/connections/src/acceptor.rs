//! Accepts connections, also while the process has no descriptor left.
//!
//! A client that connects then would wait without an answer for as long as that lasts. So one descriptor is kept in
//! reserve: it is closed for the client's connection, which is answered and closed, and opened again.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use toolhold_admission::Seldom;

/// Wait before the next `accept` after one failed, for example because the process has no file
/// descriptor left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Longest time in which a connection is accepted with the spare descriptor. One is there, or its client is gone.
const SPARE_TIMEOUT: Duration = Duration::from_millis(10);
/// How often it is logged that connections cannot be accepted.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// A connection that was accepted.
#[derive(Debug)]
pub enum NextConnection {
    Ordinary(TcpStream, SocketAddr),
    /// Connection with the spare descriptor. It has to be closed before the next one is accepted.
    OnSpare(TcpStream),
}

/// A listener, and a descriptor in reserve.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// Absent while the process has none left for it.
    spare: Option<File>,
    failed: Seldom,
}

impl Acceptor {
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            spare: spare(),
            failed: Seldom::every(LOG_PERIOD),
        }
    }

    /// Waits for a connection.
    pub async fn accept(&mut self) -> NextConnection {
        loop {
            if self.spare.is_none() {
                self.spare = spare();
            }
            let error = match self.listener.accept().await {
                Ok((stream, peer)) => return NextConnection::Ordinary(stream, peer),
                Err(error) => error,
            };
            if let Some(failures) = self.failed.occurs() {
                tracing::warn!(%error, failures, "connections could not be accepted");
            }
            if is_for_want_of_descriptors(&error)
                && let Some(spare) = self.spare.take()
            {
                drop(spare);
                let accepted = timeout(SPARE_TIMEOUT, self.listener.accept()).await;
                if let Ok(Ok((stream, _))) = accepted {
                    return NextConnection::OnSpare(stream);
                }
            }
            sleep(ACCEPT_RETRY_DELAY).await;
        }
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_for_want_of_descriptors(error: &io::Error) -> bool {
    let of = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    of(Errno::MFILE) || of(Errno::NFILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_client_is_accepted_while_the_process_has_no_descriptor_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::new(listener);
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        // Each test is a process of its own. All numbers below the limit are taken.
        let taken: Vec<File> = (0..64).filter_map(|_| spare()).collect();
        let highest = taken
            .iter()
            .map(std::os::fd::AsRawFd::as_raw_fd)
            .max()
            .unwrap();
        let before = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: Some(u64::try_from(highest).unwrap() + 1),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, most).unwrap();
        for client in &mut clients[..2] {
            let NextConnection::OnSpare(mut stream) = acceptor.accept().await else {
                panic!("there is a descriptor");
            };
            stream.write_all(b"busy").await.unwrap();
            drop(stream);
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "busy");
        }
        drop(taken);
        let accepted = acceptor.accept().await;
        assert!(matches!(accepted, NextConnection::Ordinary(..)));
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
