//! Answers that were made and that their clients have not read: how many bytes of them may be kept.
//!
//! A client that sends requests and reads no answer would have the server keep all of them. So work on a request
//! begins only while there is room, and an answer for which there is none is replaced by an error that says so.

use crate::rpc::{self, INTERNAL_ERROR, Id, RpcError};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use serde_json::Value;
use std::convert::Infallible;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;
use toolhold_admission::{MemoryCeiling, MemoryReservation};

/// Most bytes of unread answers of all clients: enough for the largest results of a dozen calls.
const MAX_UNREAD_BYTES: u64 = 64 << 20;
/// No work begins beyond this: what is under way needs room, too.
const CROWDED_BYTES: u64 = MAX_UNREAD_BYTES / 2;
/// How long a request waits for the clients to read.
const ROOM_TIME: Duration = Duration::from_secs(20);
/// Smaller answers are always given, among them errors. Their number is bounded by requests and connections.
const SMALL_BYTES: usize = 4 << 10;
/// What is passed on to a connection at a time; it asks for more when it has written that.
const PIECE_BYTES: usize = 64 << 10;

/// The unread answers of a server.
#[derive(Debug, Clone)]
pub struct UnreadAnswers {
    bytes: MemoryCeiling,
    read: Arc<Notify>,
}

/// A message to a client. It counts until it is dropped.
#[derive(Debug)]
pub struct Outgoing {
    message: Bytes,
    unread: Option<UnreadBytes>,
}

#[derive(Debug)]
struct UnreadBytes {
    reservation: Option<MemoryReservation>,
    read: Arc<Notify>,
}

impl Default for UnreadAnswers {
    fn default() -> Self {
        Self {
            bytes: MemoryCeiling::new(MAX_UNREAD_BYTES),
            read: Arc::default(),
        }
    }
}

impl UnreadAnswers {
    /// Waits until work on a request may begin.
    ///
    /// # Errors
    /// The clients do not read.
    pub async fn room(&self) -> Result<(), RpcError> {
        let read = async {
            loop {
                let read = self.read.notified();
                if self.bytes.taken() <= CROWDED_BYTES {
                    return;
                }
                read.await;
            }
        };
        timeout(ROOM_TIME, read).await.map_err(|_| {
            let reason = format!(
                "nothing was done, because clients have not read {} bytes of answers; read them, and try again",
                self.bytes.taken()
            );
            RpcError::new(INTERNAL_ERROR, reason)
        })
    }

    /// The reply to a request, or an error in its place if there is no room for it.
    pub fn reply(&self, id: &Id, outcome: &Result<Value, RpcError>) -> Outgoing {
        let message = rpc::reply(Some(id), outcome);
        if message.len() <= SMALL_BYTES {
            return message.into();
        }
        match self.bytes.reserve(message.len() as u64) {
            Ok(reservation) => Outgoing {
                message,
                unread: Some(UnreadBytes {
                    reservation: Some(reservation),
                    read: self.read.clone(),
                }),
            },
            Err(_) => {
                let reason = format!(
                    "the request was worked on, but its answer of {} bytes is not given: clients may leave {MAX_UNREAD_BYTES} \
                     bytes unread; read answers before you send more requests",
                    message.len()
                );
                rpc::reply(Some(id), &Err(RpcError::new(INTERNAL_ERROR, reason))).into()
            }
        }
    }
}

impl Outgoing {
    /// The messages of a batch as one.
    pub fn batch(mut messages: Vec<Self>) -> Option<Self> {
        let texts: Vec<_> = messages.iter().map(|it| it.message.clone()).collect();
        let message = rpc::batch(&texts)?;
        let mut kept = messages.iter_mut().filter_map(|it| it.unread.take());
        let unread = kept.next().map(|mut first| {
            for mut other in kept {
                if let (Some(all), Some(more)) = (&mut first.reservation, &mut other.reservation) {
                    all.join(more);
                }
            }
            first
        });
        Some(Self { message, unread })
    }

    /// The message in another form, which counts as this one does.
    pub fn map(self, form: impl FnOnce(&Bytes) -> Bytes) -> Self {
        Self {
            message: form(&self.message),
            unread: self.unread,
        }
    }

    /// The next piece of the message, taken from its beginning.
    pub fn piece(&mut self) -> Option<Bytes> {
        let length = self.message.len().min(PIECE_BYTES);
        (length > 0).then(|| self.message.split_to(length))
    }

    /// A body that counts until the connection has taken it.
    pub fn into_body(self) -> Body {
        if self.unread.is_none() {
            return self.message.into();
        }
        Body::new(self)
    }
}

impl From<Bytes> for Outgoing {
    fn from(message: Bytes) -> Self {
        Self {
            message,
            unread: None,
        }
    }
}

impl Deref for Outgoing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.len() as u64)
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        drop(self.reservation.take());
        self.read.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use serde_json::json;

    fn id(n: u64) -> Id {
        Id::Number(n.into())
    }

    fn text(outgoing: &Outgoing) -> Value {
        serde_json::from_slice(outgoing).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_is_bounded_and_said() {
        let unread = UnreadAnswers::default();
        let large = Ok(json!({"text": "x".repeat(10 << 20)}));
        let mut kept: Vec<_> = (0..3).map(|n| unread.reply(&id(n), &large)).collect();
        unread.room().await.unwrap();
        kept.extend((3..6).map(|n| unread.reply(&id(n), &large)));
        let refused = unread.room().await.unwrap_err();
        assert!(refused.message.contains("nothing was done"), "{refused:?}");

        let refused = unread.reply(&id(6), &large);
        assert!(refused.len() < SMALL_BYTES);
        let message = text(&refused)["error"]["message"].to_string();
        assert!(
            message.contains("may leave 67108864 bytes unread"),
            "{message}"
        );
        // What is small is always said.
        assert_eq!(text(&unread.reply(&id(7), &Ok(json!({}))))["id"], 7);
        assert!(unread.bytes.taken() <= MAX_UNREAD_BYTES);

        let waits = tokio::spawn({
            let unread = unread.clone();
            async move { unread.room().await }
        });
        tokio::task::yield_now().await;
        kept.truncate(3);
        waits.await.unwrap().unwrap();
        assert_eq!(text(&unread.reply(&id(8), &large))["id"], 8);
        drop(kept);
        assert_eq!(unread.bytes.taken(), 0);
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_was_taken() {
        let unread = UnreadAnswers::default();
        let large = Ok(json!({"text": "x".repeat(1 << 20)}));
        let replies = vec![unread.reply(&id(1), &large), unread.reply(&id(2), &large)];
        let one = replies[0].len();
        let batch = Outgoing::batch(replies).unwrap();
        assert_eq!(batch.len(), 2 * one + 3);
        assert_eq!(unread.bytes.taken(), 2 * one as u64);
        let event = batch.map(|message| [b"data: ", &message[..]].concat().into());
        let whole = event.len();
        let body = event.into_body();
        assert_eq!(body.size_hint().exact(), Some(whole as u64));
        assert_eq!(unread.bytes.taken(), 2 * one as u64);
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), whole);
        assert_eq!(unread.bytes.taken(), 0);
        assert!(Outgoing::batch(Vec::new()).is_none());
    }
}
