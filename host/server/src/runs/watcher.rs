//! Whoever follows a run.

use crate::runs::dispatcher::Inner;
use crate::runs::takeover;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_storage::{LeaseState, RecordError};
use uuid::Uuid;

/// Reads a run's events in their order, each once: what was written before from the database, and then as
/// they happen. One that cannot keep up reads from the database again, and so does one whose run goes on in
/// another process.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<Inner>,
    pub run: Uuid,
    next: u64,
    /// Read from the database and not handed out yet, the last first.
    read: Vec<Arc<Event>>,
    /// Whether the database may have more.
    reads: bool,
    follow: Follow,
    is_over: bool,
}

/// What comes after what is written.
#[derive(Debug)]
pub(super) enum Follow {
    /// Nothing: what is recorded is all that is wanted.
    No,
    Live(broadcast::Receiver<Arc<Event>>),
    /// Whatever another process writes; or this one, once it goes on with the run. Nobody did since then.
    Others(Option<Instant>),
}

/// How often the database is asked for events of a run that another process drives.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// When a run that no process drives counts as parked: after the time that another server may take to resume
/// it, and that of one that has just started.
const ABANDONED_AFTER: Duration =
    takeover::MAX_TAKEOVER_TIME.saturating_add(Duration::from_secs(5));

impl Watcher {
    pub(super) fn new(inner: Arc<Inner>, run: Uuid, from: u64, follow: Follow) -> Self {
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

    /// Waits for the first event of a run that was just begun here, and gives it back: whether there is one.
    pub(super) async fn has_begun(&mut self) -> bool {
        let Follow::Live(live) = &mut self.follow else {
            return false;
        };
        match live.recv().await {
            Ok(first) => {
                // Nothing was written before it.
                self.reads = false;
                self.read.push(first);
                true
            }
            Err(broadcast::error::RecvError::Lagged(_)) => true,
            Err(broadcast::error::RecvError::Closed) => false,
        }
    }

    /// The next event. None after the last: the run is over, or no process goes on with it.
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
                Follow::No => return Ok(None),
                Follow::Live(live) => match live.recv().await {
                    Ok(event) if event.seq < self.next => {}
                    Ok(event) if event.seq == self.next => return Ok(Some(self.hand_out(event))),
                    // Some went by while the database was read.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => self.reads = true,
                    Err(broadcast::error::RecvError::Closed) => {
                        // Its last events may have come while we looked elsewhere.
                        self.follow = Follow::Others(None);
                        self.reads = true;
                    }
                },
                Follow::Others(alone) => {
                    let now = Instant::now();
                    match self.inner.store.lease_state(self.run).await {
                        Ok(LeaseState::Held) => *alone = None,
                        Ok(LeaseState::Free) => _ = alone.get_or_insert(now),
                        // All of it is written, or was deleted.
                        Ok(LeaseState::Ended) => {
                            self.follow = Follow::No;
                            self.reads = true;
                            continue;
                        }
                        // It may have been held all that time.
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
                        self.follow = Follow::Live(live);
                    }
                    self.reads = true;
                }
            }
        }
    }

    /// What is written: for whoever follows the run, as soon as it can be read.
    async fn page(&self) -> Result<Vec<Event>, RecordError> {
        loop {
            match self.inner.store.events(self.run, self.next).await {
                Err(RecordError::Store(error))
                    if error.outage().is_some()
                        && !matches!(self.follow, Follow::No)
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
        if let Follow::Others(alone) = &mut self.follow {
            *alone = None;
        }
        self.is_over = matches!(event.kind, EventKind::Done { .. });
        event
    }
}
