//! Remembers which collections have nothing to renew, so that a process looks once.

use parking_lot::Mutex;
use std::collections::HashSet;
use uuid::Uuid;

/// Maximum number of collections that are remembered. With more, all are looked at once more.
const MAX_RENEWED: usize = 100_000;

/// Collections in which nothing is left to renew.
#[derive(Debug, Default)]
pub struct Renewed(Mutex<HashSet<Uuid>>);

impl Renewed {
    pub(crate) fn has(&self, collection: Uuid) -> bool {
        self.0.lock().contains(&collection)
    }

    pub(crate) fn add(&self, collection: Uuid) {
        let mut renewed = self.0.lock();
        if renewed.len() >= MAX_RENEWED {
            renewed.clear();
        }
        renewed.insert(collection);
    }
}
