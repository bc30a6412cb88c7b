//! The other end of a connection over TLS, which offers HTTP/2 and HTTP/1.1: a conduct tells it what to send and what to
//! leave unread.
//!
//! A connection has a thread of its own, and the sockets have small buffers, so that a peer that stops reading is felt at
//! once.

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use support::sandbox::repository;

/// Bytes that the system keeps for a connection and the peer has not read; it makes some more of it.
const UNREAD_BYTES: usize = 8 << 10;

/// The behaviour of a peer on a connection whose first head has come.
pub type Conduct = fn(&mut PeerConnection) -> io::Result<()>;

/// A peer on 127.0.0.1, gone with its connections when dropped.
pub struct Peer {
    port: u16,
    shared: Arc<PeerState>,
}

#[derive(Default)]
struct PeerState {
    is_over: AtomicBool,
    accepted: AtomicUsize,
    /// Shut down to wake the threads that read and write.
    sockets: Mutex<Vec<TcpStream>>,
    /// Texts of conducts.
    notes: Mutex<Vec<String>>,
}

impl Peer {
    pub fn start(conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Connections inherit it.
        set_socket_recv_buffer_size(&listener, UNREAD_BYTES).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<PeerState>::default();
        let (config, state) = (tls(), shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.is_over.load(SeqCst) {
                    break;
                }
                let number = state.accepted.fetch_add(1, SeqCst) + 1;
                let socket = stream.try_clone().unwrap();
                lock(&state.sockets).push(socket);
                let (config, state) = (config.clone(), state.clone());
                thread::spawn(move || {
                    // A host that breaks off is what most conducts end with.
                    let closes = stream.try_clone().unwrap();
                    let _ = serve(stream, config, (&state, number), conduct);
                    // There are other handles of it.
                    let _ = closes.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, shared }
    }

    pub fn origin(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    pub fn notes(&self) -> Vec<String> {
        lock(&self.shared.notes).clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        for socket in lock(&self.shared.sockets).iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // The listener's thread wakes, and ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// The certificate of the peers, which is a root of its own: the file for `SSL_CERT_FILE`.
pub fn certificate() -> PathBuf {
    repository().join("tests/fixtures/tls/peer.crt")
}

fn tls() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(certificate()).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate_key()).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

fn certificate_key() -> PathBuf {
    certificate().with_extension("key")
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    (state, number): (&PeerState, usize),
    conduct: Conduct,
) -> io::Result<()> {
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut connection = PeerConnection {
        stream: StreamOwned::new(tls, stream),
        number,
        state,
    };
    connection.next_head()?;
    if connection.stream.conn.alpn_protocol() != Some(b"http/1.1") {
        connection.note("another protocol");
    }
    conduct(&mut connection)
}

/// A connection, from the head of its first request on.
pub struct PeerConnection<'a> {
    stream: StreamOwned<ServerConnection, TcpStream>,
    /// Number of the connection to the peer; the first is 1.
    pub number: usize,
    state: &'a PeerState,
}

impl PeerConnection<'_> {
    /// Reads the head of a request, byte by byte.
    pub fn next_head(&mut self) -> io::Result<()> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(())
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends these bytes again and again, and reads nothing, until the connection fails.
    pub fn flood(&mut self, bytes: &[u8]) -> io::Result<()> {
        let batch = bytes.repeat(((64 << 10) / bytes.len()).max(1));
        loop {
            self.stream.write_all(&batch)?;
        }
    }

    pub fn note(&self, text: &str) {
        lock(&self.state.notes).push(text.into());
    }

    /// Neither reads nor writes, until the peer is dropped. It does not see whether the host has closed the connection,
    /// because bytes that it has not read come before that.
    pub fn stall(&mut self) -> io::Result<()> {
        while !self.state.is_over.load(SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Reads until the host closes the connection. Returns the last bytes, five at most.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let (mut last, mut piece) = (Vec::new(), [0; 4 << 10]);
        // A connection that is reset ends as well.
        while let Ok(read @ 1..) = self.stream.read(&mut piece) {
            last.extend(&piece[..read]);
            last.drain(..last.len().saturating_sub(5));
        }
        last
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
