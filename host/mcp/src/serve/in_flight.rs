//! The requests of one client that are in progress, so that the client can cancel them.

use crate::rpc::{INTERNAL_ERROR, INVALID_REQUEST, Id, RpcError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, oneshot};
use toolhold_policy::BeginCheck;

/// Most requests of one client in progress.
const MAX_PER_CLIENT: usize = 1_024;

#[derive(Debug, Default)]
pub struct InFlightRequests {
    by_id: Mutex<HashMap<Id, CancelHandle>>,
    landed: Notify,
}

/// Cancels a request when it is dropped.
#[derive(Debug)]
struct CancelHandle {
    end: Arc<RequestEnd>,
    cancel: oneshot::Sender<()>,
}

/// The end of a request by its client, about which the request's calls ask before they begin.
#[derive(Debug, Default)]
pub struct RequestEnd(AtomicBool);

impl RequestEnd {
    /// Notes the end, before the request is dropped: the place of a call that runs begins none that waits.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl BeginCheck for RequestEnd {
    fn may_begin(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
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
    end: Arc<RequestEnd>,
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
        let end = Arc::<RequestEnd>::default();
        let handle = CancelHandle {
            end: end.clone(),
            cancel,
        };
        by_id.insert(id.clone(), handle);
        Ok(InFlightRequest {
            requests: self.clone(),
            id: id.clone(),
            end,
            cancelled,
        })
    }

    /// Cancels a request. An unknown id is ignored: the request has ended.
    pub fn cancel(&self, id: &Id) {
        let cancelled = self.by_id.lock().remove(id);
        if let Some(handle) = cancelled {
            handle.end.note();
        }
    }

    /// Cancels all requests. None of their calls begins any more before the first of them is dropped.
    pub fn cancel_all(&self) {
        let mut by_id = self.by_id.lock();
        for handle in by_id.values() {
            handle.end.note();
        }
        by_id.clear();
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
    /// The end of the request, for its calls.
    pub fn end(&self) -> Arc<RequestEnd> {
        self.end.clone()
    }

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
        if by_id
            .get(&self.id)
            .is_some_and(|handle| handle.cancel.is_closed())
        {
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

    /// Number of the ends that are noted.
    fn over(ends: &[Arc<RequestEnd>]) -> usize {
        ends.iter().filter(|end| !end.may_begin()).count()
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

    #[tokio::test]
    async fn the_end_of_each_request_is_noted_before_one_is_dropped() {
        let in_flight = Arc::new(InFlightRequests::default());
        let begun: Vec<_> = (0..8).map(|n| in_flight.begin(&id(n)).unwrap()).collect();
        let ends: Vec<_> = begun.iter().map(InFlightRequest::end).collect();
        in_flight.cancel(&id(0));
        assert_eq!(over(&ends), 1);
        let (noted, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let work = begun.into_iter().map(|flight| {
            let (ends, noted) = (ends.clone(), noted.clone());
            tokio::spawn(async move {
                let dropped = flight.run(std::future::pending::<()>()).await;
                assert!(dropped.is_none());
                noted.send(over(&ends)).unwrap();
            })
        });
        let work: Vec<_> = work.collect();
        assert_eq!(seen.recv().await, Some(1));
        in_flight.cancel_all();
        for _ in 1..8 {
            assert_eq!(seen.recv().await, Some(8));
        }
        for task in work {
            task.await.unwrap();
        }
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
