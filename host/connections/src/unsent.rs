//! Answers that were made and are not sent yet: how many bytes of them a server keeps.
//!
//! A client that asks and reads nothing would have the server keep all its answers. So memory of an answer is reserved,
//! where its size is known before the answer is made, and counts until the connection has taken the last of it. Clients,
//! told apart by keys or addresses, have shares: one that reads nothing holds up itself.

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use toolhold_admission::{
    FairQueue, Lane, MemoryCeiling, MemoryFull, MemoryReservation, MemoryShare, Permit,
};

/// Answers at a time that are larger than any client's share, in all. One client has one of them at most.
const HUGE_ANSWERS: usize = 2;
/// How long one waits in the queue for them, and before it enters it again.
const HUGE_WAIT: Duration = Duration::from_mins(1);
const HUGE_PAUSE: Duration = Duration::from_millis(500);
/// Clients that may wait to have a huge answer made.
const HUGE_WAITING: usize = 64;

/// The unsent answers of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct UnsentAnswers {
    ceiling: MemoryCeiling,
    /// Permits for answers that are larger than any share.
    huge: Arc<FairQueue<Arc<str>>>,
    sent: Arc<Notify>,
}

/// The unsent answers to the clients that have one key, or one address. Clones share them.
#[derive(Debug, Clone)]
pub struct UnsentShare {
    party: Arc<str>,
    bytes: MemoryShare,
    huge: Arc<FairQueue<Arc<str>>>,
    sent: Arc<Notify>,
}

/// Bytes of answers that are not sent. They count until this is dropped.
#[derive(Debug)]
pub struct UnsentBytes {
    own: MemoryReservation,
    /// The permit to have more bytes than are counted.
    huge: Option<Permit<Arc<str>>>,
    /// The reservation of another ceiling in which they count, too.
    besides: Option<MemoryReservation>,
    /// The last of the fields, so that those who are woken find the bytes free.
    sent: SentSignal,
}

/// Wakes those who wait for room when it is dropped.
#[derive(Debug)]
struct SentSignal(Arc<Notify>);

/// A body that counts.
struct UnsentBody {
    body: Body,
    _unsent: UnsentBytes,
}

impl UnsentAnswers {
    /// The answers of a server that keeps at most `most` bytes for all clients, of which one client gets seven eighths.
    pub fn new(most: u64) -> Self {
        Self {
            ceiling: MemoryCeiling::new(most),
            huge: FairQueue::new(HUGE_ANSWERS, HUGE_WAITING),
            sent: Arc::default(),
        }
    }

    /// The share of the clients with a key, or at an address.
    pub fn of(&self, party: impl Into<Arc<str>>) -> UnsentShare {
        let party = party.into();
        UnsentShare {
            party: party.clone(),
            bytes: self.ceiling.of(party),
            huge: self.huge.clone(),
            sent: self.sent.clone(),
        }
    }

    /// Bytes that are not sent now.
    pub fn taken(&self) -> u64 {
        self.ceiling.taken()
    }
}

impl UnsentShare {
    /// All answers, of which it is a share.
    pub fn all(&self) -> UnsentAnswers {
        UnsentAnswers {
            ceiling: self.bytes.ceiling().clone(),
            huge: self.huge.clone(),
            sent: self.sent.clone(),
        }
    }

    /// Whether the client keeps no more than it leaves free.
    pub fn leaves_room(&self) -> bool {
        self.bytes.leaves_room()
    }

    /// # Errors
    /// There is not so much left for this client now.
    pub fn try_reserve(&self, bytes: u64) -> Result<UnsentBytes, MemoryFull> {
        Ok(UnsentBytes {
            own: self.bytes.reserve(bytes)?,
            huge: None,
            besides: None,
            sent: SentSignal(self.sent.clone()),
        })
    }

    /// Waits until there is so much room for this client, at most for `longest`. What is more than a client may ever have
    /// is made beside the shares, one such answer of a client at a time and few of all.
    ///
    /// # Errors
    /// This client has not read enough until then, or others have not.
    pub async fn wait_at_most(
        &self,
        longest: Duration,
        bytes: u64,
    ) -> Result<UnsentBytes, MemoryFull> {
        match timeout(longest, self.wait(bytes)).await {
            Ok(reserved) => Ok(reserved),
            Err(_) => Err(MemoryFull {
                ceiling: self.bytes.ceiling().ceiling(),
                needed: bytes,
            }),
        }
    }

    /// Waits as [`wait_at_most`](Self::wait_at_most) does, without an end.
    pub async fn wait(&self, bytes: u64) -> UnsentBytes {
        if bytes > self.bytes.ceiling().most_of_one() {
            return self.wait_for_huge().await;
        }
        self.when(|| self.try_reserve(bytes).ok()).await
    }

    async fn wait_for_huge(&self) -> UnsentBytes {
        loop {
            let lane = Lane::of(self.party.clone());
            let entered = self.huge.enter(lane, 1, Instant::now() + HUGE_WAIT).await;
            if let Ok(permit) = entered
                && let Ok(mut nothing) = self.try_reserve(0)
            {
                nothing.huge = Some(permit);
                return nothing;
            }
            // The queue is full, or the wait was long.
            sleep(HUGE_PAUSE).await;
        }
    }

    /// Waits until `ready` returns something; it is called again whenever something was sent.
    pub async fn when<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            // Before it is looked at, so that what is sent meanwhile is not missed.
            let sent = self.sent.notified();
            if let Some(value) = ready() {
                return value;
            }
            sent.await;
        }
    }
}

impl UnsentBytes {
    /// These bytes, which count in `other`, too.
    #[must_use]
    pub fn besides(self, other: MemoryReservation) -> Self {
        Self {
            besides: Some(other),
            ..self
        }
    }

    /// Bytes that it may take.
    pub fn bytes(&self) -> u64 {
        if self.huge.is_some() {
            return u64::MAX;
        }
        self.own.bytes()
    }

    /// Counts at least `bytes` from now on.
    ///
    /// # Errors
    /// There is not so much left for this client now.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), MemoryFull> {
        if self.huge.is_some() {
            return Ok(());
        }
        self.own.grow(bytes.saturating_sub(self.own.bytes()))
    }

    /// Counts `bytes` from now on, if it counted more.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.own.shrink_to(bytes);
        if let Some(besides) = &mut self.besides {
            besides.shrink_to(bytes);
        }
        self.sent.0.notify_waiters();
    }

    /// Takes over what `other` counts, if it is of the same client.
    pub fn join(&mut self, other: &mut Self) {
        self.own.join(&mut other.own);
        match (&mut self.besides, &mut other.besides) {
            (Some(besides), Some(others)) => besides.join(others),
            (besides @ None, others) => *besides = others.take(),
            (Some(_), None) => {}
        }
    }

    /// A body that counts until the connection has taken all of it. It has no more bytes than were counted.
    pub fn body(mut self, bytes: Bytes) -> Body {
        self.shrink_to(bytes.len() as u64);
        self.around(bytes.into())
    }

    /// A body like this one that counts until it ends.
    pub fn around(self, body: Body) -> Body {
        Body::new(UnsentBody {
            body,
            _unsent: self,
        })
    }
}

impl Drop for SentSignal {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl HttpBody for UnsentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    const LONGEST: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_waits_and_others_go_on() {
        let answers = UnsentAnswers::new(800);
        let (silent, other) = (answers.of("silent"), answers.of("other"));
        let mut first = silent.wait(400).await;
        let second = silent.wait(300).await;
        let late = silent.wait_at_most(LONGEST, 1).await;
        assert_eq!(late.unwrap_err().needed, 1);
        assert!(other.try_reserve(50).is_ok());

        // An answer counts what is left of it.
        let waits = tokio::spawn({
            let silent = silent.clone();
            async move { silent.wait_at_most(LONGEST, 200).await }
        });
        tokio::task::yield_now().await;
        first.shrink_to(200);
        let third = waits.await.unwrap().unwrap();
        assert_eq!(answers.taken(), 700);
        drop((first, second, third));
        assert_eq!(answers.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_larger_than_any_share_is_made_beside_them() {
        let answers = UnsentAnswers::new(800);
        let (one, other, third) = (answers.of("a"), answers.of("b"), answers.of("c"));
        // What others keep does not matter, nor what the client keeps.
        let _small = (one.wait(1).await, other.wait(300).await);
        let mut huge = one.wait_at_most(LONGEST, 701).await.unwrap();
        huge.grow_to(10_000).unwrap();
        assert!(one.wait_at_most(LONGEST, 701).await.is_err(), "it has one");
        let _second = other.wait_at_most(LONGEST, 10_000).await.unwrap();
        assert!(
            third.wait_at_most(LONGEST, 800).await.is_err(),
            "there are two"
        );
        assert!(third.wait_at_most(LONGEST, 50).await.is_ok());
        drop(huge);
        assert!(third.wait_at_most(LONGEST, 800).await.is_ok());
        assert_eq!(answers.taken(), 301);
    }

    #[tokio::test]
    async fn a_body_counts_until_it_was_taken() {
        let answers = UnsentAnswers::new(800);
        let kept = MemoryCeiling::new(800);
        let reserved = answers.of("a").try_reserve(500).unwrap();
        let reserved = reserved.besides(kept.of("a").reserve(500).unwrap());
        let body = reserved.body(Bytes::from(vec![7; 300]));
        assert_eq!((answers.taken(), kept.taken()), (300, 300));
        assert_eq!(body.size_hint().exact(), Some(300));
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), 300);
        assert_eq!((answers.taken(), kept.taken()), (0, 0));
    }
}
