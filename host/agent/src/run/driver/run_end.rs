//! The end of a run, about which its calls ask before they begin, and its requests to models whenever they go on.

use crate::run::cancel::RunCancel;
use futures_util::future::BoxFuture;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;
use toolhold_policy::BeginCheck;

/// How long the reason of a cancellation is looked for. Without it, the run ends without a reason.
const REASON_WAIT: Duration = Duration::from_secs(1);

/// The end of a run, for its calls and for the runs inside of it.
#[derive(Debug)]
pub(super) struct RunEnd {
    is_noted: AtomicBool,
    cancel: RunCancel,
    /// The run around this one, or the right of its key.
    outer: Option<Arc<dyn BeginCheck>>,
}

impl RunEnd {
    pub fn new(cancel: RunCancel, outer: Option<Arc<dyn BeginCheck>>) -> Self {
        Self {
            is_noted: AtomicBool::new(false),
            cancel,
            outer,
        }
    }

    /// Notes that the run has ended, or is stopped.
    pub fn note(&self) {
        self.is_noted.store(true, Ordering::Release);
    }

    /// Returns the reply to a request to a model, if the run lasts until then. When it ends, the request goes no further:
    /// one that waits at an endpoint is not sent in the place that another one of the run leaves. The run drops it.
    pub async fn until<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        poll_fn(|context| {
            if self.may_begin() {
                request.as_mut().poll(context)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// The reason why the run is cancelled: the one that was given with it, or else the end of what the run is part of. Who
    /// ends the right of its key may cancel the run in the same moment, before this process knows why.
    pub async fn reason(&self, given: Option<String>) -> Option<String> {
        match given {
            Some(given) => Some(given),
            None => timeout(REASON_WAIT, self.why_not()).await.ok().flatten(),
        }
    }
}

impl BeginCheck for RunEnd {
    fn may_begin(&self) -> bool {
        !self.is_noted.load(Ordering::Acquire)
            && !self.cancel.is_cancelled()
            && self.outer.as_ref().is_none_or(|outer| outer.may_begin())
    }

    fn why_not(&self) -> BoxFuture<'_, Option<String>> {
        match &self.outer {
            Some(outer) => outer.why_not(),
            None => Box::pin(ready(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_request_that_waited_is_not_sent_when_its_run_has_ended() {
        for is_ended in [false, true] {
            let parent = Arc::new(RunEnd::new(RunCancel::default(), None));
            let run = RunEnd::new(RunCancel::default(), Some(parent.clone()));
            let (place, freed) = oneshot::channel::<()>();
            let is_sent = AtomicBool::new(false);
            let mut request = pin!(run.until(async {
                freed.await.unwrap();
                is_sent.store(true, Ordering::Relaxed);
            }));
            assert!(request.as_mut().now_or_never().is_none());
            if is_ended {
                parent.note();
            }
            place.send(()).unwrap();
            let reply = request.as_mut().now_or_never();
            assert_eq!(reply.is_none(), is_ended);
            assert_eq!(is_sent.load(Ordering::Relaxed), !is_ended);
        }
    }
}
