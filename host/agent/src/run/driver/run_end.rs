//! The end of a run, about which its calls ask before they begin, and its requests to models whenever they go on.

use crate::run::cancel::RunCancel;
use crate::run::machine::Input;
use crate::run::replay::Replayed;
use crate::run::sub_agent::SubAgentEnd;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use toolhold_policy::BeginCheck;
use toolhold_protocol::event::EventKind;

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
}

impl BeginCheck for RunEnd {
    fn may_begin(&self) -> bool {
        !self.is_noted.load(Ordering::Acquire)
            && !self.cancel.is_cancelled()
            && self.outer.as_ref().is_none_or(|outer| outer.may_begin())
    }
}

/// The events that a run lacks when it is cancelled after these records, and its end.
pub(super) fn last_events(
    recorded: Replayed,
    reason: Option<String>,
    elapsed: Duration,
) -> (Vec<EventKind>, Option<SubAgentEnd>) {
    let Replayed {
        mut machine,
        unsaid: mut events,
        ..
    } = recorded;
    events.extend(machine.handle(Input::Cancelled { reason }, elapsed).events);
    let spent = machine.spent();
    let end = events
        .iter()
        .find_map(|event| SubAgentEnd::of(event, spent));
    (events, end)
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
