//! A second request for the same answer, where the first has given out nothing for a while. Whichever
//! yields a piece first is the answer; the other is dropped, which closes its connection.

use futures_util::future::BoxFuture;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::endpoint::EndpointLease;
use super::listening::ObserverRelay;
use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::CompletionObserver;
use crate::side::millis;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// The result of a request that was sent once or twice.
pub(super) struct HedgeResult {
    pub result: Result<Completion, ModelError>,
    /// Whether a second one was sent.
    pub is_hedged: bool,
    /// Whether the result is the second one's.
    pub is_second: bool,
    /// Whether the other one had failed before.
    pub other_failed: bool,
}

/// Sends the request. If no piece of an answer arrives in time, sends it again to the endpoint that `second`
/// chooses. If one of the two fails, the other is awaited.
pub(super) async fn race<'a, 'r>(
    first: EndpointLease<'a>,
    request: &ChatRequest,
    after: Duration,
    second: impl FnOnce() -> Option<(EndpointLease<'a>, &'r ChatRequest)>,
    watch: &mut ObserverRelay<'_>,
) -> HedgeResult {
    let track = Track(Mutex::new(HedgeState {
        watch,
        leader: None,
    }));
    let (mut to_first, mut to_second) = (
        track.lane(HedgedRequest::FIRST),
        track.lane(HedgedRequest::SECOND),
    );
    let from = first.endpoint().label().to_owned();
    let mut overtaken = [Some(first.endpoint().overtaken()), None];
    let mut one = first.complete(request, &mut to_first).boxed();
    tokio::select! {
        biased;
        result = &mut one => return HedgeResult::once(result),
        () = sleep(after) => {}
    }
    if track.leader().is_some() {
        return HedgeResult::once(one.await);
    }
    let Some((entry, request)) = second() else {
        return HedgeResult::once(one.await);
    };
    track.tell(Routing::Hedged {
        endpoint: from.clone(),
        to: entry.endpoint().label().to_owned(),
        after_ms: millis(after),
    });
    let to = entry.endpoint().label().to_owned();
    overtaken[HedgedRequest::SECOND] = Some(entry.endpoint().overtaken());
    let mut two = entry.complete(request, &mut to_second).boxed();
    let (lane, ended) = poll_fn(|cx| {
        for (lane, racer) in [
            (HedgedRequest::FIRST, &mut one),
            (HedgedRequest::SECOND, &mut two),
        ] {
            if let Poll::Ready(result) = racer.poll_unpin(cx) {
                return Poll::Ready((lane, Some(result)));
            }
            if track.leader() == Some(lane) {
                return Poll::Ready((lane, None));
            }
        }
        Poll::Pending
    })
    .await;
    let (own, other) = match lane {
        HedgedRequest::FIRST => (one, two),
        _ => (two, one),
    };
    if let Some(Err(error)) = &ended
        && track.leader().is_none()
    {
        let endpoint = if lane == HedgedRequest::FIRST {
            from
        } else {
            to
        };
        track.tell(Routing::HedgeFailed {
            endpoint,
            reason: error.to_string(),
        });
        let result = other.await;
        return HedgeResult {
            is_hedged: true,
            is_second: lane == HedgedRequest::FIRST,
            other_failed: true,
            result,
        };
    }
    drop(other);
    if let Some(overtaken) = overtaken[1 - lane].take() {
        track.lock().watch.side_request(overtaken.told());
    }
    let result = match ended {
        Some(result) => result,
        None => own.await,
    };
    HedgeResult {
        is_hedged: true,
        is_second: lane == HedgedRequest::SECOND,
        other_failed: false,
        result,
    }
}

impl HedgeResult {
    fn once(result: Result<Completion, ModelError>) -> Self {
        Self {
            result,
            is_hedged: false,
            is_second: false,
            other_failed: false,
        }
    }
}

/// State shared by both requests: the watcher, and which request produced the first piece.
struct Track<'w, 'l>(Mutex<HedgeState<'w, 'l>>);

struct HedgeState<'w, 'l> {
    watch: &'w mut ObserverRelay<'l>,
    leader: Option<usize>,
}

impl<'w, 'l> Track<'w, 'l> {
    fn lane(&self, number: usize) -> HedgedRequest<'_, 'w, 'l> {
        HedgedRequest {
            track: self,
            number,
        }
    }

    fn leader(&self) -> Option<usize> {
        self.lock().leader
    }

    fn tell(&self, routing: Routing) {
        self.lock().watch.routing(routing);
    }

    fn lock(&self) -> MutexGuard<'_, HedgeState<'w, 'l>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the two requests. After the first piece, only the request that produced it is forwarded.
struct HedgedRequest<'t, 'w, 'l> {
    track: &'t Track<'w, 'l>,
    number: usize,
}

impl HedgedRequest<'_, '_, '_> {
    const FIRST: usize = 0;
    const SECOND: usize = 1;
}

impl CompletionObserver for HedgedRequest<'_, '_, '_> {
    fn delta(&mut self, delta: Delta) {
        let mut state = self.track.lock();
        if *state.leader.get_or_insert(self.number) == self.number {
            state.watch.delta(delta);
        }
    }

    fn routing(&mut self, routing: Routing) {
        self.track.tell(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.track.lock().watch.side_request(request);
    }

    fn room(&mut self) -> BoxFuture<'static, ()> {
        self.track.lock().watch.room()
    }
}

#[cfg(test)]
#[path = "hedge_tests.rs"]
mod tests;
