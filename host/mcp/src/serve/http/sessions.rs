//! Sessions of clients that began with `initialize`.

use crate::rpc::{RpcError, RpcRequest};
use crate::serve::approval::random_token;
use crate::serve::in_flight::InFlightRequests;
use crate::serve::session::ClientSession;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
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

    /// Begins a session. If the limit is reached, the session that has been idle longest ends.
    ///
    /// # Errors
    /// The request is invalid, or every session is busy.
    pub fn begin(&self, request: &RpcRequest) -> Result<Arc<HeldSession>, SessionRefusal> {
        let id: Arc<str> = random_token().map_err(SessionRefusal::Request)?.into();
        let session =
            ClientSession::new(id.clone(), request, Arc::new(InFlightRequests::default()))
                .map_err(SessionRefusal::Request)?;
        let held = Arc::new(HeldSession {
            session: Arc::new(session),
            streams: watch::Sender::new(0),
            touched: Mutex::new(Instant::now()),
        });
        let mut by_id = self.by_id.lock();
        by_id.retain(|_, held| held.is_busy() || held.idle() < self.idle);
        if by_id.len() >= self.most {
            let quiet = by_id.iter().filter(|(_, held)| !held.is_busy());
            let longest = quiet.max_by_key(|(_, held)| held.idle());
            let Some(longest) = longest.map(|(id, _)| id.clone()) else {
                return Err(SessionRefusal::Full);
            };
            by_id.remove(&longest);
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

/// Why a session cannot begin.
#[derive(Debug)]
pub enum SessionRefusal {
    Request(RpcError),
    Full,
}

impl HeldSession {
    pub fn touch(&self) {
        *self.touched.lock() = Instant::now();
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

    fn begin(sessions: &Sessions) -> Result<Arc<HeldSession>, SessionRefusal> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        sessions.begin(&RpcRequest {
            id: Id::Number(1.into()),
            method: "initialize".into(),
            params: params.as_object().cloned().unwrap(),
        })
    }

    #[test]
    fn the_longest_idle_session_makes_room_and_a_busy_one_does_not() {
        let sessions = Sessions::new(2, Duration::from_mins(1));
        let first = begin(&sessions).unwrap();
        let second = begin(&sessions).unwrap();
        let _busy = first
            .session
            .in_flight
            .begin(&Id::Number(1.into()))
            .unwrap();
        let third = begin(&sessions).unwrap();
        assert!(sessions.find(&first.session.id).is_some());
        assert!(sessions.find(&second.session.id).is_none());
        let _stream = third.streams.subscribe();
        assert!(matches!(begin(&sessions), Err(SessionRefusal::Full)));
        assert!(sessions.end(&third.session.id) && !sessions.end(&third.session.id));
        assert!(begin(&sessions).is_ok());
    }

    #[test]
    fn an_idle_session_is_over() {
        let sessions = Sessions::new(2, Duration::ZERO);
        let held = begin(&sessions).unwrap();
        assert!(sessions.find(&held.session.id).is_none());
    }
}
