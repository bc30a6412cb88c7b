//! Whether the model of an endpoint takes images, as the configuration says or as its server said last.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a server's refusal of images holds: another model may be loaded behind the same address meanwhile.
const REFUSAL_HOLDS: Duration = Duration::from_mins(10);

/// Whether images are sent to one endpoint.
#[derive(Debug)]
pub(super) struct ImageSupport {
    /// True if the configuration says that the model takes none.
    are_refused: bool,
    /// When the server refused some.
    refused_at: Mutex<Option<Instant>>,
}

impl ImageSupport {
    pub fn new(are_refused: bool) -> Self {
        Self {
            are_refused,
            refused_at: Mutex::default(),
        }
    }

    /// True if images are sent to the endpoint.
    pub fn are_sent(&self) -> bool {
        let refused = *self.refused_at();
        !self.are_refused && refused.is_none_or(|at| at.elapsed() >= REFUSAL_HOLDS)
    }

    /// Notes that the server refused a request for its images.
    pub fn were_refused(&self) {
        *self.refused_at() = Some(Instant::now());
    }

    fn refused_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_images_holds_for_a_while() {
        let support = ImageSupport::new(false);
        assert!(support.are_sent());
        support.were_refused();
        assert!(!support.are_sent());
        tokio::time::advance(REFUSAL_HOLDS).await;
        assert!(support.are_sent());
        assert!(!ImageSupport::new(true).are_sent());
    }
}
