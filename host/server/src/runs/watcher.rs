//! Follows a run.

use crate::runs::dispatcher::DispatcherInner;
use crate::runs::takeover;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_storage::{LeaseState, RecordError};
use uuid::Uuid;

/// Reads a run's events in order, each once: earlier ones from the database, later ones as they happen. A
/// watcher that falls behind, or whose run works in another process, reads from the database.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<DispatcherInner>,
    pub run: Uuid,
    next: u64,
    /// Events read from the database and not returned yet, last first.
    read: Vec<Arc<Event>>,
    /// Whether the database may have more.
    reads: bool,
    follow: LaterEvents,
    is_over: bool,
}

/// The source of events after the recorded ones.
#[derive(Debug)]
pub(super) enum LaterEvents {
    /// None: only the recorded events are wanted.
    No,
    Live(broadcast::Receiver<Arc<Event>>),
    /// Events that another process writes; or this process, if it resumes the run. Until then no process here
    /// drives the run.
    Others(Option<Instant>),
}

/// Poll interval for events of a run that another process drives.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a run that no process drives counts as parked: the time that another server needs to take
/// it over, and the grace of one that has just started.
const ABANDONED_AFTER: Duration =
    takeover::MAX_TAKEOVER_TIME.saturating_add(Duration::from_secs(5));

impl Watcher {
    pub(super) fn new(
        inner: Arc<DispatcherInner>,
        run: Uuid,
        from: u64,
        follow: LaterEvents,
    ) -> Self {
        Self {
            inner,
            run,
            next: from,
            read: Vec::new(),
            reads: true,
            follow,
            is_over: false,
        }
    }

    /// Waits for the first event of a run that was just begun here, and keeps it. Returns whether there is
    /// one.
    pub(super) async fn has_begun(&mut self) -> bool {
        let LaterEvents::Live(live) = &mut self.follow else {
            return false;
        };
        match live.recv().await {
            Ok(first) => {
                // The first event has no predecessor.
                self.reads = false;
                self.read.push(first);
                true
            }
            Err(broadcast::error::RecvError::Lagged(_)) => true,
            Err(broadcast::error::RecvError::Closed) => false,
        }
    }

    /// The next event. `None` after the last: the run is over, or no process drives it.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, RecordError> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            if let Some(event) = self.read.pop() {
                return Ok(Some(self.hand_out(event)));
            }
            if self.reads {
                let page = self.page().await?;
                self.reads = !page.is_empty();
                self.read = page.into_iter().rev().map(Arc::new).collect();
                continue;
            }
            match &mut self.follow {
                LaterEvents::No => return Ok(None),
                LaterEvents::Live(live) => match live.recv().await {
                    Ok(event) if event.seq < self.next => {}
                    Ok(event) if event.seq == self.next => return Ok(Some(self.hand_out(event))),
                    // The channel dropped events while the database was read.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => self.reads = true,
                    Err(broadcast::error::RecvError::Closed) => {
                        // The last events may have been written after the previous query.
                        self.follow = LaterEvents::Others(None);
                        self.reads = true;
                    }
                },
                LaterEvents::Others(alone) => {
                    let now = Instant::now();
                    match self.inner.store.lease_state(self.run).await {
                        Ok(LeaseState::Held) => *alone = None,
                        Ok(LeaseState::Free) => _ = alone.get_or_insert(now),
                        // All events were read, or the record was deleted.
                        Ok(LeaseState::Ended) => {
                            self.follow = LaterEvents::No;
                            self.reads = true;
                            continue;
                        }
                        // The run may have been held during the whole wait.
                        Err(error) if error.outage().is_some() => *alone = None,
                        Err(error) => return Err(error.into()),
                    }
                    let is_abandoned =
                        alone.is_some_and(|since| now.duration_since(since) > ABANDONED_AFTER);
                    if is_abandoned || self.inner.closing.is_cancelled() {
                        return Ok(None);
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                    if let Some(live) = self.inner.live(self.run) {
                        self.follow = LaterEvents::Live(live);
                    }
                    self.reads = true;
                }
            }
        }
    }

    /// Reads recorded events as soon as the database can be read.
    async fn page(&self) -> Result<Vec<Event>, RecordError> {
        loop {
            match self.inner.store.events(self.run, self.next).await {
                Err(RecordError::Store(error))
                    if error.outage().is_some()
                        && !matches!(self.follow, LaterEvents::No)
                        && !self.inner.closing.is_cancelled() =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                read => return read,
            }
        }
    }

    fn hand_out(&mut self, event: Arc<Event>) -> Arc<Event> {
        self.next = event.seq + 1;
        if let LaterEvents::Others(alone) = &mut self.follow {
            *alone = None;
        }
        self.is_over = matches!(event.kind, EventKind::Done { .. });
        event
    }
}
