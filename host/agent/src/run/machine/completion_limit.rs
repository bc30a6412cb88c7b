//! The token limit of a reply: the run's setting, lowered where the window has less room, and raised where
//! thoughts took all of it.

use super::Machine;
use super::budget::Composed;
use toolhold_protocol::completion::ContextOverflow;

/// Minimum token limit of a reply: enough for a call or a short answer.
const MIN_REPLY: u64 = 256;
/// SGLang refuses what would fill the window to its last token.
const LAST_TOKEN: u64 = 1;
/// Maximum factor, and maximum tokens, to which the default limit is raised after a reply that was all
/// thought.
const MAX_TIMES: u32 = 4;
const MAX_RAISED: u32 = 16_384;

/// Deviations of the token limit of a reply from the run's setting.
#[derive(Debug, Default)]
pub(super) struct CompletionLimit {
    /// More: thoughts took all of one.
    raised: Option<u32>,
    /// Less, in this step: the endpoint refused its Request and told how much the prompt leaves. Nothing
    /// if it refused that, too.
    pub(super) left: Option<(u32, Option<u32>)>,
    /// The limit of the Request that was sent last.
    pub(super) sent: Option<u32>,
}

impl Machine {
    /// The token limit of the reply to this Request.
    pub(super) fn reply_tokens(&self, composed: &Composed) -> u32 {
        let base = self.request.settings.max_tokens;
        if self.forced().is_some() {
            return base;
        }
        if let Some(left) = self.left() {
            return left;
        }
        let room = self.room(composed).unwrap_or(u64::MAX);
        if let Some(raised) = self.window.reply.raised {
            let spent = self
                .spent
                .tokens
                .saturating_add(self.prompt_tokens(composed));
            let unspent = self.request.settings.token_budget.unwrap_or(u64::MAX);
            let most = room.min(unspent.saturating_sub(spent));
            if most > u64::from(base) {
                return raised.min(number(most));
            }
        }
        // An estimate that nothing was learnt for yet may be far too high.
        let is_short = self.is_too_long(composed) && self.is_measured(composed);
        if is_short && room >= MIN_REPLY {
            base.min(number(room))
        } else {
            base
        }
    }

    /// Tokens that this step's prompt leaves for a reply, as the refusing endpoint reported.
    pub(super) fn left(&self) -> Option<u32> {
        let left = self.window.reply.left;
        let (_, tokens) = left.filter(|(step, _)| *step == self.steps)?;
        tokens
    }

    /// The token limit of the reply to the last Request.
    pub(super) fn sent_reply_tokens(&self) -> u32 {
        let base = self.request.settings.max_tokens;
        let own = self.window.reply.sent.filter(|_| self.forced().is_none());
        own.unwrap_or(base)
    }

    /// Raises the limit after a reply that was all thought. Returns the new limit, if it is higher.
    pub(super) fn raise_reply(&mut self) -> Option<u32> {
        let settings = &self.request.settings;
        let base = settings.max_tokens;
        let before = self.window.reply.raised.unwrap_or(base);
        let may_take_more = settings.assumed_max_tokens == Some(base) && self.forced().is_none();
        // Where there was no room for what it might have been, there is none for more.
        if !may_take_more || self.sent_reply_tokens() < before {
            return None;
        }
        let most = base.saturating_mul(MAX_TIMES).min(MAX_RAISED.max(base));
        let raised = before.saturating_mul(2).min(most);
        (raised > before).then(|| {
            self.window.reply.raised = Some(raised);
            raised
        })
    }

    /// Tokens that the window leaves for a reply to the refused Request, if that is less than its limit and
    /// not too little. Tried once per step.
    pub(super) fn left_beside_prompt(&self, window: u64, overflow: ContextOverflow) -> Option<u32> {
        let left = self.window.reply.left;
        let was_tried = left.is_some_and(|(step, _)| step == self.steps);
        if was_tried {
            return None;
        }
        let prompt = overflow
            .prompt_tokens
            .unwrap_or_else(|| self.most_sent_tokens());
        let left = window.checked_sub(prompt)?.saturating_sub(LAST_TOKEN);
        let sent = u64::from(self.sent_reply_tokens());
        (MIN_REPLY..sent).contains(&left).then(|| number(left))
    }
}

fn number(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
