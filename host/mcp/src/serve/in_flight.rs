//! The requests of one client that are in progress, so that the client can cancel them.

use crate::rpc::{INTERNAL_ERROR, INVALID_REQUEST, Id, RpcError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Most requests of one client in progress.
const MAX_PER_CLIENT: usize = 1_024;

#[derive(Debug, Default)]
pub struct InFlightRequests {
    by_id: Mutex<HashMap<Id, oneshot::Sender<()>>>,
    landed: Notify,
}

/// Dropped when the client is no longer served.
#[derive(Debug)]
pub struct ServedClient(Arc<InFlightRequests>);

impl Drop for ServedClient {
    fn drop(&mut self) {
        self.0.cancel_all();
    }
}

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub struct InFlightRequest {
    requests: Arc<InFlightRequests>,
    id: Id,
    cancelled: oneshot::Receiver<()>,
}

impl InFlightRequests {
    /// # Errors
    /// A request with this id is in progress, or there are too many.
    pub fn begin(self: &Arc<Self>, id: &Id) -> Result<InFlightRequest, RpcError> {
        let mut by_id = self.by_id.lock();
        if by_id.contains_key(id) {
            let reason = "a request with this id is being worked on";
            return Err(RpcError::new(INVALID_REQUEST, reason));
        }
        if by_id.len() >= MAX_PER_CLIENT {
            let reason =
                format!("{MAX_PER_CLIENT} requests are being worked on; wait for some of them");
            return Err(RpcError::new(INTERNAL_ERROR, reason));
        }
        let (cancel, cancelled) = oneshot::channel();
        by_id.insert(id.clone(), cancel);
        Ok(InFlightRequest {
            requests: self.clone(),
            id: id.clone(),
            cancelled,
        })
    }

    /// Cancels a request. An unknown id is ignored: the request has ended.
    pub fn cancel(&self, id: &Id) {
        self.by_id.lock().remove(id);
    }

    pub fn cancel_all(&self) {
        self.by_id.lock().clear();
    }

    /// Cancels all requests when dropped.
    pub fn until_dropped(self: &Arc<Self>) -> ServedClient {
        ServedClient(self.clone())
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.lock().is_empty()
    }

    /// Waits until no request is in progress.
    pub async fn empty(&self) {
        loop {
            let landed = self.landed.notified();
            if self.is_empty() {
                return;
            }
            landed.await;
        }
    }
}

impl InFlightRequest {
    /// Runs `work` to its end, or drops it when the client cancels.
    pub async fn run<T>(mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = &mut self.cancelled => None,
            done = work => Some(done),
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.cancelled.close();
        let mut by_id = self.requests.by_id.lock();
        // After a cancellation another request may have the id.
        if by_id.get(&self.id).is_some_and(oneshot::Sender::is_closed) {
            by_id.remove(&self.id);
        }
        drop(by_id);
        self.requests.landed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: i64) -> Id {
        Id::Number(n.into())
    }

    #[tokio::test]
    async fn a_cancelled_request_is_dropped_and_its_id_is_free() {
        let in_flight = Arc::new(InFlightRequests::default());
        let flight = in_flight.begin(&id(1)).unwrap();
        assert!(in_flight.begin(&id(1)).is_err());
        let other = in_flight.begin(&id(2)).unwrap();
        let (held, mut dropped) = oneshot::channel::<()>();
        let work = tokio::spawn(flight.run(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        in_flight.cancel(&id(3));
        in_flight.cancel(&id(1));
        let again = in_flight.begin(&id(1)).unwrap();
        assert!(work.await.unwrap().is_none());
        assert!(dropped.try_recv().is_err());
        // The ended request did not remove its successor.
        assert!(in_flight.begin(&id(1)).is_err());
        assert_eq!(again.run(async { 7 }).await, Some(7));
        assert!(!in_flight.is_empty());
        drop(other);
        in_flight.empty().await;
    }

    #[test]
    fn a_client_has_so_many_at_a_time() {
        let in_flight = Arc::new(InFlightRequests::default());
        let held: Vec<_> = (0..MAX_PER_CLIENT)
            .map(|n| in_flight.begin(&Id::Number(n.into())).unwrap())
            .collect();
        let error = in_flight.begin(&id(-1)).unwrap_err();
        assert_eq!(error.code, INTERNAL_ERROR);
        drop(held);
        assert!(in_flight.begin(&id(-1)).is_ok());
    }
}
