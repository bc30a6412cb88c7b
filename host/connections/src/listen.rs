//! Listens for connections.

use std::io;
use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs, lookup_host};

/// Most connections that wait to be accepted, where the system allows as many (`net.core.somaxconn`). A crowd of clients
/// connects faster than connections are accepted; beyond this number their connections are reset or stall. The default
/// of `TcpListener::bind` is 128.
const WAITING_CONNECTIONS: u32 = 4096;

/// Listens at the first of the addresses at which it can.
///
/// # Errors
/// The address names no host, or it cannot be listened at.
pub async fn listen(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the address names no host");
    for address in lookup_host(address).await? {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // Connections of an earlier process may linger at the address.
        socket.set_reuseaddr(true)?;
        let listening = socket.bind(address);
        match listening.and_then(|()| socket.listen(WAITING_CONNECTIONS)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_crowd_connects_before_any_is_accepted() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let crowd = allowed.trim().parse().unwrap_or(usize::MAX).min(400);
        let mut clients = Vec::new();
        for _ in 0..crowd {
            // One that the system drops is tried again by the client's system after a second.
            let connected = timeout(Duration::from_millis(900), TcpStream::connect(address)).await;
            clients.push(connected.expect("a place").unwrap());
        }
        drop(listener);
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error() {
        let first = listen("127.0.0.1:0").await.unwrap();
        let second = listen(first.local_addr().unwrap()).await;
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
