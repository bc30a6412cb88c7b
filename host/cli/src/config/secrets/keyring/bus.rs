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
            is_too_large: self.is_too_large,
        };
        Split::new(read, Writer(write))
    }
}

#[derive(Debug)]
struct Reader {
    half: OwnedReadHalf,
    /// Bytes that may still come.
    left: usize,
    is_too_large: Arc<AtomicBool>,
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        // The buffer has room for all that is left of a message.
        if buffer.len() > MAX_MESSAGE_BYTES || self.left == 0 {
            self.is_too_large.store(true, Ordering::Relaxed);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let most = buffer.len().min(self.left);
        let read = self.half.read(&mut buffer[..most]).await?;
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
