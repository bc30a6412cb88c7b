//! Follows a run.

use crate::rights::{Right, RightEnd};
use crate::runs::dispatcher::DispatcherInner;
use crate::runs::live::{LiveEvent, LiveEvents, LivePlace};
use crate::runs::takeover;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::broadcast;
use toolhold_connections::{UnsentBytes, UnsentShare};
use toolhold_json::bounded;
use toolhold_protocol::event::{Event, EventKind, ReplySoFar, ShownText, TextMissing};
use toolhold_protocol::reply_offset::StreamPosition;
use toolhold_storage::{LeaseState, PageBounds, RecordError, RecordLine, RecordPage};
use uuid::Uuid;

/// Reads a run's events in order, each once: earlier ones from the database, later ones as they happen. A
/// watcher that falls behind, or whose run works in another process, reads from the database.
///
/// Pieces of replies are no events of the database. They come as they are written, if the run works in this process;
/// otherwise, and where some were missed, they are made out of the reply that is being written or was recorded
/// ([`ShownText`]). So each watcher gets all text of each reply of the run once, before the event of the whole reply. Pieces
/// of sub-agents' replies are shown only to those who watch when they come.
///
/// The events of a page from there count as unsent answers of the client until the page is used up, and so do their texts,
/// which are sent meanwhile. Events that come as they happen are small, or have a place in the room of their run until the
/// next event is asked for.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<DispatcherInner>,
    pub run: Uuid,
    next: u64,
    /// How much of the reply was shown that is being written.
    shown: ShownText,
    /// Whether the reply that is being written may have text that was not shown.
    lacks_text: bool,
    /// Events read from the database and not returned yet, last first.
    read: Vec<Arc<Event>>,
    /// The memory of the events that were read last.
    unsent: Option<UnsentBytes>,
    /// The place of the event that came as it happened and was returned last, if it is a larger one.
    place: Option<Arc<LivePlace>>,
    viewer: Viewer,
    /// Whether the database may have more.
    reads: bool,
    follow: LaterEvents,
    is_over: bool,
}

/// The client that watches a run.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// The right to see the run: nothing more is read or sent once it has ended.
    pub right: Right,
    /// The client's share of memory for unsent answers.
    pub share: UnsentShare,
}

/// The reason why a watcher has no further event, although the run may have some.
#[derive(Debug, Error)]
pub enum WatchError {
    #[error(transparent)]
    Right(#[from] RightEnd),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The source of events after the recorded ones.
#[derive(Debug)]
pub(super) enum LaterEvents {
    /// None: only the recorded events are wanted.
    No,
    Live(LiveEvents),
    /// Events that another process writes; or this process, if it resumes the run. Until then no process here
    /// drives the run.
    Others(Option<Instant>),
}

/// Events that a watcher reads at a time. It waits for its client to read them before it reads more.
const PAGE: PageBounds = PageBounds {
    events: 512,
    bytes: 256 << 10,
    longest: PAGE_MEMORY / TEXTS,
};
/// Bytes that are reserved before a page is read. A page that needs more is read again.
const PAGE_MEMORY: u64 = 1 << 20;
/// Texts of an event beside its value: as it is recorded, and as it is sent.
const TEXTS: u64 = 2;

/// Bytes of a reply that is being written from which its text is counted as unsent, as that of a page is.
const SMALL_TEXT: u64 = 16 << 10;

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
        after: Option<StreamPosition>,
        follow: LaterEvents,
        viewer: Viewer,
    ) -> Self {
        let next = after
            .as_ref()
            .map_or(0, |after| after.seq.saturating_add(1));
        let offset = after.map(|after| after.offset).unwrap_or_default();
        Self {
            inner,
            run,
            next,
            shown: ShownText::at(offset),
            lacks_text: true,
            read: Vec::new(),
            unsent: None,
            place: None,
            viewer,
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
            Ok(LiveEvent::Small(first)) => {
                // The first event has no predecessor.
                self.reads = false;
                self.read.push(first);
                true
            }
            Ok(LiveEvent::Large(first, place)) => {
                self.reads = false;
                self.read.push(first);
                self.place = Some(place);
                true
            }
            Ok(LiveEvent::Recorded(_) | LiveEvent::Piece(_) | LiveEvent::LargePiece(_))
            | Err(broadcast::error::RecvError::Lagged(_)) => true,
            Err(broadcast::error::RecvError::Closed) => false,
        }
    }

    /// The next event. `None` after the last: the run is over, or no process drives it.
    ///
    /// # Errors
    /// [`WatchError`]: the viewer's right has ended, or the record cannot be read.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, WatchError> {
        let right = self.viewer.right.clone();
        // The end of the right counts before an event that has arrived. To look at it is cheap; to wait for it takes a lock
        // that all holders of the right share, so that is left out where an event is there.
        right.check()?;
        tokio::select! {
            biased;
            event = self.next_event() => {
                right.check()?;
                Ok(event?)
            }
            end = right.ended() => Err(end.into()),
        }
    }

    async fn next_event(&mut self) -> Result<Option<Arc<Event>>, RecordError> {
        loop {
            if self.is_over {
                self.unsent = None;
                drop(self.place.take());
                return Ok(None);
            }
            if let Some(event) = self.read.pop() {
                if event.kind.is_shown_only() {
                    return Ok(Some(event));
                }
                let pieces = self.shown.before(&event);
                if pieces.is_empty() {
                    return Ok(Some(self.hand_out(event)));
                }
                self.read.push(event);
                self.read.extend(pieces.into_iter().rev().map(Arc::new));
                continue;
            }
            self.unsent = None;
            drop(self.place.take());
            if self.reads {
                let Some((page, unsent)) = self.page().await? else {
                    return Ok(None);
                };
                self.reads = !page.is_empty();
                self.read = page.into_iter().rev().map(Arc::new).collect();
                self.unsent = Some(unsent);
                self.lacks_text = true;
                continue;
            }
            if self.lacks_text {
                self.lacks_text = false;
                self.read = self.text_so_far().await;
                continue;
            }
            match &mut self.follow {
                LaterEvents::No => return Ok(None),
                LaterEvents::Live(live) => match live.recv().await {
                    Ok(LiveEvent::Piece(piece)) if piece.seq < self.next => {
                        let is_subs = matches!(piece.kind, EventKind::Sub { .. });
                        if is_subs && piece.seq + 1 < self.next {
                            // It is in events that were read.
                            continue;
                        }
                        match self.shown.take_piece(&piece) {
                            Ok(Some(piece)) => return Ok(Some(Arc::new(piece))),
                            Ok(None) => {}
                            Err(TextMissing) => self.lacks_text = true,
                        }
                    }
                    Ok(LiveEvent::LargePiece(seq)) if seq < self.next => self.lacks_text = true,
                    Ok(event) if event.seq() < self.next => {}
                    Ok(LiveEvent::Small(event)) if event.seq == self.next => self.read.push(event),
                    Ok(LiveEvent::Large(event, place)) if event.seq == self.next => {
                        self.read.push(event);
                        self.place = Some(place);
                    }
                    // It is one that is in the database alone or a piece behind one, or the channel dropped events while the
                    // database was read.
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
                    self.lacks_text = true;
                }
            }
        }
    }

    /// Pieces that were not shown of the reply that is being written, last first.
    async fn text_so_far(&mut self) -> Vec<Arc<Event>> {
        let reply = match &self.follow {
            LaterEvents::No => None,
            LaterEvents::Live(_) => self.reply_here().await,
            LaterEvents::Others(_) => self.reply_elsewhere().await.map(|reply| (reply, None)),
        };
        let Some((reply, counted)) = reply else {
            return Vec::new();
        };
        let pieces = self.shown.lacking(&reply, self.run, self.next);
        if pieces.is_empty() {
            return Vec::new();
        }
        self.unsent = counted;
        if self.unsent.is_none() {
            self.unsent = self.room_for(reply.text.text_bytes() as u64).await;
        }
        pieces.into_iter().rev().map(Arc::new).collect()
    }

    /// The reply that is being written in this process, as soon as there is memory for a copy. A small one is not counted.
    async fn reply_here(&self) -> Option<(ReplySoFar, Option<UnsentBytes>)> {
        let reply = self.inner.shared_reply(self.run)?;
        let (mut room, mut counted) = (SMALL_TEXT / TEXTS, None);
        loop {
            let bytes = match reply.copy(room) {
                Ok(copy) => return Some((copy, counted)),
                Err(bytes) => bytes,
            };
            // Who waits for more keeps nothing meanwhile.
            drop(counted.take());
            // The text grows during the wait.
            room = bytes.saturating_add(bytes / 4);
            counted = Some(self.room_for(room).await?);
        }
    }

    /// The reply that is being written in another process. The database has only short ones.
    async fn reply_elsewhere(&self) -> Option<ReplySoFar> {
        match self.inner.store.reply_so_far(self.run).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(run = %self.run, %error, "the text comes when the reply is recorded");
                None
            }
        }
    }

    /// Waits for memory for the texts of a reply and for their pieces. `None` if they are small, or the server stops.
    async fn room_for(&self, bytes: u64) -> Option<UnsentBytes> {
        let bytes = bytes.saturating_mul(TEXTS);
        if bytes <= SMALL_TEXT {
            return None;
        }
        tokio::select! {
            unsent = self.viewer.share.wait(bytes) => Some(unsent),
            () = self.inner.closing.cancelled() => None,
        }
    }

    /// The place behind `event`, which was returned last. `None` for a piece of a sub-agent's reply: its text alone does
    /// not say where it was.
    pub fn behind(&self, event: &Event) -> Option<StreamPosition> {
        let offset = match &event.kind {
            EventKind::Delta {
                delta,
                from: Some(from),
                ..
            } => {
                let mut offset = from.clone();
                offset.pass(delta);
                offset
            }
            kind if kind.is_shown_only() => return None,
            _ => self.shown.offset().clone(),
        };
        let seq = event.seq;
        Some(StreamPosition { seq, offset })
    }

    /// The client's share of memory for unsent answers.
    pub fn share(&self) -> &UnsentShare {
        &self.viewer.share
    }

    /// True after the run's last event.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if this server stops.
    pub fn is_closing(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Waits until the run is over, or no process drives it. Returns whether it is over.
    ///
    /// # Errors
    /// Those of [`Self::next`].
    pub async fn ended(mut self) -> Result<bool, WatchError> {
        // What is awaited is the last event alone.
        if let LaterEvents::Live(live) = &mut self.follow {
            live.without_pieces();
        }
        while self.next().await?.is_some() {}
        Ok(self.is_over)
    }

    /// Reads recorded events as soon as there is memory for them and the database can be read. `None` if the server
    /// stops before.
    async fn page(&self) -> Result<Option<(Vec<Event>, UnsentBytes)>, RecordError> {
        let mut memory = PAGE_MEMORY;
        loop {
            // A client that takes nothing for long loses its connection, and this ends with it.
            let mut unsent = tokio::select! {
                unsent = self.viewer.share.wait(memory) => unsent,
                () = self.inner.closing.cancelled() => return Ok(None),
            };
            let bounds = PageBounds {
                longest: memory / TEXTS,
                ..PAGE
            };
            let lines = match self.inner.store.page(self.run, self.next, bounds).await {
                Ok(RecordPage::Lines(lines)) => lines,
                Ok(RecordPage::TooLong(bytes)) => {
                    memory = bytes.saturating_mul(TEXTS);
                    continue;
                }
                Err(error)
                    if error.outage().is_some()
                        && !matches!(self.follow, LaterEvents::No)
                        && !self.inner.closing.is_cancelled() =>
                {
                    drop(unsent);
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let needed = lines.iter().map(|line| weight(line.text())).sum();
            if needed > unsent.bytes() && unsent.grow_to(needed).is_err() {
                // It is read again, with all its memory: who waits for more keeps nothing meanwhile.
                memory = needed;
                continue;
            }
            unsent.shrink_to(needed);
            let events: Result<Vec<Event>, _> = lines.iter().map(RecordLine::event).collect();
            return Ok(Some((events?, unsent)));
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

/// Bytes that a text of JSON takes that is read and sent: its value, and its texts.
pub fn weight(text: &str) -> u64 {
    let texts = TEXTS * text.len() as u64;
    let value = bounded::weigh(text.as_bytes()).unwrap_or(bounded::MAX_MEMORY);
    texts.saturating_add(value)
}
