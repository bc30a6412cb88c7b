//! Memory of what an endpoint refused, so that not every request pays for finding it out.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a refusal holds: another model may be loaded behind the same address meanwhile.
const REFUSAL_HOLDS: Duration = Duration::from_mins(10);

/// The last refusal of one kind by one endpoint, with what followed from it.
#[derive(Debug)]
pub(crate) struct LastRefusal<T>(Mutex<Option<(T, Instant)>>);

impl<T> Default for LastRefusal<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Copy> LastRefusal<T> {
    /// Returns what followed from the refusal, while it holds.
    pub fn get(&self) -> Option<T> {
        let last = *self.last();
        let holding = last.filter(|(_, at)| at.elapsed() < REFUSAL_HOLDS);
        holding.map(|(consequence, _)| consequence)
    }

    /// Notes a refusal.
    pub fn note(&self, consequence: T) {
        *self.last() = Some((consequence, Instant::now()));
    }

    /// Forgets the refusal: the endpoint turned out to be another one now.
    pub fn forget(&self) {
        *self.last() = None;
    }

    fn last(&self) -> MutexGuard<'_, Option<(T, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_a_while() {
        let last = LastRefusal::default();
        assert_eq!(last.get(), None);
        last.note(7);
        assert_eq!(last.get(), Some(7));
        tokio::time::advance(REFUSAL_HOLDS).await;
        assert_eq!(last.get(), None);
        last.note(8);
        last.forget();
        assert_eq!(last.get(), None);
    }
}
