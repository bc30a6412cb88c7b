//! An endpoint that plays bytes: for answers that no HTTP library would send.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What happens on the connection after a request came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawStep {
    Send(Vec<u8>),
    /// The same bytes, so many times.
    Repeat(Vec<u8>, usize),
    Wait(Duration),
    /// Nothing more, until the client leaves.
    Hang,
    /// The next request on this connection, instead of its end.
    KeepAlive,
}

/// One answer, as the steps of its connection.
pub type RawReply = Vec<RawStep>;

/// A running endpoint; stops taking connections when dropped.
#[derive(Debug)]
pub struct RawEndpoint {
    address: SocketAddr,
    shared: Arc<RawState>,
}

#[derive(Debug)]
struct RawState {
    wires: Vec<RawReply>,
    requests: AtomicUsize,
    /// Bytes that clients took.
    sent: AtomicUsize,
    is_over: AtomicBool,
}

impl RawEndpoint {
    /// Starts on a free port of the loopback interface. Each request gets the next wire, and all after
    /// the last one the last.
    ///
    /// # Panics
    /// If no port can be opened.
    pub fn start(wires: impl IntoIterator<Item = RawReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0");
        let listener = listener.unwrap_or_else(|error| panic!("no port for the endpoint: {error}"));
        let address = listener.local_addr();
        let address = address.unwrap_or_else(|error| panic!("no address: {error}"));
        let shared = Arc::new(RawState {
            wires: wires.into_iter().collect(),
            requests: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().flatten() {
                    if shared.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Self { address, shared }
    }

    /// What a client is configured with; ends in `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Bytes of answers that were handed out: an upper bound of what clients took.
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for RawEndpoint {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the listener up.
        drop(TcpStream::connect(self.address));
    }
}

impl RawState {
    /// Whether the client took them.
    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> bool {
        let is_taken = stream.write_all(bytes).is_ok();
        if is_taken {
            self.sent.fetch_add(bytes.len(), Ordering::SeqCst);
        }
        is_taken
    }

    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        // A failed test waits no longer than this.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        while read_request(&mut stream).is_some() {
            let number = self.requests.fetch_add(1, Ordering::SeqCst);
            let wire = self.wires.get(number).or(self.wires.last());
            let mut goes_on = false;
            for step in wire.into_iter().flatten() {
                match step {
                    // The client may have seen enough.
                    RawStep::Send(bytes) => {
                        if !self.send(&mut stream, bytes) {
                            return;
                        }
                    }
                    RawStep::Repeat(bytes, times) => {
                        for _ in 0..*times {
                            if !self.send(&mut stream, bytes) {
                                return;
                            }
                        }
                    }
                    RawStep::Wait(time) => thread::sleep(*time),
                    RawStep::Hang => {
                        let _ = stream.read(&mut [0]);
                    }
                    RawStep::KeepAlive => goes_on = true,
                }
            }
            if !goes_on {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Reads a request to its end; `None` if the client has left.
fn read_request(stream: &mut TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()
}
