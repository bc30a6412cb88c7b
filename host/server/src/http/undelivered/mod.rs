//! Runs whose answers were not delivered yet, so that a client that sends its request again gets the run that it began.
//!
//! A client whose request timed out closes the connection and sends the request again, as OpenAI's SDKs do by themselves.
//! Without a record of the first request, each attempt would begin a run and call the same tools again.
//! [`UndeliveredAnswers`] knows the runs of all requests without an `Idempotency-Key` until the connection has taken their
//! answers. A request that says that it is sent again (`x-stainless-retry-count`) takes the place of the oldest equal one
//! whose client is gone; `slot` tells when it is gone, and `keeper` ends runs whose clients do not come back.
//!
//! The record is in memory: it covers the runs that this server began. An `Idempotency-Key` is in the database and holds
//! for all servers.

mod keeper;
mod slot;

pub use slot::{RequestOrigin, is_sent_again, track};

use crate::settings::OnDisconnect;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// Maximum number of answers without a client that requests of one key may take. The oldest is forgotten for a new one.
const GONE_OF_ONE: usize = 256;
/// Maximum number of answers without a client of all keys. The oldest one of the key that has most is forgotten.
const GONE: usize = 4_096;
/// How long a repeated request waits until the server has noticed that the client of an equal one is gone: the next
/// connection may be faster than the end of the last.
const NOTICE_TIME: Duration = Duration::from_secs(1);

/// The undelivered answers of this server. Clones share them.
#[derive(Debug, Clone)]
pub struct UndeliveredAnswers {
    inner: Arc<AnswersInner>,
}

#[derive(Debug)]
struct AnswersInner {
    on_disconnect: OnDisconnect,
    /// How long a client without a connection may come back.
    patience: Duration,
    known: Mutex<KnownAnswers>,
    /// Wakes repeated requests when a client is gone or has its answer.
    changed: Notify,
}

/// Answers by the party that asked for them, each by the id of its run, the oldest first.
#[derive(Debug, Default)]
struct KnownAnswers {
    /// Answers whose clients are connected. Their number is bounded by connections.
    awaited: AnswersByParty,
    /// Answers whose clients are gone. Their number is bounded by [`GONE`].
    gone: AnswersByParty,
}

type AnswersByParty = HashMap<Arc<str>, BTreeMap<Uuid, Arc<UndeliveredAnswer>>>;

/// A run whose answer is not delivered.
#[derive(Debug)]
struct UndeliveredAnswer {
    run: Uuid,
    /// The key or the address that the request came from.
    party: Arc<str>,
    /// Digest of the request's path, agent, session and body.
    digest: String,
    client: watch::Sender<ClientState>,
    begin: watch::Sender<BeginState>,
    /// True if the answer is a stream of events, whose ids let the client go on at any time.
    has_ids: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    Connected,
    /// Without a connection since then.
    Gone(Instant),
    /// The answer was delivered, or the client was given up.
    Settled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeginState {
    /// The run waits for its place.
    Open,
    Begun,
    /// There is no run: another request may begin its own.
    Failed,
}

/// A client's hold of the answer that it waits for. Dropping it without [`delivered`](Self::delivered) says that the
/// client is gone.
#[derive(Debug)]
pub struct AnswerHold {
    answers: UndeliveredAnswers,
    answer: Arc<UndeliveredAnswer>,
}

/// Tells those who wait for the begin of a run how that went. Dropping it without [`begun`](Self::begun) says that there is
/// no run.
#[derive(Debug)]
pub struct BeginNote {
    answers: UndeliveredAnswers,
    answer: Arc<UndeliveredAnswer>,
}

impl UndeliveredAnswers {
    /// `patience`: how long a client without a connection may come back.
    pub fn new(on_disconnect: OnDisconnect, patience: Duration) -> Self {
        Self {
            inner: Arc::new(AnswersInner {
                on_disconnect,
                patience,
                known: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// Notes the run that a request is about to begin, and that its client waits for the answer.
    pub fn enter(&self, party: &Arc<str>, digest: String, run: Uuid) -> (AnswerHold, BeginNote) {
        let answer = Arc::new(UndeliveredAnswer {
            run,
            party: party.clone(),
            digest,
            client: watch::Sender::new(ClientState::Connected),
            begin: watch::Sender::new(BeginState::Open),
            has_ids: AtomicBool::new(false),
        });
        add(&mut self.lock().awaited, &answer);
        let answers = self.clone();
        let note = BeginNote {
            answers: answers.clone(),
            answer: answer.clone(),
        };
        (AnswerHold { answers, answer }, note)
    }

    /// Takes the oldest answer to an equal request of this party whose client is gone. Waits for a moment if the clients of
    /// all equal ones still seem to be connected.
    pub async fn take_up(&self, party: &Arc<str>, digest: &str) -> Option<AnswerHold> {
        let end = Instant::now() + NOTICE_TIME;
        loop {
            // Before the look, so that what changes meanwhile is not missed.
            let changed = self.inner.changed.notified();
            if let Some(hold) = self.try_take_up(party, digest) {
                return Some(hold);
            }
            if !self.is_awaited(party, digest) || timeout_at(end, changed).await.is_err() {
                return None;
            }
        }
    }

    fn try_take_up(&self, party: &Arc<str>, digest: &str) -> Option<AnswerHold> {
        let mut known = self.lock();
        let gone = known.gone.get(party)?;
        let answer = gone.values().find(|answer| answer.digest == digest)?;
        let answer = answer.clone();
        remove(&mut known.gone, &answer);
        add(&mut known.awaited, &answer);
        answer.client.send_replace(ClientState::Connected);
        drop(known);
        Some(AnswerHold {
            answers: self.clone(),
            answer,
        })
    }

    /// True if the client of an equal request seems to be connected.
    fn is_awaited(&self, party: &Arc<str>, digest: &str) -> bool {
        let known = self.lock();
        let awaited = known.awaited.get(party);
        awaited.is_some_and(|answers| answers.values().any(|answer| answer.digest == digest))
    }

    /// Notes that the client of an answer is gone.
    fn leave(&self, answer: &Arc<UndeliveredAnswer>) {
        let mut known = self.lock();
        if *answer.client.borrow() != ClientState::Connected {
            return;
        }
        remove(&mut known.awaited, answer);
        answer
            .client
            .send_replace(ClientState::Gone(Instant::now()));
        // The run of a client that is gone is cancelled, so there is no answer to come back for.
        if self.inner.on_disconnect != OnDisconnect::Cancel {
            add(&mut known.gone, answer);
            known.forget_surplus(&answer.party);
        }
        drop(known);
        self.inner.changed.notify_waiters();
    }

    /// Forgets an answer that was delivered, or that there will not be.
    fn settle(&self, answer: &Arc<UndeliveredAnswer>) {
        let mut known = self.lock();
        known.forget(answer);
        answer.client.send_replace(ClientState::Settled);
        drop(known);
        self.inner.changed.notify_waiters();
    }

    /// Gives up a client that is gone. Returns false if it came back.
    fn give_up(&self, answer: &Arc<UndeliveredAnswer>) -> bool {
        let mut known = self.lock();
        if !matches!(*answer.client.borrow(), ClientState::Gone(_)) {
            return false;
        }
        known.forget(answer);
        answer.client.send_replace(ClientState::Settled);
        true
    }

    fn lock(&self) -> MutexGuard<'_, KnownAnswers> {
        let known = &self.inner.known;
        known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownAnswers {
    fn forget(&mut self, answer: &UndeliveredAnswer) {
        remove(&mut self.awaited, answer);
        remove(&mut self.gone, answer);
    }

    /// Forgets answers without a client beyond the bounds, after one of `party` was added. Their runs are kept as long as
    /// before, and nothing takes them up.
    fn forget_surplus(&mut self, party: &Arc<str>) {
        if self.gone.get(party).map_or(0, BTreeMap::len) > GONE_OF_ONE {
            forget_oldest(&mut self.gone, party);
        }
        if self.gone.values().map(BTreeMap::len).sum::<usize>() > GONE {
            let most = self.gone.iter().max_by_key(|(_, answers)| answers.len());
            if let Some(party) = most.map(|(party, _)| party.clone()) {
                forget_oldest(&mut self.gone, &party);
            }
        }
    }
}

fn add(answers: &mut AnswersByParty, answer: &Arc<UndeliveredAnswer>) {
    let of_party = answers.entry(answer.party.clone()).or_default();
    of_party.insert(answer.run, answer.clone());
}

fn remove(answers: &mut AnswersByParty, answer: &UndeliveredAnswer) {
    if let Some(of_party) = answers.get_mut(&answer.party) {
        of_party.remove(&answer.run);
        if of_party.is_empty() {
            answers.remove(&answer.party);
        }
    }
}

fn forget_oldest(answers: &mut AnswersByParty, party: &Arc<str>) {
    if let Some(of_party) = answers.get_mut(party) {
        of_party.pop_first();
    }
}

impl AnswerHold {
    pub fn run(&self) -> Uuid {
        self.answer.run
    }

    /// Waits until the run has begun. Returns false if there is none.
    pub async fn has_begun(&self) -> bool {
        let mut begin = self.answer.begin.subscribe();
        let settled = begin.wait_for(|state| *state != BeginState::Open).await;
        settled.is_ok_and(|state| *state == BeginState::Begun)
    }

    /// Notes that the answer is a stream of events with ids, after which the client may come back at any time.
    pub fn has_ids(&self) {
        self.answer.has_ids.store(true, Ordering::Relaxed);
    }

    /// Notes that the connection has taken all of the answer.
    pub fn delivered(self) {
        self.answers.settle(&self.answer);
    }
}

impl Drop for AnswerHold {
    fn drop(&mut self) {
        self.answers.leave(&self.answer);
    }
}

impl BeginNote {
    /// Notes that the run has begun.
    fn begun(&self) {
        self.answer.begin.send_replace(BeginState::Begun);
    }
}

impl Drop for BeginNote {
    fn drop(&mut self) {
        if *self.answer.begin.borrow() == BeginState::Open {
            self.answers.settle(&self.answer);
            self.answer.begin.send_replace(BeginState::Failed);
        }
    }
}

#[cfg(test)]
mod tests;
