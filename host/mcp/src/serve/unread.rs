//! Answers that were made and that their clients have not read: how many bytes of them may be kept.
//!
//! A client that sends requests and reads no answer would have the server keep all of them. So work on a request
//! begins only while there is room, and an answer for which there is none is replaced by an error that says so. What is
//! kept counts with what the host keeps for calls (`modules.kept_bytes`), and so do requests while they are worked on.
//! Clients, told apart by their addresses, have shares of both: one that reads nothing holds up itself.

use super::revision::HERE;
use crate::rpc::{self, INTERNAL_ERROR, Id, RpcError};
use axum::body::Body;
use bytes::Bytes;
use serde_json::Value;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use toolhold_admission::{MemoryCeiling, MemoryFull, MemoryReservation, MemoryShare};
use toolhold_connections::{UnsentAnswers, UnsentBytes, UnsentShare};
use toolhold_json::bounded::TooMuchMemory;

/// Most bytes of unread answers of all clients: enough for the largest results of a dozen calls.
const MAX_UNREAD_BYTES: u64 = 64 << 20;
/// Beyond this no work begins for a client of which more is unread than it leaves free: what is under way needs room,
/// too.
const CROWDED_BYTES: u64 = MAX_UNREAD_BYTES / 2;
/// How long a request waits for the clients to read.
const ROOM_TIME: Duration = Duration::from_secs(20);
/// Smaller answers are always given, among them errors. Their number is bounded by requests and connections.
const SMALL_BYTES: usize = 4 << 10;

/// The unread answers of a server's clients at one address.
#[derive(Debug, Clone)]
pub struct UnreadAnswers {
    /// Of [`MAX_UNREAD_BYTES`].
    unsent: UnsentShare,
    /// Of what the process keeps for all calls and clients.
    kept: MemoryShare,
}

/// The memory of a request, or of all requests of a batch.
pub type RequestMemory = Arc<MemoryReservation>;

/// A message to a client. It counts until it is dropped.
#[derive(Debug)]
pub struct Outgoing {
    message: Bytes,
    /// Absent if it is small.
    unread: Option<UnsentBytes>,
}

impl UnreadAnswers {
    /// Answers to clients on this machine, that count in `kept`, too.
    pub fn new(kept: &MemoryCeiling) -> Self {
        let here = party(HERE);
        Self {
            unsent: UnsentAnswers::new(MAX_UNREAD_BYTES).of(here.clone()),
            kept: kept.of(here),
        }
    }

    /// Those to clients at `source`, with a share of their own.
    pub fn of(&self, source: IpAddr) -> Self {
        let source = party(source);
        Self {
            unsent: self.unsent.all().of(source.clone()),
            kept: self.kept.ceiling().of(source),
        }
    }

    /// The share of these clients of what the process keeps.
    pub fn kept(&self) -> &MemoryShare {
        &self.kept
    }

    /// The memory of a request's value, before it is read, until the work on it ends. What is too heavy for any request is
    /// refused by its reader.
    ///
    /// # Errors
    /// There is not so much left.
    pub fn reserve(&self, weight: Result<u64, TooMuchMemory>) -> Result<RequestMemory, RpcError> {
        let weight = weight.unwrap_or_default();
        let reserved = self
            .kept
            .reserve(weight)
            .map_err(|full| RpcError::new(INTERNAL_ERROR, no_memory(full)))?;
        Ok(Arc::new(reserved))
    }

    /// A message that no request waits for. Larger ones need room; without it there is none.
    pub fn message(&self, message: Bytes) -> Option<Outgoing> {
        if message.len() <= SMALL_BYTES {
            return Some(message.into());
        }
        let unread = Some(self.unread(message.len())?);
        Some(Outgoing { message, unread })
    }

    fn unread(&self, bytes: usize) -> Option<UnsentBytes> {
        let unsent = self.unsent.try_reserve(bytes as u64).ok()?;
        let kept = self.kept.reserve(bytes as u64).ok()?;
        Some(unsent.besides(kept))
    }

    /// Waits until work on a request may begin.
    ///
    /// # Errors
    /// These clients do not read.
    pub async fn room(&self) -> Result<(), RpcError> {
        let all = self.unsent.all();
        let is_free = || {
            let is_free = all.taken() <= CROWDED_BYTES || self.unsent.leaves_room();
            is_free.then_some(())
        };
        let room = timeout(ROOM_TIME, self.unsent.when(is_free)).await;
        room.map_err(|_| {
            let reason = format!(
                "nothing was done, because clients have not read {} bytes of answers; read them, and try again",
                all.taken()
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
        match self.unread(message.len()) {
            Some(unread) => Outgoing {
                message,
                unread: Some(unread),
            },
            None => {
                let reason = format!(
                    "the request was worked on, but its answer of {} bytes is not given: clients may leave {MAX_UNREAD_BYTES} \
                     bytes unread, as far as calls leave memory (modules.kept_bytes); read answers before you send more \
                     requests",
                    message.len()
                );
                rpc::reply(Some(id), &Err(RpcError::new(INTERNAL_ERROR, reason))).into()
            }
        }
    }
}

/// Names of keys contain no colon, so it is never a key.
fn party(source: IpAddr) -> Arc<str> {
    format!("mcp:{source}").into()
}

/// Why a request is not worked on, for its client.
pub fn no_memory(full: MemoryFull) -> String {
    let why = toolhold_connections::no_memory(full);
    format!("nothing was done with the request: {why}")
}

impl Outgoing {
    /// The messages of a batch as one.
    pub fn batch(mut messages: Vec<Self>) -> Option<Self> {
        let texts: Vec<_> = messages.iter().map(|it| it.message.clone()).collect();
        let message = rpc::batch(&texts)?;
        let mut kept = messages.iter_mut().filter_map(|it| it.unread.take());
        let unread = kept.next().map(|mut first| {
            for mut other in kept {
                first.join(&mut other);
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

    /// The message. It counts only as long as this is kept beside it.
    pub fn bytes(&self) -> Bytes {
        self.message.clone()
    }

    /// A body that counts until the connection has taken it.
    pub fn into_body(self) -> Body {
        match self.unread {
            Some(unread) => unread.body(self.message),
            None => self.message.into(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use serde_json::json;
    use toolhold_json::bounded::weigh;

    fn id(n: u64) -> Id {
        Id::Number(n.into())
    }

    fn text(outgoing: &Outgoing) -> Value {
        serde_json::from_slice(outgoing).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_is_bounded_and_said() {
        let unread = UnreadAnswers::new(&MemoryCeiling::new(1 << 30));
        let large = Ok(json!({"text": "x".repeat(10 << 20)}));
        let mut kept: Vec<_> = (0..3).map(|n| unread.reply(&id(n), &large)).collect();
        unread.room().await.unwrap();
        kept.extend((3..5).map(|n| unread.reply(&id(n), &large)));
        assert!(unread.unsent.all().taken() > 50 << 20);
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
        assert!(unread.unsent.all().taken() <= MAX_UNREAD_BYTES);

        let waits = tokio::spawn({
            let unread = unread.clone();
            async move { unread.room().await }
        });
        tokio::task::yield_now().await;
        kept.truncate(3);
        waits.await.unwrap().unwrap();
        assert_eq!(text(&unread.reply(&id(8), &large))["id"], 8);
        drop(kept);
        assert_eq!(unread.unsent.all().taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_holds_up_itself() {
        let here = UnreadAnswers::new(&MemoryCeiling::new(1 << 30));
        let greedy = here.of([192, 0, 2, 1].into());
        let large = Ok(json!({"text": "x".repeat(1 << 20)}));
        let kept: Vec<_> = (0..100).map(|n| greedy.reply(&id(n), &large)).collect();
        assert!(here.unsent.all().taken() > 50 << 20);
        assert!(greedy.room().await.is_err());
        // Another one, which reads, gets its answers as if there were no other.
        let polite = here.of([192, 0, 2, 2].into());
        for n in 0..20 {
            polite.room().await.unwrap();
            assert_eq!(text(&polite.reply(&id(n), &large))["id"], n);
        }
        drop(kept);
        greedy.room().await.unwrap();
        assert_eq!(here.unsent.all().taken(), 0);
    }

    #[test]
    fn answers_and_requests_share_what_the_process_keeps() {
        let kept = MemoryCeiling::new(3 << 20);
        let unread = UnreadAnswers::new(&kept);
        let large = Ok(json!({"text": "x".repeat(2 << 20)}));
        let calls = kept.of(party(HERE)).reserve(2 << 20).unwrap();
        assert!(unread.reply(&id(1), &large).len() < SMALL_BYTES);
        assert!(unread.message(vec![b'x'; 2 << 20].into()).is_none());
        // A small text may be the beginning of a large value.
        let request = "[1],".repeat(20_000);
        let refused = unread.reserve(weigh(request.as_bytes())).unwrap_err();
        assert!(
            refused.message.contains("modules.kept_bytes"),
            "{refused:?}"
        );
        // What is small is always said.
        assert!(unread.message("small".into()).is_some());
        drop(calls);

        let answer = unread.reply(&id(1), &large);
        assert_eq!(kept.taken(), answer.len() as u64);
        assert!(unread.reserve(weigh(request.as_bytes())).is_err());
        drop(answer);
        let worked_on = unread
            .reserve(weigh(&request.as_bytes()[..20_000]))
            .unwrap();
        assert!(kept.taken() > 1 << 20);
        drop(worked_on);
        assert_eq!((kept.taken(), unread.unsent.all().taken()), (0, 0));
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_was_taken() {
        let unread = UnreadAnswers::new(&MemoryCeiling::new(1 << 30));
        let large = Ok(json!({"text": "x".repeat(1 << 20)}));
        let replies = vec![unread.reply(&id(1), &large), unread.reply(&id(2), &large)];
        let one = replies[0].len();
        let batch = Outgoing::batch(replies).unwrap();
        assert_eq!(batch.len(), 2 * one + 3);
        assert_eq!(unread.unsent.all().taken(), 2 * one as u64);
        let event = batch.map(|message| [b"data: ", &message[..]].concat().into());
        let whole = event.len();
        let body = event.into_body();
        assert_eq!(unread.unsent.all().taken(), 2 * one as u64);
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), whole);
        assert_eq!(unread.unsent.all().taken(), 0);
        assert!(Outgoing::batch(Vec::new()).is_none());
    }
}
