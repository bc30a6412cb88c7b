//! How many replies of the run's own model could be used, and how many in a row could not: the limits on both
//! kinds of trouble.

use toolhold_protocol::settings::Settings;

/// Counts of one run's replies.
#[derive(Debug)]
pub(super) struct ReplyCounts {
    max_unusable: u32,
    max_broken: u32,
    usable: u32,
    /// In a row, that could not be used.
    unusable: u32,
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
            max_unusable: settings.max_unusable,
            max_broken: settings.max_broken_replies,
            usable: 0,
            unusable: 0,
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
        self.unusable = 0;
        self.usable += 1;
        self.last = None;
    }

    /// A reply could not be used as a whole; some of its calls were made.
    pub fn unusable(&mut self) {
        self.unusable += 1;
        self.last = None;
    }

    /// Nothing of a reply could be used.
    pub fn unused(&mut self, reason: &str, reply: String) {
        self.unusable += 1;
        self.last = Some(UnusedReply {
            reason: reason.to_owned(),
            reply,
        });
    }

    /// How many in a row could not be used, where these are too many and nothing of the last could be.
    pub fn too_many(&self) -> Option<(u32, &UnusedReply)> {
        let last = self.last.as_ref()?;
        (self.unusable >= self.max_unusable).then_some((self.unusable, last))
    }

    /// Whether one more that cannot be used is too many.
    pub fn is_last_attempt(&self) -> bool {
        self.unusable + 1 >= self.max_unusable
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
            max_unusable: 2,
            max_broken_replies: 1,
            ..Settings::default()
        })
    }

    #[test]
    fn a_reply_that_can_be_used_forgives_those_before_it() {
        let mut counts = counts();
        assert!(counts.is_first() && !counts.is_last_attempt());
        counts.unusable();
        assert!(counts.is_first() && counts.is_last_attempt());
        counts.usable();
        assert!(!counts.is_first());
        for too_many in [None, Some(2)] {
            counts.unused("no JSON", "x".into());
            assert_eq!(counts.too_many().map(|(count, _)| count), too_many);
        }
        counts.unusable();
        assert!(counts.too_many().is_none(), "something of it was done");
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
