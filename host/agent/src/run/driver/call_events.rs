//! Carries events that happen within a run's calls into the run's record.

use tokio::sync::{mpsc, oneshot};
use toolhold_protocol::event::EventKind;

/// Tells a run what happens within its calls.
#[derive(Debug, Clone)]
pub(in crate::run) struct CallEventSender(mpsc::Sender<CallEvent>);

#[derive(Debug)]
pub(in crate::run) struct CallEvent {
    pub kind: EventKind,
    /// Told once it is recorded.
    pub recorded: Option<oneshot::Sender<()>>,
}

impl CallEventSender {
    pub fn channel(room: usize) -> (Self, mpsc::Receiver<CallEvent>) {
        let (sender, receiver) = mpsc::channel(room);
        (Self(sender), receiver)
    }

    pub async fn tell(&self, kind: EventKind) {
        self.send(kind, None).await;
    }

    /// Tells these, in their order. A run that is gone asks for nothing any more.
    pub async fn tell_all(&self, kinds: Vec<EventKind>) {
        for kind in kinds {
            self.tell(kind).await;
        }
    }

    /// When this returns, they are recorded.
    pub async fn record(&self, mut kinds: Vec<EventKind>) {
        let Some(last) = kinds.pop() else {
            return;
        };
        for kind in kinds {
            self.tell(kind).await;
        }
        let (recorded, is_recorded) = oneshot::channel();
        self.send(last, Some(recorded)).await;
        if is_recorded.await.is_err() {
            // The run ended or could not record the events; it drops the task that waits here.
            std::future::pending::<()>().await;
        }
    }

    /// Tells it if there is room for it now: for what is dropped.
    pub fn tell_if_room(&self, kind: EventKind) {
        let event = CallEvent {
            kind,
            recorded: None,
        };
        let _ = self.0.try_send(event);
    }

    async fn send(&self, kind: EventKind, recorded: Option<oneshot::Sender<()>>) {
        // A run that is gone drops its calls as well.
        let _ = self.0.send(CallEvent { kind, recorded }).await;
    }
}
