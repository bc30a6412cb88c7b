//! Bounds of a server's connections.

use std::time::Duration;

/// How many connections a server holds, and how slow a client may be.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Most connections at a time, and never more than a quarter of the descriptors that the process may have.
    pub connections: usize,
    /// Connections besides them, of which only requests to `is_reserved` paths are served while all others are busy.
    pub reserve: usize,
    /// Paths of health and administration.
    pub is_reserved: fn(&str) -> bool,
    /// Bound of the head of a request, the wait between two requests included.
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
            head_timeout: Duration::from_mins(1),
            body_pace: BodyPace {
                grace: Duration::from_secs(30),
                bytes_per_second: 8 << 10,
            },
            write_timeout: Duration::from_secs(30),
        }
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
