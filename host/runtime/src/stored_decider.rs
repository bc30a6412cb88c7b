//! Decisions about calls that wait for a person, read from the database, where `toolhold approvals`, the HTTP
//! API or another process records them.

use futures_util::future::BoxFuture;
use std::time::Duration;
use toolhold_agent::run::decider::Decider;
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_storage::{DecideOutcome, Store};
use uuid::Uuid;

/// Poll interval for decisions of other processes: at first, and for a call that has waited for long. The
/// interval grows from the first to the second, because many calls may wait and people need longer than this
/// to decide.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(300);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Waits for a decision in the database; asks no person itself.
#[derive(Debug)]
pub struct StoredDecider {
    store: Store,
}

impl StoredDecider {
    /// `store` is where decisions are recorded.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Decider for StoredDecider {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(stored_decision(&self.store, run, pending))
    }
}

/// Returns the first decision about this call of this run: one in the database, or the one of `asked`, which is stored
/// there: a later decision of another person is refused.
pub async fn first_decision(
    store: &Store,
    run: Uuid,
    pending: &Pending,
    asked: impl Future<Output = Decision>,
) -> Decision {
    let decision = tokio::select! {
        decision = stored_decision(store, run, pending) => return decision,
        decision = asked => decision,
    };
    loop {
        match store.decide(run, &pending.call.id, &decision).await {
            Ok(DecideOutcome::Already(first)) => return first,
            Ok(DecideOutcome::Stored | DecideOutcome::Gone) => return decision,
            // Another decision may be stored already. The outage may pass; if it does not, the run's journal reports it.
            Err(error) => {
                tracing::debug!(%run, call = pending.call.id, %error, "a decision is not stored yet");
                tokio::time::sleep(MIN_POLL_INTERVAL).await;
            }
        }
    }
}

/// Waits until the database holds a decision about this call of this run.
pub async fn stored_decision(store: &Store, run: Uuid, pending: &Pending) -> Decision {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        let decided = store.decides();
        // The outage may pass; if it does not, the run's journal reports it.
        if let Ok(Some(decision)) = store.decision(run, &pending.call.id).await {
            return decision;
        }
        // A decision of this process is applied at once.
        let _ = tokio::time::timeout(pause, decided).await;
        pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL);
    }
}
