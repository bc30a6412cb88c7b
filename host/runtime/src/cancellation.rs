//! Cancellation of a run by another process (`toolhold runs cancel`, the HTTP API), which writes a request
//! into the database.

use std::time::Duration;
use toolhold_storage::Store;
use uuid::Uuid;

/// Poll interval for cancellation requests.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Completes when another process requested the cancellation of `run`.
pub async fn wait_for_request(store: &Store, run: Uuid) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        // A database that is away is reported by the run's journal.
        if let Ok(runs) = store.requested_cancellations().await
            && runs.contains(&run)
        {
            return;
        }
    }
}
