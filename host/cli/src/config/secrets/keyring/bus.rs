//! A connection to the session bus that takes a bounded number of bytes.

use super::{KeyringError, MAX_SECRET_BYTES};
use async_trait::async_trait;
use std::env::VarError;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::address::{Address, Transport, transport::UnixSocket};
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};

/// Most bytes of one message: a secret and what is around it, or the paths of all secrets of ours.
const MAX_MESSAGE_BYTES: usize = 4 * MAX_SECRET_BYTES as usize;
/// Most bytes of the line with which the bus lets us in: it has 37.
const MAX_LINE_BYTES: usize = 256;
/// Most bytes of one connection.
const MAX_BYTES: usize = 64 * MAX_MESSAGE_BYTES;
/// Messages that nobody has read yet, which are signals: answers do not wait among them.
const MAX_WAITING: usize = 8;

/// A connection, and whether it ended because more came than may.
#[derive(Debug)]
pub struct Bus {
    pub connection: zbus::Connection,
    is_too_large: Arc<AtomicBool>,
}

impl Bus {
    /// Connects to the session's bus, as the variable says or in the usual place.
    pub async fn connect() -> Result<Self, KeyringError> {
        let path = path()?;
        let stream = UnixStream::connect(&path).await;
        let stream = stream.map_err(|error| KeyringError::NoBus(error.to_string()))?;
        is_ours(stream.peer_cred()?.uid())?;
        Self::over(stream).await
    }

    async fn over(stream: UnixStream) -> Result<Self, KeyringError> {
        let is_too_large = Arc::new(AtomicBool::new(false));
        let socket = Bounded {
            stream,
            is_too_large: Arc::clone(&is_too_large),
        };
        let builder = zbus::connection::Builder::socket(socket).max_queued(MAX_WAITING);
        match builder.build().await {
            Ok(connection) => Ok(Self {
                connection,
                is_too_large,
            }),
            Err(_) if is_too_large.load(Ordering::Relaxed) => {
                Err(KeyringError::TooLarge(MAX_MESSAGE_BYTES))
            }
            Err(error) => Err(KeyringError::NoBus(error.to_string())),
        }
    }

    /// `error`, or what caused it.
    pub fn told(&self, error: KeyringError) -> KeyringError {
        if self.is_too_large.load(Ordering::Relaxed) {
            return KeyringError::TooLarge(MAX_MESSAGE_BYTES);
        }
        error
    }
}

/// Whether a bus of this user's answers there, and nobody who has put a socket in its place.
fn is_ours(user: u32) -> Result<(), KeyringError> {
    let own = rustix::process::geteuid().as_raw();
    if user == own {
        return Ok(());
    }
    Err(KeyringError::NoBus(format!(
        "what listens there belongs to the user {user}, and this runs as {own}"
    )))
}

/// Where the bus listens. Only sockets of this machine: what other addresses start or reach is no session's keyring.
fn path() -> Result<PathBuf, KeyringError> {
    let named = match std::env::var("DBUS_SESSION_BUS_ADDRESS") {
        Ok(named) => named,
        Err(VarError::NotPresent) => return Ok(usual_path()),
        Err(VarError::NotUnicode(_)) => String::new(),
    };
    // The first of several that can be used.
    let mut usable = named.split(';').filter_map(socket_path);
    usable.next().ok_or_else(|| {
        let text = "DBUS_SESSION_BUS_ADDRESS names no socket of this machine";
        KeyringError::NoBus(text.to_owned())
    })
}

fn socket_path(address: &str) -> Option<PathBuf> {
    let address = Address::from_str(address).ok()?;
    let Transport::Unix(unix) = address.transport() else {
        return None;
    };
    match unix.path() {
        UnixSocket::File(path) => Some(path.clone()),
        UnixSocket::Abstract(name) => Some(abstract_path(name)),
        _ => None,
    }
}

/// As tokio takes a name that is in no file system.
fn abstract_path(name: &OsStr) -> PathBuf {
    let mut path = OsString::from("\0");
    path.push(name);
    path.into()
}

fn usual_path() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let folder = folder.map_or_else(
        || format!("/run/user/{}", rustix::process::geteuid().as_raw()).into(),
        PathBuf::from,
    );
    folder.join("bus")
}

struct Bounded {
    stream: UnixStream,
    is_too_large: Arc<AtomicBool>,
}

impl Socket for Bounded {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let (read, write) = self.stream.into_split();
        let read = Reader {
            half: read,
            left: MAX_BYTES,
            next: Next::Line { length: 0 },
            is_too_large: self.is_too_large,
        };
        Split::new(read, Writer(write))
    }
}

/// Reads no byte past the part that comes next. zbus makes room for a whole message, of up to 128 MiB, as soon as it
/// has the first bytes of it: a message that is too large is refused before zbus has these.
#[derive(Debug)]
struct Reader {
    half: OwnedReadHalf,
    /// Bytes that may still come.
    left: usize,
    next: Next,
    is_too_large: Arc<AtomicBool>,
}

/// What comes next.
#[derive(Debug)]
enum Next {
    /// The one line with which the bus lets us in, of which so many bytes came.
    Line { length: usize },
    /// The beginning of a message, which says how long it is.
    Beginning { bytes: Beginning, length: usize },
    /// So many bytes of a message.
    Rest { left: usize },
}

type Beginning = [u8; 16];

const BEGINNING: Next = Next::Beginning {
    bytes: [0; 16],
    length: 0,
};

impl Next {
    fn rest(left: usize) -> Self {
        match left {
            0 => BEGINNING,
            left => Self::Rest { left },
        }
    }

    /// Bytes that may be read at once.
    fn most(&self) -> usize {
        match self {
            Self::Line { .. } => 1,
            Self::Beginning { bytes, length } => bytes.len() - length,
            Self::Rest { left } => *left,
        }
    }

    /// What comes after these bytes, which are no more than [`most`](Self::most). `None`: more than may come.
    fn after(self, read: &[u8]) -> Option<Self> {
        match self {
            Self::Line { .. } if read == b"\n" => Some(BEGINNING),
            Self::Line { length } => (length < MAX_LINE_BYTES).then_some(Self::Line {
                length: length + read.len(),
            }),
            Self::Beginning { mut bytes, length } => {
                let end = length + read.len();
                bytes.get_mut(length..end)?.copy_from_slice(read);
                if end < bytes.len() {
                    return Some(Self::Beginning { bytes, length: end });
                }
                let all = message_bytes(&bytes).filter(|all| *all <= MAX_MESSAGE_BYTES)?;
                Some(Self::rest(all - bytes.len()))
            }
            Self::Rest { left } => Some(Self::rest(left.saturating_sub(read.len()))),
        }
    }
}

/// The bytes of a message that begins with these: <https://dbus.freedesktop.org/doc/dbus-specification.html>, "Message
/// Format".
fn message_bytes(beginning: &Beginning) -> Option<usize> {
    let [order, _, _, _, b0, b1, b2, b3, _, _, _, _, f0, f1, f2, f3] = *beginning;
    let number = match order {
        b'l' => u32::from_le_bytes,
        b'B' => u32::from_be_bytes,
        _ => return None,
    };
    let body = usize::try_from(number([b0, b1, b2, b3])).ok()?;
    let fields = usize::try_from(number([f0, f1, f2, f3])).ok()?;
    let header = beginning.len().checked_add(fields)?;
    header.checked_next_multiple_of(8)?.checked_add(body)
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let most = buffer.len().min(self.left).min(self.next.most());
        let read = self.half.read(&mut buffer[..most]).await?;
        let next = std::mem::replace(&mut self.next, BEGINNING);
        match next.after(&buffer[..read]) {
            Some(next) if self.left > 0 => self.next = next,
            _ => {
                self.is_too_large.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        self.left -= read;
        Ok((read, Vec::new()))
    }
}

#[derive(Debug)]
struct Writer(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a message of 45 bytes of fields, which are filled up to 48, and `body` bytes of body.
    fn beginning(order: u8, body: u32) -> Beginning {
        let [mut body, mut fields] = [body, 45].map(u32::to_le_bytes);
        if order == b'B' {
            body.reverse();
            fields.reverse();
        }
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[order, 2, 1, 1]);
        bytes[4..8].copy_from_slice(&body);
        bytes[8] = 1;
        bytes[12..].copy_from_slice(&fields);
        bytes
    }

    #[test]
    fn the_beginning_of_a_message_says_how_long_it_is() {
        for order in [b'l', b'B'] {
            assert_eq!(message_bytes(&beginning(order, 0)), Some(64));
            assert_eq!(message_bytes(&beginning(order, 100)), Some(164));
        }
        assert_eq!(message_bytes(&beginning(b'x', 0)), None);
        let largest = u32::try_from(MAX_MESSAGE_BYTES).unwrap() - 64;
        let next = |body| BEGINNING.after(&beginning(b'l', body));
        assert!(matches!(next(largest), Some(Next::Rest { .. })));
        assert!(next(largest + 1).is_none());
        assert!(next(u32::MAX).is_none());
    }

    /// The most memory that this process had, in bytes.
    #[cfg(target_os = "linux")]
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// Whether it comes together with the line before it or after it.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_message_that_is_too_large_takes_no_memory() {
        for is_pipelined in [false, true] {
            let before = peak();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let bus = tokio::spawn(async move {
                let mut heard = [0; 512];
                assert!(theirs.read(&mut heard).await.unwrap() > 0);
                let mut said = b"OK 0123456789abcdef0123456789abcdef\r\n".to_vec();
                let message = beginning(b'l', 100 << 20);
                if is_pipelined {
                    said.extend(message);
                }
                theirs.write_all(&said).await.unwrap();
                if !is_pipelined {
                    assert!(theirs.read(&mut heard).await.unwrap() > 0);
                    theirs.write_all(&message).await.unwrap();
                }
                // Until the other end is closed.
                let _ = theirs.read_to_end(&mut Vec::new()).await;
            });
            let error = Bus::over(ours).await.unwrap_err();
            assert!(matches!(error, KeyringError::TooLarge(_)), "{error}");
            let more = peak() - before;
            assert!(more < 32 << 20, "{more} bytes: {is_pipelined}");
            bus.abort();
        }
    }

    #[tokio::test]
    async fn a_bus_of_another_user_is_none() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = one.peer_cred().unwrap();
        assert!(is_ours(peer.uid()).is_ok());
        let other = rustix::process::geteuid().as_raw() + 1;
        let error = is_ours(other).unwrap_err();
        assert!(error.is_absent(), "{error}");
        assert!(error.to_string().contains("belongs to the user"), "{error}");
    }

    #[test]
    fn only_sockets_of_this_machine_are_connected_to() {
        for (address, expect) in [
            (
                "unix:path=/run/user/1/bus,guid=0123456789abcdef0123456789abcdef",
                Some("/run/user/1/bus"),
            ),
            ("unix:abstract=/tmp/x", Some("\0/tmp/x")),
            ("disabled:", None),
            ("", None),
            ("unixexec:path=/bin/sh", None),
            ("tcp:host=localhost,port=1", None),
            ("autolaunch:", None),
            ("unix:tmpdir=/tmp", None),
        ] {
            assert_eq!(socket_path(address), expect.map(PathBuf::from), "{address}");
        }
    }
}
