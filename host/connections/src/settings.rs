//! Bounds of a server's connections.

use axum::http::{HeaderMap, Method};
use hyper::body::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many connections a server holds, and how slow a client may be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most connections at a time, and never more than a quarter of the descriptors that the process may have.
    pub connections: usize,
    /// Connections besides them, of which only requests to `is_reserved` paths are served while all others are busy.
    pub reserve: usize,
    /// Paths of health and administration.
    pub is_reserved: fn(&str) -> bool,
    /// Longest wait of another request on a connection of the reserve for an ordinary place.
    pub place_timeout: Duration,
    /// Body, in JSON, of the 503 for clients that get no place.
    pub busy_body: Bytes,
    /// Makes the headers that each of these 503s has of its own, such as the id of the request.
    pub busy_headers: fn() -> HeaderMap,
    pub refused: RefusalObserver,
    /// Bound of the head of a request, the wait between two requests included. A connection's first byte may take as long
    /// before.
    pub head_timeout: Duration,
    /// The slowest body of a request.
    pub body_pace: BodyPace,
    /// Longest time in which a client takes nothing of what it is sent.
    pub write_timeout: Duration,
}

impl Settings {
    /// So many connections, with timeouts that suit clients on the internet: slow links pass, idle
    /// connections are closed within about a minute.
    pub fn new(connections: usize) -> Self {
        Self {
            connections,
            reserve: 0,
            is_reserved: |_| false,
            place_timeout: Duration::from_secs(20),
            busy_body: Bytes::from_static(BUSY_BODY),
            busy_headers: HeaderMap::new,
            refused: RefusalObserver::new(|_, _| {}),
            head_timeout: Duration::from_mins(1),
            body_pace: BodyPace {
                grace: Duration::from_secs(30),
                bytes_per_second: 8 << 10,
            },
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// For servers that do not say it in the form of their own errors.
const BUSY_BODY: &[u8] =
    br#"{"error":{"message":"all connections of this server are busy; try again in a while"}}"#;

/// A function that is called for each client that is answered with 503, because it gets no place. It is given the method,
/// absent where no request was read, and the time that the request waited.
#[derive(Clone)]
pub struct RefusalObserver(Arc<ObserveRefusal>);

type ObserveRefusal = dyn Fn(Option<&Method>, Duration) + Send + Sync;

impl RefusalObserver {
    pub fn new(observe: impl Fn(Option<&Method>, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn refused(&self, method: Option<&Method>, waited: Duration) {
        (self.0)(method, waited);
    }
}

impl fmt::Debug for RefusalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusalObserver").finish_non_exhaustive()
    }
}

/// The slowest body of a request that is read: it may take `grace`, and a second more for each
/// `bytes_per_second` that have arrived. So a large body has the time that its size takes.
#[derive(Debug, Clone, Copy)]
pub struct BodyPace {
    /// Time for a body of any size.
    pub grace: Duration,
    /// The least speed beyond `grace`.
    pub bytes_per_second: u32,
}
