//! The token limit of a reply: the run's setting, lowered where the window has less room, and raised where
//! thoughts took all of it.

use toolhold_protocol::settings::Settings;

/// Minimum token limit of a reply: enough for a call or a short answer.
const MIN_REPLY: u64 = 256;
/// SGLang refuses what would fill the window to its last token.
const LAST_TOKEN: u64 = 1;
/// Maximum factor, and maximum tokens, to which the default limit is raised after a reply that was all
/// thought.
const MAX_TIMES: u32 = 4;
const MAX_RAISED: u32 = 16_384;

/// The limit of replies of the run's own model, and its deviations from the run's setting.
#[derive(Debug)]
pub(super) struct CompletionLimit {
    /// The run's setting.
    base: u32,
    /// Whether the setting was assumed, because no limit was chosen.
    is_assumed: bool,
    /// More: thoughts took all of one.
    raised: Option<u32>,
    /// Less, in this step: the endpoint refused its Request and told how much the prompt leaves. Nothing
    /// if it refused that, too.
    left: Option<(u32, Option<u32>)>,
    /// The limit of the Request that was sent last.
    sent: Option<u32>,
}

/// What a Request leaves for its reply, in tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyRoom {
    /// Of the window, if it is known.
    pub window: Option<u64>,
    /// Of the run's budget, if it has one.
    pub budget: Option<u64>,
    /// Prompt and reply are longer than the window. An estimate that nothing was learnt for yet may be far too
    /// high, and does not count.
    pub is_short: bool,
}

impl CompletionLimit {
    pub fn new(settings: &Settings) -> Self {
        Self {
            base: settings.max_tokens,
            is_assumed: settings.assumed_max_tokens == Some(settings.max_tokens),
            raised: None,
            left: None,
            sent: None,
        }
    }

    /// The run's setting.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// The limit of the reply to the next Request of `step`.
    pub fn of(&self, step: u32, room: ReplyRoom) -> u32 {
        if let Some(left) = self.left(step) {
            return left;
        }
        let in_window = room.window.unwrap_or(u64::MAX);
        if let Some(raised) = self.raised {
            let most = in_window.min(room.budget.unwrap_or(u64::MAX));
            if most > u64::from(self.base) {
                return raised.min(number(most));
            }
        }
        if room.is_short && in_window >= MIN_REPLY {
            self.base.min(number(in_window))
        } else {
            self.base
        }
    }

    /// Tokens that this step's prompt leaves for a reply, as the refusing endpoint reported.
    pub fn left(&self, step: u32) -> Option<u32> {
        let (_, tokens) = self.left.filter(|(of, _)| *of == step)?;
        tokens
    }

    /// A Request was sent with this limit.
    pub fn sent(&mut self, limit: u32) {
        self.sent = Some(limit);
    }

    /// The limit of the Request that was sent last.
    pub fn last(&self) -> u32 {
        self.sent.unwrap_or(self.base)
    }

    /// Raises the limit after a reply that was all thought. Returns the new limit, if it is higher.
    pub fn raise(&mut self) -> Option<u32> {
        let before = self.raised.unwrap_or(self.base);
        // Where there was no room for what it might have been, there is none for more.
        if !self.is_assumed || self.last() < before {
            return None;
        }
        let most = self
            .base
            .saturating_mul(MAX_TIMES)
            .min(MAX_RAISED.max(self.base));
        let raised = before.saturating_mul(2).min(most);
        (raised > before).then(|| {
            self.raised = Some(raised);
            raised
        })
    }

    /// The endpoint refused a Request of `step` for its length. Returns a lower limit to send it again with, where
    /// the window leaves `room` tokens beside the prompt: less than the last limit and not too little. Tried once
    /// per step.
    pub fn refused(&mut self, step: u32, room: Option<u64>) -> Option<u32> {
        let was_tried = self.left.is_some_and(|(tried, _)| tried == step);
        let last = u64::from(self.last());
        let left = room
            .map(|room| room.saturating_sub(LAST_TOKEN))
            .filter(|left| !was_tried && (MIN_REPLY..last).contains(left))
            .map(number);
        match (left, &mut self.left) {
            (Some(left), _) => self.left = Some((step, Some(left))),
            (None, Some((_, left))) => *left = None,
            (None, None) => {}
        }
        left
    }
}

fn number(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: ReplyRoom = ReplyRoom {
        window: None,
        budget: None,
        is_short: false,
    };

    fn limit() -> CompletionLimit {
        CompletionLimit::new(&Settings {
            max_tokens: 1_000,
            assumed_max_tokens: Some(1_000),
            ..Settings::default()
        })
    }

    #[test]
    fn thoughts_raise_an_assumed_limit_up_to_four_times() {
        let mut limit = limit();
        for expected in [Some(2_000), Some(4_000), None] {
            assert_eq!(limit.raise(), expected);
            limit.sent(limit.of(1, FREE));
        }
        assert_eq!(limit.of(1, FREE), 4_000);
        limit.is_assumed = false;
        limit.raised = None;
        assert_eq!(limit.raise(), None, "a limit that was chosen is kept");
    }

    #[test]
    fn a_raised_limit_takes_no_more_than_there_is() {
        let mut limit = limit();
        limit.raise();
        for (window, budget, expected) in [
            (Some(1_500), None, 1_500),
            (Some(1_500), Some(1_200), 1_200),
            // The run's setting holds where there is not even that.
            (Some(1_500), Some(900), 1_000),
        ] {
            let room = ReplyRoom {
                window,
                budget,
                is_short: false,
            };
            assert_eq!(limit.of(1, room), expected, "{room:?}");
        }
        limit.sent(1_500);
        assert_eq!(limit.raise(), None, "there is no room for more");
    }

    #[test]
    fn a_short_window_lowers_the_limit_unless_that_is_too_little() {
        let limit = limit();
        for (window, is_short, expected) in
            [(600, true, 600), (600, false, 1_000), (255, true, 1_000)]
        {
            let room = ReplyRoom {
                window: Some(window),
                budget: None,
                is_short,
            };
            assert_eq!(limit.of(1, room), expected, "{room:?}");
        }
    }

    #[test]
    fn models_left_after_a_refusal_are_tried_once_per_step() {
        let mut limit = limit();
        assert_eq!(limit.refused(1, Some(100)), None, "too little");
        assert_eq!(limit.refused(1, Some(1_001)), None, "not less");
        assert_eq!(limit.refused(1, None), None, "the window is not known");
        assert_eq!(limit.refused(1, Some(901)), Some(900));
        assert_eq!((limit.left(1), limit.left(2)), (Some(900), None));
        assert_eq!(limit.of(1, FREE), 900);
        limit.sent(900);
        assert_eq!(limit.refused(1, Some(500)), None);
        assert_eq!(limit.left(1), None, "it was refused, too");
        assert_eq!(limit.refused(2, Some(501)), Some(500));
    }
}
