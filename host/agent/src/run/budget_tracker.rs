//! The shared budget of a run and all its sub-agents. Several run concurrently, each with what was
//! left when it began, and together they must not exceed the budget.

use std::sync::{Mutex, PoisonError};
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::Usage;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolUsage;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::side_request::SideRequest;

/// Usage of a run, ended sub-agents included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunUsage {
    pub tokens: u64,
    pub cost: Amount,
    /// Replies whose cost is unknown.
    pub unpriced: u32,
    /// Calls of tools.
    pub calls: u32,
}

impl RunUsage {
    /// Usage of a side request; `counts_money`: whether its cost must be known.
    pub(super) fn beside(request: &SideRequest, counts_money: bool) -> Self {
        let is_unknown = request.cost_nano.is_none() && request.role.is_complete();
        Self {
            tokens: request.usage.as_ref().map_or(0, Usage::total),
            cost: request.cost_nano.unwrap_or_default(),
            unpriced: u32::from(is_unknown && counts_money),
            calls: 0,
        }
    }

    /// Usage of a call that a call of the run makes, as far as this event of it says.
    pub(super) fn nested(event: &EventKind, counts_money: bool) -> Self {
        match event {
            EventKind::Sub { what, .. } => Self::nested(what, counts_money),
            EventKind::ToolStart { .. } | EventKind::ToolRetry { .. } => Self {
                calls: 1,
                ..Self::default()
            },
            event => Self::of(event, counts_money),
        }
    }

    /// Usage of a run's own model, or of one that it asked beside it, as an event says it.
    fn of(event: &EventKind, counts_money: bool) -> Self {
        match event {
            EventKind::Tokens {
                prompt,
                completion,
                cost_nano,
                ..
            } => Self {
                tokens: prompt.unwrap_or(0).saturating_add(completion.unwrap_or(0)),
                cost: cost_nano.unwrap_or_default(),
                unpriced: u32::from(cost_nano.is_none() && counts_money),
                calls: 0,
            },
            EventKind::SideRequest(request) => Self::beside(request, counts_money),
            _ => Self::default(),
        }
    }

    pub(super) fn add_to(self, usage: &mut ToolUsage) {
        usage.tokens = usage.tokens.saturating_add(self.tokens);
        usage.cost_nano = usage.cost_nano.plus(self.cost);
        usage.unpriced = usage.unpriced.saturating_add(self.unpriced);
        usage.calls = usage.calls.saturating_add(self.calls);
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: self.cost.plus(other.cost),
            unpriced: self.unpriced.saturating_add(other.unpriced),
            calls: self.calls.saturating_add(other.calls),
        }
    }
}

/// The budgets. Absent means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    pub tokens: Option<u64>,
    pub cost: Option<Amount>,
    pub calls: Option<u32>,
}

/// One of the [`Budgets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    Tokens,
    Cost,
    Calls,
}

impl Budget {
    pub fn reason(self) -> StopReason {
        match self {
            Self::Tokens => StopReason::TokenBudget,
            Self::Cost => StopReason::MaxCost,
            Self::Calls => StopReason::MaxToolCalls,
        }
    }

    /// That other sub-agents of the run took what was left.
    pub fn taken(self) -> &'static str {
        match self {
            Self::Tokens => "the tokens of the whole run are used up (run.token_budget)",
            Self::Cost => "the money of the whole run is spent (run.max_cost)",
            Self::Calls => "the tool calls of the whole run are made (run.max_tool_calls)",
        }
    }
}

impl Budgets {
    pub fn of(settings: &Settings) -> Self {
        Self {
            tokens: settings.token_budget,
            cost: settings.max_cost,
            calls: settings.max_tool_calls,
        }
    }

    /// The budgets that remain.
    pub fn less(self, spent: &RunUsage) -> Self {
        Self {
            tokens: self.tokens.map(|most| most.saturating_sub(spent.tokens)),
            cost: self.cost.map(|most| most.less(spent.cost)),
            calls: self.calls.map(|most| most.saturating_sub(spent.calls)),
        }
    }

    /// # Errors
    /// The number of calls exceeds the budget.
    pub fn allows(&self, calls: u32) -> Result<(), ToolFailure> {
        match self.calls {
            Some(most) if calls > most => Err(ToolFailure {
                kind: "calls".into(),
                class: ErrorClass::Fatal,
                message: format!(
                    "a run may make {most} tool calls (run.max_tool_calls), and this is one more"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Which of them allows no more, and why. The last call that is allowed may still be answered, so
    /// calls are used up when there was one more.
    pub fn overdrawn(&self, spent: &RunUsage, currency: &str) -> Option<(Budget, String)> {
        let is_used = |used: bool, budget, message: String| used.then_some((budget, message));
        let tokens = self.tokens.and_then(|most| {
            let message = format!(
                "{} of {most} tokens were used before there was an output (run.token_budget)",
                spent.tokens
            );
            is_used(spent.tokens >= most, Budget::Tokens, message)
        });
        let cost = self.cost.and_then(|most| {
            let message = if spent.unpriced > 0 {
                "the endpoint did not say how many tokens a reply took, so the cost of the run is unknown and \
                 run.max_cost cannot be kept; price the endpoint by gpu_hour, or do without run.max_cost"
                    .into()
            } else {
                format!(
                    "{} of {most} {currency} were spent before there was an output (run.max_cost)",
                    spent.cost
                )
            };
            let is_over = spent.cost >= most || spent.unpriced > 0;
            is_used(is_over, Budget::Cost, message)
        });
        let calls = self.calls.and_then(|most| {
            let message = format!("more than {most} tool calls were wanted (run.max_tool_calls)");
            is_used(spent.calls > most, Budget::Calls, message)
        });
        tokens.or(cost).or(calls)
    }
}

/// Counts the usage of a run and its sub-agents while they run.
#[derive(Debug, Default)]
pub(super) struct BudgetTracker {
    budgets: Budgets,
    spent: Mutex<RunUsage>,
}

impl BudgetTracker {
    pub fn new(budgets: Budgets, spent: RunUsage) -> Self {
        Self {
            budgets,
            spent: Mutex::new(spent),
        }
    }

    /// Notes what an event of the run itself, or of one of its sub-agents, says it took. Each is to be
    /// noted once, where it happened.
    pub fn note(&self, event: &EventKind) {
        let more = RunUsage::of(event, self.counts_money());
        if more != RunUsage::default() {
            let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            *spent = spent.plus(more);
        }
    }

    /// Whether the cost of every reply has to be known.
    pub fn counts_money(&self) -> bool {
        self.budgets.cost.is_some()
    }

    /// Takes a call that is made.
    ///
    /// # Errors
    /// It is one more than there may be.
    pub fn take_call(&self) -> Result<(), ToolFailure> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = spent.calls.saturating_add(1);
        self.budgets.allows(calls)?;
        spent.calls = calls;
        Ok(())
    }

    /// The budget that is used up, if any.
    pub fn overdrawn(&self) -> Option<Budget> {
        let spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let (budget, _) = self.budgets.overdrawn(&spent, "")?;
        Some(budget)
    }
}
