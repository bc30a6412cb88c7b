//! Decisions about calls that wait for a person, as they are recorded in the database: by
//! `toolhold approvals`, by the HTTP API, or by another process.

use futures_util::future::BoxFuture;
use std::time::Duration;
use toolhold_agent::run::approval::Approver;
use toolhold_protocol::approval::{Decision, Pending};
use toolhold_storage::Store;
use uuid::Uuid;

/// How often the database is asked for a decision that another process recorded: at first, and for a call
/// that waits long. The interval grows from the first to the second, because many calls may wait and people
/// take longer than this to decide.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(300);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Waits for a decision in the database. Asks nobody.
#[derive(Debug)]
pub struct StoredApprover {
    store: Store,
}

impl StoredApprover {
    /// `store` is where decisions are recorded.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Approver for StoredApprover {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(stored_decision(&self.store, run, pending))
    }
}

/// Waits until the database holds a decision about this call of this run.
pub async fn stored_decision(store: &Store, run: Uuid, pending: &Pending) -> Decision {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        let decided = store.decides();
        // A database that is away for a while comes back; the run's journal says when it does not.
        if let Ok(Some(decision)) = store.decision(run, &pending.call.id).await {
            return decision;
        }
        // A decision of this process is taken up at once.
        let _ = tokio::time::timeout(pause, decided).await;
        pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL);
    }
}
