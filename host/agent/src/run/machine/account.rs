//! What a run used of its budgets, ended sub-agents included.

use crate::run::budget_tracker::{Budgets, RunUsage};
use toolhold_protocol::completion::Usage;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::StopReason;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolUsage;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::side_request::SideRequest;

/// Usage of one run, and what it may use.
#[derive(Debug)]
pub(super) struct UsageAccount {
    spent: RunUsage,
    /// Calls that the run itself made.
    calls: u32,
    budgets: Budgets,
    currency: String,
    has_prices: bool,
}

impl UsageAccount {
    pub fn new(settings: &Settings) -> Self {
        Self {
            spent: RunUsage::default(),
            calls: 0,
            budgets: Budgets::of(settings),
            currency: settings.currency.clone(),
            has_prices: settings.price.is_some(),
        }
    }

    pub fn spent(&self) -> RunUsage {
        self.spent
    }

    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Whether what a reply costs has to be known.
    pub fn counts_money(&self) -> bool {
        self.has_prices || self.budgets.cost.is_some()
    }

    /// What the run cost, if it has prices and they tell all of it.
    pub fn cost(&self) -> Option<Amount> {
        let is_known = self.has_prices && self.spent.unpriced == 0;
        is_known.then_some(self.spent.cost)
    }

    /// Which budget is used up, in words.
    pub fn overdrawn(&self) -> Option<(StopReason, String)> {
        let (budget, message) = self.budgets.overdrawn(&self.spent, &self.currency)?;
        Some((budget.reason(), message))
    }

    /// What is left, for a sub-agent.
    pub fn left(&self) -> Budgets {
        self.budgets.less(&self.spent)
    }

    /// A reply of a model, or a part of one, without a count: `cost` is absent if it is unknown.
    pub fn replied(&mut self, usage: Option<&Usage>, cost: Option<Amount>) {
        let is_unknown = cost.is_none() && self.counts_money();
        self.add(RunUsage {
            tokens: usage.map_or(0, Usage::total),
            cost: cost.unwrap_or_default(),
            unpriced: u32::from(is_unknown),
            calls: 0,
        });
    }

    /// A model was asked on behalf of the run, beside its own Requests.
    pub fn asked_beside(&mut self, request: &SideRequest) {
        self.add(RunUsage::beside(request, self.counts_money()));
    }

    /// Counts a call that is about to be made.
    ///
    /// # Errors
    /// It is one more than the budget allows.
    pub fn take_call(&mut self) -> Result<(), ToolFailure> {
        self.spent.calls = self.spent.calls.saturating_add(1);
        self.budgets.allows(self.spent.calls)
    }

    /// A call that was counted was begun.
    pub fn begin_call(&mut self) {
        self.calls += 1;
    }

    /// A call is over, which took this within.
    pub fn called(&mut self, usage: &ToolUsage) {
        self.add(RunUsage {
            tokens: usage.tokens,
            cost: usage.cost_nano,
            unpriced: usage.unpriced,
            calls: usage.calls,
        });
    }

    fn add(&mut self, spent: RunUsage) {
        self.spent = self.spent.plus(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::cost::Price;

    const USAGE: Usage = Usage {
        prompt_tokens: 100,
        completion_tokens: 20,
        cached_prompt_tokens: None,
    };

    fn usage(change: impl FnOnce(&mut Settings)) -> UsageAccount {
        let mut settings = Settings::default();
        change(&mut settings);
        UsageAccount::new(&settings)
    }

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn tokens_of_replies_and_of_calls_count_in_one_budget() {
        let mut usage = usage(|settings| settings.token_budget = Some(200));
        usage.replied(Some(&USAGE), None);
        assert_eq!(usage.overdrawn(), None);
        assert_eq!(usage.left().tokens, Some(80));
        usage.called(&ToolUsage {
            tokens: 80,
            ..ToolUsage::default()
        });
        let (reason, message) = usage.overdrawn().unwrap();
        assert_eq!(reason, StopReason::TokenBudget);
        assert!(message.contains("200 of 200 tokens"), "{message}");
    }

    #[test]
    fn the_last_call_that_is_allowed_is_made() {
        let mut usage = usage(|settings| settings.max_tool_calls = Some(2));
        for _ in 0..2 {
            usage.take_call().unwrap();
            usage.begin_call();
        }
        assert_eq!(usage.overdrawn(), None);
        assert_eq!(usage.take_call().unwrap_err().kind, "calls");
        assert_eq!(usage.calls(), 2);
        let reason = usage.overdrawn().map(|(reason, _)| reason);
        assert_eq!(reason, Some(StopReason::MaxToolCalls));
    }

    #[test]
    fn one_reply_of_unknown_cost_makes_the_sum_unknown() {
        let priced = |settings: &mut Settings| {
            settings.price = Some(Price::Tokens {
                prompt: amount("1"),
                cached: amount("1"),
                completion: amount("1"),
            });
        };
        let mut usage = usage(priced);
        usage.replied(Some(&USAGE), Some(amount("0.5")));
        assert_eq!(usage.cost(), Some(amount("0.5")));
        usage.replied(None, None);
        assert_eq!(usage.cost(), None);
        assert_eq!(usage.overdrawn(), None, "nothing was bounded");
    }

    #[test]
    fn without_prices_and_a_cap_nothing_is_owed() {
        let mut free = usage(|_| ());
        free.replied(Some(&USAGE), None);
        assert_eq!((free.cost(), free.spent().unpriced), (None, 0));
        let mut capped = usage(|settings| settings.max_cost = Some(amount("1")));
        assert!(capped.counts_money());
        capped.replied(Some(&USAGE), None);
        let reason = capped.overdrawn().map(|(reason, _)| reason);
        assert_eq!(reason, Some(StopReason::MaxCost));
    }
}
