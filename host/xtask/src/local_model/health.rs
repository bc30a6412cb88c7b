//! `GET /health` of a llama.cpp server: 503 while the weights load, then 200.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A loaded server answers within milliseconds even while it computes.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

pub fn healthy(port: u16) -> bool {
    ask(port).is_ok_and(|reply| reply.starts_with(b"HTTP/1.1 200"))
}

fn ask(port: u16) -> std::io::Result<[u8; 12]> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    stream.set_write_timeout(Some(HEALTH_TIMEOUT))?;
    write!(
        stream,
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answering(reply: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(reply.as_bytes()).unwrap();
        });
        port
    }

    #[test]
    fn only_a_200_is_healthy() {
        assert!(healthy(answering("HTTP/1.1 200 OK\r\n\r\n{}")));
        assert!(!healthy(answering(
            "HTTP/1.1 503 Service Unavailable\r\n\r\n"
        )));
        assert!(!healthy(answering("no")));
    }
}
