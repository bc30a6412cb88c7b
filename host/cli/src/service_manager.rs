//! The service manager that started this process, such as systemd. It gets messages about the start, reloads, the stop and
//! the server's state, and signs of life (sd_notify(3)).
//!
//! These are a few lines over a socket. The crate sd-notify brings unsafe code for other parts of systemd, and reaches no
//! abstract socket, which is what containers have. The processes that a server starts get an environment of their own, so
//! none of them is given the socket.

use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use toolhold_admission::Seldom;

/// Maximum bytes of a status: it is shown on one line.
const STATUS_BYTES: usize = 500;

/// The service manager; absent where there is none. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    inner: Option<Arc<ManagerSocket>>,
    /// Time in which it must hear of this process again, or it ends it.
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct ManagerSocket {
    socket: UnixDatagram,
    /// The last status that was sent.
    status: Mutex<String>,
    unsent: Seldom,
}

impl ManagerSocket {
    fn new(socket: UnixDatagram) -> Self {
        Self {
            socket,
            status: Mutex::default(),
            unsent: Seldom::every(LOG_PERIOD),
        }
    }

    /// Sends a message that is not repeated. Waits a moment for a manager that is busy.
    fn send(&self, message: &str) {
        self.note(self.socket.send(message.as_bytes()));
    }

    /// Sends a message that another one follows, unless that would wait. Returns whether it was sent.
    fn send_now(&self, message: &str) -> bool {
        let sent = send(&self.socket, message.as_bytes(), SendFlags::DONTWAIT);
        self.note(sent.map_err(io::Error::from))
    }

    /// Logs a message that was not sent. Returns whether it was.
    fn note(&self, sent: io::Result<usize>) -> bool {
        let Err(error) = sent else {
            return true;
        };
        if let Some(messages) = self.unsent.occurs() {
            tracing::warn!(%error, messages, "the service manager was not told");
        }
        false
    }
}

impl ServiceManager {
    /// Finds the service manager by the variables that it set for this process.
    pub fn of_environment() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())
        else {
            return Self::default();
        };
        let socket = match connected(&address) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be reached");
                return Self::default();
            }
        };
        let number = |name: &str| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let is_own = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_own && *micros > 0);
        Self {
            inner: Some(Arc::new(ManagerSocket::new(socket))),
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    /// Says that the process can be reached. This is sent at the start, whether or not runs can be begun: the start would
    /// time out while a database or an endpoint is awaited.
    pub fn ready(&self, status: &str) {
        self.send("READY=1");
        self.status(status);
    }

    /// Reading the configuration again begins. [`Self::reloaded`] follows.
    pub fn reloading(&self) {
        // systemd compares the time with that of its request for the reload.
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// The configuration was read again, or refused, which the log tells.
    pub fn reloaded(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a line about the server's state, if it differs from the last one that was sent. It waits for nothing: one that is
    /// lost is sent with the next call.
    pub fn status(&self, status: &str) {
        let Some(inner) = &self.inner else {
            return;
        };
        let status = &status[..status.floor_char_boundary(STATUS_BYTES)];
        let status = status.replace(['\n', '\r'], " ");
        let mut told = inner.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != status && inner.send_now(&format!("STATUS={status}")) {
            *told = status;
        }
    }

    /// Tells twice in the time of the watchdog that the process lives, for as long as it is polled.
    ///
    /// This shows that the runtime runs tasks and that its timer works, and nothing more. A database or an endpoint that is
    /// away must not end the server, because a restart does not bring it back.
    pub async fn keep_alive(&self) {
        let (Some(inner), Some(watchdog)) = (&self.inner, self.watchdog) else {
            return;
        };
        let mut beat = interval((watchdog / 2).max(SHORTEST_BEAT));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            inner.send_now("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Some(inner) = &self.inner {
            inner.send(message);
        }
    }
}

/// Longest wait for a service manager that reads nothing.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often it is logged that messages are lost.
const LOG_PERIOD: Duration = Duration::from_mins(1);
/// Shortest time between two signs of life.
const SHORTEST_BEAT: Duration = Duration::from_millis(1);

/// A socket to an address as `NOTIFY_SOCKET` has it: a path, or `@` and an abstract name.
fn connected(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => abstract_address(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => {
            let reason = "NOTIFY_SOCKET is neither a path nor an abstract name";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // One that is busy still gets the message of the start.
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(socket: UnixDatagram) -> ServiceManager {
        ServiceManager {
            inner: Some(Arc::new(ManagerSocket::new(socket))),
            watchdog: None,
        }
    }

    fn next(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 1_024];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_status_is_one_line_and_told_once() {
        let (own, manager) = UnixDatagram::pair().unwrap();
        let told = of(own);
        for _ in 0..2 {
            told.status("one\ntwo");
        }
        told.status(&"é".repeat(STATUS_BYTES));
        assert_eq!(next(&manager), "STATUS=one two");
        assert_eq!(next(&manager).len(), "STATUS=".len() + STATUS_BYTES);
    }

    #[test]
    fn a_status_that_was_lost_is_sent_with_the_next_look() {
        let (own, manager) = UnixDatagram::pair().unwrap();
        let told = of(own);
        let inner = told.inner.as_ref().unwrap();
        // Nothing waits for one that reads nothing.
        while inner.send_now("WATCHDOG=1") {}
        told.status("one");
        manager.set_nonblocking(true).unwrap();
        let mut bytes = [0; 64];
        while manager.recv(&mut bytes).is_ok() {}
        assert!(inner.status.lock().unwrap().is_empty());
        told.status("one");
        assert_eq!(next(&manager), "STATUS=one");
    }

    #[test]
    fn a_reload_has_the_time_of_the_monotonic_clock() {
        let (own, manager) = UnixDatagram::pair().unwrap();
        let told = of(own);
        told.reloading();
        told.reloaded();
        let begun = next(&manager);
        let (kind, micros) = begun.split_once("\nMONOTONIC_USEC=").unwrap();
        assert_eq!(kind, "RELOADING=1");
        assert!(micros.parse::<u64>().unwrap() > 0);
        assert_eq!(next(&manager), "READY=1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn paths_and_abstract_names_are_reached() {
        use std::os::linux::net::SocketAddrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        connected(path.as_os_str()).unwrap().send(b"path").unwrap();
        assert_eq!(next(&by_path), "path");
        let name = format!("toolhold-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        let address = format!("@{name}");
        let socket = connected(OsStr::new(&address)).unwrap();
        socket.send(b"name").unwrap();
        assert_eq!(next(&by_name), "name");
        assert!(connected(OsStr::new("vsock:2:1")).is_err());
    }
}
