//! The way of a run's events: into its journal and then to its readers, or to the run that it is inside of. Pieces of
//! replies are sent to the readers alone.

use super::CallEventSender;
use crate::run::cancel::RunCancel;
use crate::run::open_calls::OpenCalls;
use std::mem;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{CancelRequested, Event, EventKind, Journal, Seal};
use uuid::Uuid;

/// The result of publishing events that happened together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publication {
    Recorded,
    /// The journal refused events with which calls begin, because the run is cancelled. They are recorded together with its
    /// end, which has to come next, so that nothing is lost of what came with them.
    Held,
}

/// Where a run's events go.
pub(in crate::run) enum Sink {
    Journal(Publisher),
    /// A sub-agent's are events of the run that called it.
    Parent {
        /// The call that it answers, behind those that it is nested in.
        calls: Vec<String>,
        /// How many calls wait for that one.
        call_depth: u8,
        events: CallEventSender,
    },
}

impl Sink {
    /// Records events that happened together in one write, and shows them. Nothing may follow from them before this
    /// returns, or if they are held. Pieces of a reply are shown and not recorded; nothing follows from them.
    ///
    /// `then` is done when events are recorded, and before they are shown. It is not done where they are held, or where this
    /// process has lost the run.
    ///
    /// # Errors
    /// It is not known to be recorded, so nothing may follow from it, and nothing more may be published.
    pub(super) async fn publish(
        &mut self,
        kinds: Vec<EventKind>,
        grace: &mut EndGrace,
        then: impl Future<Output = ()>,
    ) -> Result<Publication, RunError> {
        match self {
            Self::Journal(publisher) => publisher.publish(kinds, grace, then).await,
            // The run around it waits for the same journal, with its own grace, and drops this one when that is over.
            Self::Parent { calls, events, .. } => {
                let are_shown_only = kinds.iter().all(EventKind::is_shown_only);
                let kinds = kinds.into_iter().map(|kind| within(calls, kind)).collect();
                if are_shown_only {
                    events.tell_all(kinds).await;
                } else {
                    events.record(kinds).await;
                    then.await;
                }
                Ok(Publication::Recorded)
            }
        }
    }

    /// How many calls wait for the run, each of which holds its places meanwhile.
    pub(super) fn call_depth(&self) -> u8 {
        match self {
            Self::Journal(_) => 0,
            Self::Parent { call_depth, .. } => *call_depth,
        }
    }

    /// Whether events wait for the end of the run.
    pub(super) fn is_holding(&self) -> bool {
        matches!(self, Self::Journal(publisher) if !publisher.held.is_empty())
    }

    /// # Errors
    /// Some of what was recorded was not shown, because nothing read it.
    pub(super) fn was_read(&self) -> Result<(), RunError> {
        match self {
            Self::Journal(Publisher { sender: None, .. }) => {
                Err(RunError::Unread { waited: END_GRACE })
            }
            Self::Journal(_) | Self::Parent { .. } => Ok(()),
        }
    }
}

/// How long the journal and the readers of a run may take, in all waits for them, from its cancellation or its deadline
/// on. A database that is only slow, or connects again, records the run's end in this time.
const END_GRACE: Duration = Duration::from_secs(10);

/// Says when a run that is to end waits no longer for its journal and its readers.
pub(super) struct EndGrace {
    pub(super) cancel: RunCancel,
    pub(super) deadline: Instant,
    /// Known once the run is to end.
    pub(super) until: Option<Instant>,
}

impl EndGrace {
    /// Returns when a cancelled run, or one past its deadline, has waited long enough.
    async fn over(&mut self) {
        let until = if let Some(until) = self.until {
            until
        } else {
            tokio::select! {
                _ = self.cancel.cancelled() => {}
                () = sleep_until(self.deadline) => {}
            }
            *self.until.insert(Instant::now() + END_GRACE)
        };
        sleep_until(until).await;
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

/// Adds the ends of calls that are left behind, numbers events, journals them, and only then shows them. Shows pieces of
/// replies, which have no number of their own.
pub(in crate::run) struct Publisher {
    pub(super) run: Uuid,
    pub(super) seq: u64,
    /// Of the event before.
    pub(super) seal: Seal,
    pub(super) open: OpenCalls,
    /// Events that the journal refused, because calls begin with them and the run is cancelled: they wait for its end.
    pub(super) held: Vec<Event>,
    pub(super) journal: Box<dyn Journal>,
    /// Absent once a run that is to end has given up its readers.
    pub(super) sender: Option<mpsc::Sender<Event>>,
}

impl Publisher {
    /// A journal that does not answer ends the run where its record ends: what was handed to it may still be recorded, or
    /// may not, so nothing is shown or done any more. Readers that do not read are given up instead, because the record
    /// is whole without them, and a cancelled run without its end in the record would be resumed.
    async fn publish(
        &mut self,
        kinds: Vec<EventKind>,
        grace: &mut EndGrace,
        then: impl Future<Output = ()>,
    ) -> Result<Publication, RunError> {
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let was_held = !self.held.is_empty();
        let mut kinds = kinds.into_iter().peekable();
        // At once: a piece waits for no journal.
        while let Some(kind) = kinds.next_if(EventKind::is_shown_only) {
            let piece = self.piece(kind, at_ms);
            self.show(piece, grace).await;
        }
        if kinds.peek().is_none() {
            return Ok(if was_held {
                Publication::Held
            } else {
                Publication::Recorded
            });
        }
        let failed = |error: serde_json::Error| RunError::Journal {
            source: error.into(),
        };
        let mut events = mem::take(&mut self.held);
        // Of the events that are recorded, as they were written for their seals.
        let lines: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
        let mut lines = lines.map_err(failed)?;
        // Pieces behind recorded events, with the number of events before each.
        let mut pieces = Vec::new();
        for kind in kinds {
            if kind.is_shown_only() {
                pieces.push((events.len(), self.piece(kind, at_ms)));
                continue;
            }
            for kind in self.open.with_ends(kind) {
                let event = Event {
                    run: self.run,
                    seq: self.seq,
                    at_ms,
                    kind,
                    removed: None,
                    seal: Seal::default(),
                };
                let (event, line) = event.sealed_with_line(&self.seal).map_err(failed)?;
                self.seal = event.seal.clone();
                self.seq += 1;
                events.push(event);
                lines.push(line);
            }
        }
        let is_end = |event: &Event| matches!(event.kind, EventKind::Done { .. });
        let has_end = events.iter().any(is_end);
        if was_held && !has_end {
            self.held = events;
            return Ok(Publication::Held);
        }
        let appended = tokio::select! {
            // An answer counts, also one that comes in the last moment.
            biased;
            appended = self.journal.append_with_lines(&events, lines) => appended,
            () = grace.over() => return Err(RunError::JournalSilent { waited: END_GRACE }),
        };
        match appended {
            Ok(()) => self.open.recorded(),
            Err(error) if CancelRequested::is_cause_of(&error) && !has_end => {
                // At once, so that no call begins that waits for its turn.
                grace.cancel.cancel();
                self.held = events;
                return Ok(Publication::Held);
            }
            Err(source) => return Err(RunError::Journal { source }),
        }
        then.await;
        let mut pieces = pieces.into_iter().peekable();
        for (before, event) in events.into_iter().enumerate() {
            while let Some((_, piece)) = pieces.next_if(|(place, _)| *place <= before) {
                self.show(piece, grace).await;
            }
            self.show(event, grace).await;
        }
        for (_, piece) in pieces {
            self.show(piece, grace).await;
        }
        Ok(Publication::Recorded)
    }

    /// A piece of a reply behind the last event that has a number.
    fn piece(&self, kind: EventKind, at_ms: u64) -> Event {
        Event {
            run: self.run,
            seq: self.seq.saturating_sub(1),
            at_ms,
            kind,
            removed: None,
            seal: Seal::default(),
        }
    }

    async fn show(&mut self, event: Event, grace: &mut EndGrace) {
        if let EventKind::Delta { .. } = &event.kind {
            self.journal.shown(&event);
        }
        let Some(sender) = &self.sender else {
            return;
        };
        tokio::select! {
            biased;
            // A reader that went away does not end the run; its journal is still being written.
            _ = sender.send(event) => {}
            () = grace.over() => self.sender = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use std::future::ready;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A journal that answers `left` times, and then never again.
    #[derive(Debug)]
    struct AnswersFor {
        left: usize,
        recorded: Arc<Mutex<Vec<u64>>>,
    }

    impl Journal for AnswersFor {
        fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
            Box::pin(async move {
                if self.left == 0 {
                    std::future::pending::<()>().await;
                }
                self.left -= 1;
                let numbers = events.iter().map(|event| event.seq);
                self.recorded.lock().unwrap().extend(numbers);
                Ok(())
            })
        }
    }

    struct Published {
        sink: Sink,
        recorded: Arc<Mutex<Vec<u64>>>,
        events: mpsc::Receiver<Event>,
    }

    /// A sink whose journal answers `answers` times, with a reader that has room for one event.
    fn published(answers: usize) -> Published {
        let recorded = Arc::<Mutex<Vec<u64>>>::default();
        let (sender, events) = mpsc::channel(1);
        let sink = Sink::Journal(Publisher {
            run: Uuid::nil(),
            seq: 0,
            seal: Seal::default(),
            open: OpenCalls::default(),
            held: Vec::new(),
            journal: Box::new(AnswersFor {
                left: answers,
                recorded: recorded.clone(),
            }),
            sender: Some(sender),
        });
        Published {
            sink,
            recorded,
            events,
        }
    }

    fn grace(cancel: &RunCancel, time_left: Duration) -> EndGrace {
        EndGrace {
            cancel: cancel.clone(),
            deadline: Instant::now() + time_left,
            until: None,
        }
    }

    fn notice() -> Vec<EventKind> {
        vec![EventKind::Notice {
            step: 0,
            message: "said".into(),
        }]
    }

    const LONG: Duration = Duration::from_hours(1);

    /// Fails at a wait without an end: the paused clock advances whenever all tasks wait.
    async fn ends<T>(wait: impl Future<Output = T>) -> T {
        let bound = tokio::time::timeout(2 * LONG, wait);
        bound.await.expect("the wait ends")
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_does_not_wait_for_a_journal_that_never_answers() {
        let mut at = published(0);
        let cancel = RunCancel::default();
        let mut grace = grace(&cancel, LONG);
        cancel.cancel();
        let begun = Instant::now();
        let said = ends(at.sink.publish(notice(), &mut grace, ready(()))).await;
        assert!(
            matches!(said, Err(RunError::JournalSilent { .. })),
            "{said:?}"
        );
        assert_eq!(begun.elapsed().as_secs(), END_GRACE.as_secs());
        drop(at.sink);
        let shown = at.events.recv().await;
        assert!(shown.is_none(), "only what is recorded is shown");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_past_its_deadline_does_not_wait_for_a_journal_that_never_answers() {
        let mut at = published(0);
        let mut grace = grace(&RunCancel::default(), Duration::from_mins(1));
        let begun = Instant::now();
        let said = ends(at.sink.publish(notice(), &mut grace, ready(()))).await;
        assert!(
            matches!(said, Err(RunError::JournalSilent { .. })),
            "{said:?}"
        );
        assert_eq!(begun.elapsed().as_secs(), 60 + END_GRACE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_is_recorded_to_its_end_though_nothing_reads_its_events() {
        let mut at = published(usize::MAX);
        let cancel = RunCancel::default();
        let mut grace = grace(&cancel, LONG);
        at.sink
            .publish(notice(), &mut grace, ready(()))
            .await
            .unwrap();
        at.sink.was_read().unwrap();
        cancel.cancel();
        let begun = Instant::now();
        for _ in 0..3 {
            ends(at.sink.publish(notice(), &mut grace, ready(())))
                .await
                .unwrap();
        }
        assert_eq!(*at.recorded.lock().unwrap(), [0, 1, 2, 3]);
        let taken = begun.elapsed().as_secs();
        assert_eq!(taken, END_GRACE.as_secs(), "all waits together");
        let said = at.sink.was_read();
        assert!(matches!(said, Err(RunError::Unread { .. })), "{said:?}");
        assert_eq!(at.events.recv().await.unwrap().seq, 0);
        let next = at.events.recv().await;
        assert!(next.is_none(), "no event comes after a gap");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_is_shown_to_a_reader_that_is_slow() {
        let Published {
            mut sink,
            mut events,
            ..
        } = published(usize::MAX);
        let cancel = RunCancel::default();
        let mut grace = grace(&cancel, LONG);
        cancel.cancel();
        let both = notice().into_iter().chain(notice()).collect();
        let reads = async {
            tokio::time::sleep(END_GRACE / 2).await;
            let first = events.recv().await.unwrap().seq;
            [first, events.recv().await.unwrap().seq]
        };
        let all = async { tokio::join!(sink.publish(both, &mut grace, ready(())), reads) };
        let (said, read) = ends(all).await;
        said.unwrap();
        assert_eq!(read, [0, 1]);
        sink.was_read().unwrap();
    }
}
