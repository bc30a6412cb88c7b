//! Whether the model of an endpoint takes images, as the configuration says or as its server said last.

use crate::refusals::LastRefusal;

/// Whether images are sent to one endpoint.
#[derive(Debug)]
pub(super) struct ImageSupport {
    /// True if the configuration says that the model takes none.
    are_refused: bool,
    /// The last refusal of images by the server.
    refusal: LastRefusal<()>,
}

impl ImageSupport {
    pub fn new(are_refused: bool) -> Self {
        Self {
            are_refused,
            refusal: LastRefusal::default(),
        }
    }

    /// True if images are sent to the endpoint.
    pub fn are_sent(&self) -> bool {
        !self.are_refused && self.refusal.get().is_none()
    }

    /// Notes that the server refused a request for its images.
    pub fn were_refused(&self) {
        self.refusal.note(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn images_that_were_refused_are_not_sent_again() {
        let support = ImageSupport::new(false);
        assert!(support.are_sent());
        support.were_refused();
        assert!(!support.are_sent());
        assert!(!ImageSupport::new(true).are_sent());
    }
}
