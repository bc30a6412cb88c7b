//! Knowledge as this server offers it: who adds and searches at the same time, and the removal of what was deleted.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolhold_admission::{FairQueue, Lane, Permit, QueueRefusal};
use toolhold_runtime::extract::Extractors;
use toolhold_runtime::knowledge::ConfiguredKnowledge;
use toolhold_storage::{Store, now_ms};

/// Documents that are cut and stored at the same time: each keeps a processor busy, and its text in memory.
const ADDING: usize = 2;
const ADDING_OF_ONE: usize = 1;
/// Documents, whose bytes are in memory, that wait for that.
const ADDING_WAITING: usize = 64;
const ADDING_PATIENCE: Duration = Duration::from_secs(30);
/// Documents that are fetched at the same time. Their bytes are in memory until they are added.
const FETCHING: usize = 4;
const FETCHING_OF_ONE: usize = 1;
const FETCHING_WAITING: usize = 64;
const FETCHING_PATIENCE: Duration = Duration::from_secs(30);
/// Searches at the same time: those by vectors keep a processor busy.
const SEARCHING: usize = 8;
const SEARCHING_OF_ONE: usize = 4;
const SEARCHING_WAITING: usize = 256;
const SEARCHING_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two removals of what was deleted or replaced, if nothing was deleted here.
const REMOVAL_INTERVAL: Duration = Duration::from_mins(10);
/// Delay of a removal, in which more may be deleted: each empties the write-ahead log.
const REMOVAL_DELAY: Duration = Duration::from_secs(2);
/// How long a document that was left staged is kept, so that adding the same goes on with it.
const KEEP_STAGED_MS: u64 = 24 * 60 * 60 * 1_000;

/// The knowledge of a server.
#[derive(Debug)]
pub struct ServedKnowledge {
    pub configured: Arc<ConfiguredKnowledge>,
    pub extractors: Extractors,
    adding: WorkQueue,
    fetching: WorkQueue,
    searching: WorkQueue,
    /// Something was deleted or replaced.
    deleted: Notify,
}

/// The queue for one kind of work, whose owners are keys.
#[derive(Debug)]
struct WorkQueue {
    queue: Arc<FairQueue<String>>,
    /// Permits that one owner may hold at the same time.
    most_of_one: usize,
    /// How long an entry waits for its permit.
    patience: Duration,
}

impl WorkQueue {
    fn adding() -> Self {
        Self {
            queue: FairQueue::new(ADDING, ADDING_WAITING),
            most_of_one: ADDING_OF_ONE,
            patience: ADDING_PATIENCE,
        }
    }

    fn fetching() -> Self {
        Self {
            queue: FairQueue::new(FETCHING, FETCHING_WAITING),
            most_of_one: FETCHING_OF_ONE,
            patience: FETCHING_PATIENCE,
        }
    }

    fn searching() -> Self {
        Self {
            queue: FairQueue::new(SEARCHING, SEARCHING_WAITING),
            most_of_one: SEARCHING_OF_ONE,
            patience: SEARCHING_PATIENCE,
        }
    }

    async fn enter(&self, owner: &str) -> Result<Permit<String>, QueueRefusal> {
        let deadline = Instant::now() + self.patience;
        let lane = Lane::of(owner.to_owned());
        self.queue.enter(lane, self.most_of_one, deadline).await
    }
}

impl ServedKnowledge {
    pub fn new(configured: Arc<ConfiguredKnowledge>, extractors: Extractors) -> Self {
        Self {
            configured,
            extractors,
            adding: WorkQueue::adding(),
            fetching: WorkQueue::fetching(),
            searching: WorkQueue::searching(),
            deleted: Notify::new(),
        }
    }

    /// Waits until `owner` may add a document.
    ///
    /// # Errors
    /// Too many wait, or the wait took too long.
    pub async fn may_add(&self, owner: &str) -> Result<Permit<String>, QueueRefusal> {
        self.adding.enter(owner).await
    }

    /// Waits until `owner` may have a document fetched. The permit is given back when the document is added.
    ///
    /// # Errors
    /// As [`Self::may_add`].
    pub async fn may_fetch(&self, owner: &str) -> Result<Permit<String>, QueueRefusal> {
        self.fetching.enter(owner).await
    }

    /// Waits until `owner` may search.
    ///
    /// # Errors
    /// As [`Self::may_add`].
    pub async fn may_search(&self, owner: &str) -> Result<Permit<String>, QueueRefusal> {
        self.searching.enter(owner).await
    }

    /// Says that something was deleted or replaced, so that its passages are removed soon.
    pub fn was_deleted(&self) {
        self.deleted.notify_one();
    }

    /// Removes the passages of what was deleted or replaced, and takes what was deleted or forgotten out of the records of
    /// runs that have ended, for as long as it is polled.
    pub async fn remove_deleted(&self, store: &Store) {
        loop {
            let deleted = self.deleted.notified();
            // Ended by either: what another process deleted is removed, too.
            let _ = tokio::time::timeout(REMOVAL_INTERVAL, deleted).await;
            tokio::time::sleep(REMOVAL_DELAY).await;
            if store.writable().is_err() {
                continue;
            }
            let before = now_ms().saturating_sub(KEEP_STAGED_MS);
            match store.remove_gone_passages(before).await {
                Ok(removed) if removed.passages > 0 => {
                    tracing::info!(passages = removed.passages, "removed what was deleted");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "deleted passages could not be removed; they will be later");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn documents_and_searches_at_the_same_time_are_bounded_by_key_and_in_all() {
        for (queue, of_one, seconds) in [
            (WorkQueue::adding(), 1, 30),
            (WorkQueue::searching(), 4, 10),
        ] {
            let mut permits = Vec::new();
            for owner in ["a", "b"] {
                for _ in 0..of_one {
                    permits.push(queue.enter(owner).await.unwrap());
                }
            }
            for (owner, refusal) in [
                ("a", QueueRefusal::GroupLimit),
                ("c", QueueRefusal::Deadline),
            ] {
                let begun = Instant::now();
                assert_eq!(queue.enter(owner).await.unwrap_err(), refusal);
                assert_eq!(begun.elapsed().as_secs(), seconds);
            }
            drop(permits.pop());
            queue.enter("c").await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn documents_and_searches_that_wait_are_bounded() {
        for (queue, in_all, waiting) in [
            (WorkQueue::adding(), 2, 64),
            (WorkQueue::searching(), 8, 256),
        ] {
            let queue = Arc::new(queue);
            let mut permits = Vec::new();
            for owner in 0..in_all {
                permits.push(queue.enter(&owner.to_string()).await.unwrap());
            }
            let mut entries = Vec::new();
            for owner in in_all..in_all + waiting + 10 {
                let queue = queue.clone();
                entries.push(tokio::spawn(async move {
                    queue.enter(&owner.to_string()).await
                }));
            }
            let mut refused = 0;
            for entry in entries {
                if entry.await.unwrap().unwrap_err() == QueueRefusal::Full {
                    refused += 1;
                }
            }
            assert_eq!(refused, 10);
        }
    }
}
