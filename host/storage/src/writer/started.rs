//! A write that is in the queue, or waits for room in it.

use super::Writer;
use super::entry::{Attachment, WriteEntry};
use super::{committed, gone};
use crate::change::Change;
use futures_util::future::BoxFuture;
use std::fmt::{self, Formatter};
use std::io;
use tokio::sync::oneshot;

/// A write that has begun. Its future ends with the commit.
#[must_use = "a write that waits for room in the queue is made by its future"]
pub enum StartedWrite {
    /// In the queue. It is made whether its future is awaited or not.
    Queued(BoxFuture<'static, io::Result<()>>),
    /// The queue is full. It is made only if its future runs to its end.
    Waiting(BoxFuture<'static, io::Result<()>>),
}

impl fmt::Debug for StartedWrite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Queued(_) => "Queued",
            Self::Waiting(_) => "Waiting",
        };
        f.debug_tuple(name).finish_non_exhaustive()
    }
}

impl IntoFuture for StartedWrite {
    type Output = io::Result<()>;
    type IntoFuture = BoxFuture<'static, io::Result<()>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Queued(written) | Self::Waiting(written) => written,
        }
    }
}

impl Writer {
    /// Begins to write `changes` in one transaction, with the durability of [`Writer::write`]. The `attachment` is dropped
    /// when they are written or refused.
    pub fn begin_write(
        &self,
        changes: Vec<Change>,
        durable: bool,
        attachment: Attachment,
    ) -> StartedWrite {
        let (done, is_done) = oneshot::channel();
        let entry = WriteEntry {
            changes,
            durable,
            done: Some(done),
            attachment: Some(attachment),
            expected_head: None,
        };
        match self.enqueue(entry) {
            None => StartedWrite::Queued(Box::pin(committed(is_done))),
            Some(entry) => {
                let writer = self.clone();
                StartedWrite::Waiting(Box::pin(async move {
                    writer.queue.send(entry).await.map_err(|_| gone())?;
                    writer.urgent.notify_one();
                    committed(is_done).await
                }))
            }
        }
    }

    /// Begins to queue a change, whose future ends when it is in the queue. The writer keeps queued audit rows in memory
    /// through an outage of any length, so the caller must bound their number, by what it attaches to each.
    pub fn queue(&self, change: Change, attachment: Attachment) -> StartedWrite {
        let entry = WriteEntry {
            attachment: Some(attachment),
            ..WriteEntry::unawaited(change)
        };
        match self.queue.try_send(entry) {
            Ok(()) => StartedWrite::Queued(Box::pin(std::future::ready(Ok(())))),
            Err(refused) => {
                let (writer, entry) = (self.clone(), refused.into_inner());
                StartedWrite::Waiting(Box::pin(async move {
                    writer.queue.send(entry).await.map_err(|_| gone())
                }))
            }
        }
    }

    /// Puts an awaited entry into the queue, or returns it if there is no room.
    fn enqueue(&self, entry: WriteEntry) -> Option<WriteEntry> {
        match self.queue.try_send(entry) {
            Ok(()) => {
                self.urgent.notify_one();
                None
            }
            Err(refused) => Some(refused.into_inner()),
        }
    }
}
