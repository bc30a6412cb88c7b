//! What became of the replies of the run's own model: how many could be used, how many in a row broke off, and the last
//! one if it was of no use. How many in a row could not be used is counted with the other [failures](super::fallbacks).

use toolhold_protocol::settings::Settings;

/// Counts of one run's replies.
#[derive(Debug)]
pub(super) struct ReplyCounts {
    max_broken: u32,
    usable: u32,
    /// In a row, that broke off before anything was done.
    broken: u32,
    /// The last reply, if nothing of it could be used.
    last: Option<UnusedReply>,
}

/// A reply of which nothing could be used.
#[derive(Debug)]
pub(super) struct UnusedReply {
    pub reason: String,
    /// What it said, cut.
    pub reply: String,
}

impl ReplyCounts {
    pub fn new(settings: &Settings) -> Self {
        Self {
            max_broken: settings.max_broken_replies,
            usable: 0,
            broken: 0,
            last: None,
        }
    }

    /// Whether none could be used yet.
    pub fn is_first(&self) -> bool {
        self.usable == 0
    }

    /// A reply came to its end.
    pub fn complete(&mut self) {
        self.broken = 0;
    }

    /// A reply could be used.
    pub fn usable(&mut self) {
        self.usable += 1;
        self.last = None;
    }

    /// A reply could not be used as a whole; some of its calls were made.
    pub fn partly_used(&mut self) {
        self.last = None;
    }

    /// Nothing of a reply could be used.
    pub fn unused(&mut self, reason: &str, reply: String) {
        self.last = Some(UnusedReply {
            reason: reason.to_owned(),
            reply,
        });
    }

    /// The last reply, if nothing of it could be used.
    pub fn last_unused(&self) -> Option<&UnusedReply> {
        self.last.as_ref()
    }

    /// A reply broke off before anything was done, and the model may be asked again after it.
    pub fn broke_off(&mut self) {
        self.broken += 1;
    }

    /// Whether the model may be asked again where a reply broke off.
    pub fn may_break_off(&self) -> bool {
        self.broken < self.max_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> ReplyCounts {
        ReplyCounts::new(&Settings {
            max_broken_replies: 1,
            ..Settings::default()
        })
    }

    #[test]
    fn the_last_reply_is_kept_only_if_nothing_of_it_could_be_used() {
        let mut counts = counts();
        let does: [fn(&mut ReplyCounts); 2] = [ReplyCounts::partly_used, ReplyCounts::usable];
        for does in does {
            assert!(counts.is_first() && counts.last_unused().is_none());
            counts.unused("no JSON", "x".into());
            let last = counts.last_unused().unwrap();
            assert_eq!((&*last.reason, &*last.reply), ("no JSON", "x"));
            does(&mut counts);
        }
        assert!(!counts.is_first() && counts.last_unused().is_none());
    }

    #[test]
    fn a_complete_reply_forgives_those_that_broke_off() {
        let mut counts = counts();
        for _ in 0..2 {
            assert!(counts.may_break_off());
            counts.broke_off();
            assert!(!counts.may_break_off());
            counts.complete();
        }
    }
}
