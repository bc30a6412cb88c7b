//! Where a run's events go: into its journal and then to its readers, or to the run that it is inside of.

use super::CallEventSender;
use crate::run::open_calls::OpenCalls;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{Event, EventKind, Journal, Seal};
use uuid::Uuid;

/// Where a run's events go.
pub(in crate::run) enum Sink {
    Journal(Publisher),
    /// A sub-agent's are events of the run that called it.
    Parent {
        /// The call that it answers, behind those that it is nested in.
        calls: Vec<String>,
        events: CallEventSender,
    },
}

impl Sink {
    /// What happened together is recorded together. Only when this returns may anything follow from it.
    pub(super) async fn publish(&mut self, kinds: Vec<EventKind>) -> Result<(), RunError> {
        match self {
            Self::Journal(publisher) => publisher.publish(kinds).await,
            Self::Parent { calls, events } => {
                let kinds = kinds.into_iter().map(|kind| within(calls, kind));
                events.record(kinds.collect()).await;
                Ok(())
            }
        }
    }
}

/// An event of the last of `calls`, each of which is nested in the one before.
pub(super) fn within(calls: &[String], event: EventKind) -> EventKind {
    calls
        .iter()
        .rev()
        .fold(event, |event, call| EventKind::Sub {
            call: call.clone(),
            what: Box::new(event),
        })
}

/// Adds the ends of calls that are left behind, numbers events, journals them, and only then shows them.
pub(in crate::run) struct Publisher {
    pub(super) run: Uuid,
    pub(super) seq: u64,
    /// Of the event before.
    pub(super) seal: Seal,
    pub(super) open: OpenCalls,
    pub(super) journal: Box<dyn Journal>,
    pub(super) sender: mpsc::Sender<Event>,
}

impl Publisher {
    async fn publish(&mut self, kinds: Vec<EventKind>) -> Result<(), RunError> {
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let mut events = Vec::with_capacity(kinds.len());
        let open = &mut self.open;
        for kind in kinds.into_iter().flat_map(|kind| open.with_ends(kind)) {
            let event = Event {
                run: self.run,
                seq: self.seq,
                at_ms,
                kind,
                seal: Seal::default(),
            };
            let event = event
                .sealed(&self.seal)
                .map_err(|error| RunError::Journal {
                    source: error.into(),
                })?;
            self.seal = event.seal.clone();
            self.seq += 1;
            events.push(event);
        }
        self.journal
            .append(&events)
            .await
            .map_err(|source| RunError::Journal { source })?;
        for event in events {
            // A reader that went away does not end the run; its journal is still being written.
            let _ = self.sender.send(event).await;
        }
        Ok(())
    }
}
