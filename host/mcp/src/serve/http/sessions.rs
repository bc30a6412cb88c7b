//! Sessions of clients that began with `initialize`.
//!
//! Their number is bounded. A session that was used is kept until it has done nothing for long; one that only began may
//! end for another one. When there is no room, a session of the source with most sessions ends, for a client of a
//! source that has fewer. So a client that begins many sessions ends its own, and is refused when they are in use.

use crate::rpc::{RpcError, RpcRequest};
use crate::serve::decision::random_token;
use crate::serve::in_flight::InFlightRequests;
use crate::serve::session::ClientSession;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Sessions {
    most: usize,
    idle: Duration,
    by_id: Mutex<HashMap<Arc<str>, Arc<HeldSession>>>,
}

/// A session, and its notification stream.
#[derive(Debug)]
pub struct HeldSession {
    pub session: Arc<ClientSession>,
    /// Number of the newest notification stream; older streams end.
    pub streams: watch::Sender<u64>,
    source: IpAddr,
    /// A request was made in it, or its stream was opened.
    is_used: AtomicBool,
    touched: Mutex<Instant>,
}

impl Sessions {
    pub fn new(most: usize, idle: Duration) -> Self {
        Self {
            most,
            idle,
            by_id: Mutex::default(),
        }
    }

    /// Begins a session for a client at `source`.
    ///
    /// # Errors
    /// The request is invalid, or there is no session that may end for this one.
    pub fn begin(
        &self,
        request: &RpcRequest,
        source: IpAddr,
    ) -> Result<Arc<HeldSession>, SessionRefusal> {
        let id: Arc<str> = random_token().map_err(SessionRefusal::Request)?.into();
        let session =
            ClientSession::new(id.clone(), request, Arc::new(InFlightRequests::default()))
                .map_err(SessionRefusal::Request)?;
        let held = Arc::new(HeldSession {
            session: Arc::new(session),
            streams: watch::Sender::new(0),
            source,
            is_used: AtomicBool::new(false),
            touched: Mutex::new(Instant::now()),
        });
        let mut by_id = self.by_id.lock();
        if by_id.len() >= self.most {
            by_id.retain(|_, held| held.is_busy() || held.idle() < self.idle);
        }
        if by_id.len() >= self.most {
            let Some(ended) = gives_way(&by_id, source) else {
                let quiet = by_id.values().filter(|held| !held.is_busy());
                let rest = quiet.map(|held| self.idle.saturating_sub(held.idle()));
                return Err(SessionRefusal::Full {
                    retry_after: rest.min().unwrap_or(self.idle),
                });
            };
            by_id.remove(&ended);
        }
        by_id.insert(id, held.clone());
        Ok(held)
    }

    pub fn find(&self, id: &str) -> Option<Arc<HeldSession>> {
        let mut by_id = self.by_id.lock();
        let held = by_id.get(id)?.clone();
        if !held.is_busy() && held.idle() >= self.idle {
            by_id.remove(id);
            return None;
        }
        held.touch();
        Some(held)
    }

    /// Ends a session and cancels its work.
    pub fn end(&self, id: &str) -> bool {
        let ended = self.by_id.lock().remove(id);
        if let Some(held) = &ended {
            held.session.in_flight.cancel_all();
            held.streams.send_modify(|streams| *streams += 1);
        }
        ended.is_some()
    }
}

/// The session that ends for a new one of `source`: of the source with most sessions, one that was never used before
/// one that was, and the one that has been idle for longest. A used one ends only for a source that has fewer, and one
/// in which work goes on never does.
fn gives_way(sessions: &HashMap<Arc<str>, Arc<HeldSession>>, source: IpAddr) -> Option<Arc<str>> {
    let mut counts = HashMap::<IpAddr, usize>::new();
    for held in sessions.values() {
        *counts.entry(held.source).or_default() += 1;
    }
    let count = |source: &IpAddr| counts.get(source).copied().unwrap_or(0);
    let own = count(&source);
    let quiet = sessions.iter().filter(|(_, held)| !held.is_busy());
    let may_end = quiet.filter(|(_, held)| {
        let is_poorer = own + 1 < count(&held.source);
        is_poorer || (held.source == source && !held.is_used())
    });
    let first = may_end.max_by_key(|(_, held)| {
        // All of one source stay together.
        let source = (count(&held.source), Reverse(held.source));
        (source, !held.is_used(), held.idle())
    });
    first.map(|(id, _)| id.clone())
}

/// Why a session cannot begin.
#[derive(Debug)]
pub enum SessionRefusal {
    Request(RpcError),
    Full {
        /// When the first of the others may be over.
        retry_after: Duration,
    },
}

impl HeldSession {
    pub fn touch(&self) {
        *self.touched.lock() = Instant::now();
    }

    /// A client that does something in a session keeps it.
    pub fn uses(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        self.streams.receiver_count() > 0 || !self.session.in_flight.is_empty()
    }

    fn idle(&self) -> Duration {
        self.touched.lock().elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Id;
    use serde_json::json;
    use std::net::Ipv4Addr;

    fn source(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(n).into()
    }

    fn begin(sessions: &Sessions, of: u32) -> Result<Arc<HeldSession>, SessionRefusal> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        let request = RpcRequest {
            id: Id::Number(1.into()),
            method: "initialize".into(),
            params: params.as_object().cloned().unwrap(),
        };
        sessions.begin(&request, source(of))
    }

    fn used(sessions: &Sessions, of: u32) -> Arc<HeldSession> {
        let held = begin(sessions, of).unwrap();
        held.uses();
        held
    }

    impl Sessions {
        fn has(&self, held: &HeldSession) -> bool {
            self.find(&held.session.id).is_some()
        }
    }

    #[test]
    fn a_session_that_only_began_makes_room_and_a_busy_one_does_not() {
        let sessions = Sessions::new(2, Duration::from_mins(1));
        let first = begin(&sessions, 1).unwrap();
        let second = begin(&sessions, 1).unwrap();
        let _busy = first
            .session
            .in_flight
            .begin(&Id::Number(1.into()))
            .unwrap();
        let third = begin(&sessions, 1).unwrap();
        assert!(sessions.has(&first) && !sessions.has(&second));
        let _stream = third.streams.subscribe();
        let Err(SessionRefusal::Full { retry_after }) = begin(&sessions, 1) else {
            panic!("all are busy");
        };
        assert_eq!(retry_after, Duration::from_mins(1));
        assert!(sessions.end(&third.session.id) && !sessions.end(&third.session.id));
        assert!(begin(&sessions, 1).is_ok());
    }

    #[test]
    fn a_flood_of_sessions_ends_no_used_one() {
        let sessions = Sessions::new(64, Duration::from_mins(1));
        let mine = used(&sessions, 1);
        let theirs = used(&sessions, 2);
        for _ in 0..1_300 {
            begin(&sessions, 1).unwrap();
        }
        assert!(sessions.has(&mine) && sessions.has(&theirs));
        // The same with sessions that are used, too: the client that begins them is refused.
        for _ in 0..1_300 {
            if let Ok(held) = begin(&sessions, 1) {
                held.uses();
            }
        }
        assert!(sessions.has(&mine) && sessions.has(&theirs));
        let Err(SessionRefusal::Full { retry_after }) = begin(&sessions, 1) else {
            panic!("it has enough");
        };
        assert!(retry_after <= Duration::from_mins(1));
        // Another source gets its share, from the one that has most, up to as many as that keeps.
        for _ in 0..31 {
            used(&sessions, 2);
        }
        assert!(begin(&sessions, 2).is_err());
        assert!(sessions.has(&theirs));
        assert!(begin(&sessions, 3).is_ok());
        assert_eq!(sessions.by_id.lock().len(), 64);
    }

    #[test]
    fn an_idle_session_is_over() {
        let sessions = Sessions::new(2, Duration::ZERO);
        let held = used(&sessions, 1);
        assert!(!sessions.has(&held));
    }
}
