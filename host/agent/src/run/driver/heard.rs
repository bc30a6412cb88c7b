//! What the tasks of a run tell while they work, before they are done.

use crate::run::machine::Input;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use toolhold_model::CompletionObserver;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// Updates that are not taken yet, above which an endpoint is not read on, and pieces of a reply are joined.
const MAX_UNREAD: usize = 64;
/// Bytes from which a joined piece takes no more.
const JOINED_BYTES: usize = 16 << 10;
/// Pieces that others are joined to at the same time: the answer, the reasoning, and each call that is written.
const JOINS: usize = 16;

/// What a task tells while it works.
#[derive(Debug)]
pub(super) enum TaskUpdate {
    /// By the model.
    Wrote(Delta),
    /// Another event, which must not change the state of the run, but for calls that calls make: the machine notes these as
    /// a replay does.
    Event(Box<EventKind>),
}

impl TaskUpdate {
    /// The machine's input. `Err`: an event that is only recorded.
    pub(super) fn input(self) -> Result<Input, Box<EventKind>> {
        match self {
            Self::Wrote(delta) => Ok(Input::Wrote(delta)),
            Self::Event(event) => match *event {
                EventKind::SideRequest(request) => Ok(Input::SideRequest(request)),
                event => Err(Box::new(event)),
            },
        }
    }
}

/// The updates of a run's tasks. A sender never waits in [`Listener::delta`]; it waits between two reads of a reply
/// ([`CompletionObserver::room`]), so what is unread is bounded by [`MAX_UNREAD`] and the pieces of one read.
pub(super) fn updates() -> (UpdateSender, UpdateReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let unread = Arc::<UnreadUpdates>::default();
    let receiver = UpdateReceiver {
        updates: receiver,
        unread: unread.clone(),
        joined: VecDeque::new(),
    };
    (UpdateSender { sender, unread }, receiver)
}

#[derive(Debug, Default)]
struct UnreadUpdates {
    count: AtomicUsize,
    room: Notify,
}

impl UnreadUpdates {
    fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) <= MAX_UNREAD
    }
}

#[derive(Debug, Clone)]
pub(super) struct UpdateSender {
    sender: mpsc::UnboundedSender<TaskUpdate>,
    unread: Arc<UnreadUpdates>,
}

#[derive(Debug)]
pub(super) struct UpdateReceiver {
    updates: mpsc::UnboundedReceiver<TaskUpdate>,
    unread: Arc<UnreadUpdates>,
    /// Taken out of the channel together, and not given out yet.
    joined: VecDeque<TaskUpdate>,
}

impl UpdateSender {
    fn send(&self, update: TaskUpdate) {
        self.unread.count.fetch_add(1, Ordering::Relaxed);
        // An ended run drops updates.
        let _ = self.sender.send(update);
    }

    fn room(&self) -> BoxFuture<'static, ()> {
        // Nearly always, between any two reads of a reply.
        if self.unread.has_room() {
            return Box::pin(std::future::ready(()));
        }
        let (sender, unread) = (self.sender.clone(), self.unread.clone());
        Box::pin(async move {
            loop {
                let room = unread.room.notified();
                if unread.has_room() {
                    return;
                }
                tokio::select! {
                    () = room => {}
                    () = sender.closed() => return,
                }
            }
        })
    }
}

impl UpdateReceiver {
    /// The next update; `None` only when all senders are gone.
    pub(super) async fn recv(&mut self) -> Option<TaskUpdate> {
        if let Some(update) = self.try_recv() {
            return Some(update);
        }
        let update = self.updates.recv().await;
        self.taken(usize::from(update.is_some()));
        update
    }

    pub(super) fn try_recv(&mut self) -> Option<TaskUpdate> {
        if self.joined.is_empty() && self.updates.len() > MAX_UNREAD {
            self.join();
        }
        self.joined.pop_front().or_else(|| {
            let update = self.updates.try_recv().ok();
            self.taken(usize::from(update.is_some()));
            update
        })
    }

    fn taken(&self, count: usize) {
        self.unread.count.fetch_sub(count, Ordering::Relaxed);
        self.unread.room.notify_waiters();
    }

    /// Takes what waits up to the next event, and joins pieces of the same text: each piece that is given out is shown to
    /// each reader by itself, however short its text. Order is kept within each text.
    fn join(&mut self) {
        let mut count = 0;
        while let Ok(update) = self.updates.try_recv() {
            count += 1;
            let TaskUpdate::Wrote(piece) = update else {
                self.joined.push_back(update);
                break;
            };
            let piece =
                self.joined
                    .iter_mut()
                    .rev()
                    .take(JOINS)
                    .try_fold(piece, |piece, earlier| match earlier {
                        TaskUpdate::Wrote(earlier) => append(earlier, piece),
                        TaskUpdate::Event(_) => Err(Some(piece)),
                    });
            if let Ok(piece) | Err(Some(piece)) = piece {
                self.joined.push_back(TaskUpdate::Wrote(piece));
            }
        }
        self.taken(count);
    }
}

/// Joins `piece` to an earlier one of the same text: `Err(None)`. `Err(Some(_))` is the piece where it may be joined to none
/// before this one either, because that would change the order within its text.
fn append(earlier: &mut Delta, piece: Delta) -> Result<Delta, Option<Delta>> {
    if !earlier.is_of_same_text(&piece) {
        return Ok(piece);
    }
    if earlier.text().len() >= JOINED_BYTES {
        return Err(Some(piece));
    }
    match earlier.append(piece) {
        Ok(()) => Err(None),
        Err(piece) => Err(Some(piece)),
    }
}

pub(super) struct Listener {
    run: UpdateSender,
    /// When the last attempt began: what went before is no time of the endpoint.
    pub(super) asked: Instant,
    /// When the last piece of the reply came.
    last_piece: Option<Instant>,
    /// Times between pieces, in microseconds, of the first [`MAX_GAPS`].
    gaps_us: Vec<u32>,
}

/// Times between pieces of a reply that are kept, 64 KiB: enough for a percentile.
const MAX_GAPS: usize = 16 << 10;

impl Listener {
    pub(super) fn new(run: UpdateSender) -> Self {
        Self {
            run,
            asked: Instant::now(),
            last_piece: None,
            gaps_us: Vec::new(),
        }
    }

    /// The time within which 95 of 100 pieces came after the one before. `None` for one piece.
    pub(super) fn between_pieces_p95(&mut self) -> Option<Duration> {
        self.gaps_us.sort_unstable();
        // Rounded up.
        let rank = (self.gaps_us.len() * 95).div_ceil(100);
        let gap = self.gaps_us.get(rank.checked_sub(1)?)?;
        Some(Duration::from_micros((*gap).into()))
    }

    fn tell(&self, told: TaskUpdate) {
        self.run.send(told);
    }
}

impl CompletionObserver for Listener {
    fn delta(&mut self, delta: Delta) {
        let now = Instant::now();
        if let Some(last) = self.last_piece.replace(now)
            && self.gaps_us.len() < MAX_GAPS
        {
            let gap = now.duration_since(last).as_micros();
            self.gaps_us.push(u32::try_from(gap).unwrap_or(u32::MAX));
        }
        self.tell(TaskUpdate::Wrote(delta));
    }

    fn routing(&mut self, routing: Routing) {
        match &routing {
            // Told before the wait.
            Routing::Retry { wait_ms, .. } => {
                self.asked = Instant::now() + Duration::from_millis(*wait_ms);
            }
            // Told after it.
            Routing::Waited { .. } | Routing::MemberFailed { .. } => self.asked = Instant::now(),
            _ => {}
        }
        self.tell(TaskUpdate::Event(Box::new(EventKind::Routing(routing))));
    }

    fn side_request(&mut self, request: SideRequest) {
        self.tell(TaskUpdate::Event(Box::new(EventKind::SideRequest(request))));
    }

    fn room(&mut self) -> BoxFuture<'static, ()> {
        self.run.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> TaskUpdate {
        TaskUpdate::Wrote(Delta::Content(text.into()))
    }

    fn call(index: usize, name: Option<&str>, arguments: &str) -> TaskUpdate {
        TaskUpdate::Wrote(Delta::ToolCall {
            index,
            id: name.map(str::to_owned),
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        })
    }

    fn all(receiver: &mut UpdateReceiver) -> Vec<TaskUpdate> {
        std::iter::from_fn(|| receiver.try_recv()).collect()
    }

    #[test]
    fn few_pieces_are_given_out_as_they_came() {
        let (sender, mut receiver) = updates();
        for _ in 0..MAX_UNREAD {
            sender.send(content("a"));
        }
        assert_eq!(all(&mut receiver).len(), MAX_UNREAD);
    }

    #[test]
    fn many_pieces_are_joined_each_text_in_its_order() {
        let (sender, mut receiver) = updates();
        let (mut answer, mut arguments) = (String::new(), [String::new(), String::new()]);
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            sender.send(call(index, Some(name), ""));
        }
        for number in 0..20_000_usize {
            let piece = format!("{number} ");
            answer.push_str(&piece);
            sender.send(content(&piece));
            arguments[number % 2].push_str(&piece);
            sender.send(call(number % 2, None, &piece));
        }
        let given = all(&mut receiver);
        assert!(given.len() < 40, "{}", given.len());
        let (mut said, mut written) = (String::new(), [String::new(), String::new()]);
        for update in given {
            match update {
                TaskUpdate::Wrote(Delta::Content(text)) => said.push_str(&text),
                TaskUpdate::Wrote(Delta::ToolCall {
                    index, arguments, ..
                }) => written[index].push_str(&arguments),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((said, written), (answer, arguments));
    }

    #[test]
    fn nothing_is_joined_over_an_event_or_to_another_call_of_the_same_index() {
        let (sender, mut receiver) = updates();
        let waited = || {
            TaskUpdate::Event(Box::new(EventKind::Routing(Routing::Waited {
                endpoint: "e".into(),
                wait_ms: 1,
            })))
        };
        for update in [
            content("a"),
            call(0, Some("a"), "1"),
            call(0, Some("b"), "2"),
            content("b"),
        ] {
            sender.send(update);
        }
        sender.send(waited());
        for _ in 0..MAX_UNREAD {
            sender.send(content("c"));
        }
        let told: Vec<_> = all(&mut receiver)
            .into_iter()
            .map(|update| match update {
                TaskUpdate::Wrote(Delta::Content(text)) => text,
                TaskUpdate::Wrote(Delta::ToolCall { arguments, .. }) => arguments,
                _ => "event".into(),
            })
            .collect();
        assert_eq!(told[..4], ["ab", "1", "2", "event"]);
        assert_eq!(told[4..].concat(), "c".repeat(MAX_UNREAD));
    }

    #[test]
    fn the_time_between_pieces_is_that_of_95_in_100() {
        let (sender, _receiver) = updates();
        let mut listener = Listener::new(sender);
        assert_eq!(listener.between_pieces_p95(), None);
        listener.gaps_us = (1..=100).rev().collect();
        let gap = listener.between_pieces_p95();
        assert_eq!(gap, Some(Duration::from_micros(95)));
        listener.gaps_us = vec![7];
        let gap = listener.between_pieces_p95();
        assert_eq!(gap, Some(Duration::from_micros(7)));
    }

    #[tokio::test]
    async fn a_sender_waits_for_room_and_not_for_an_ended_run() {
        let (sender, mut receiver) = updates();
        for _ in 0..=MAX_UNREAD {
            sender.send(content("a"));
        }
        let waits = tokio::spawn(sender.room());
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        assert!(receiver.recv().await.is_some());
        waits.await.unwrap();
        for _ in 0..=MAX_UNREAD {
            sender.send(content("a"));
        }
        drop(receiver);
        sender.room().await;
    }
}
