//! Further attempts of a call that failed for now (docs/protocol.md, 7.8).
//!
//! Only a call of a tool that only reads, or may be repeated, is made again, and only if the calls that it made itself
//! were of such tools. A call that found no place never began, so it is made again in any case. All attempts and the
//! waits between them are within the time of the one call, and count as calls in the budget that the call counts in.

use crate::calls::CallBudget;
use crate::toolbox::ToolCall;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use toolhold_admission::Backoff;
use toolhold_policy::ErrorClass;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::result::{ToolResult, ToolUsage, is_denial};
use toolhold_protocol::tool::Annotations;
use toolhold_protocol::tool_retry::{ToolRetry, ToolRetryPolicy};

/// Minimum wait between attempts, whatever is configured: a tool that fails at once must not be called in a hot loop.
const MIN_BACKOFF: Duration = Duration::from_millis(10);

/// Whether a call made calls, and whether all of them may be repeated, and those that they made. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct NestedEffects(Arc<NestedNotes>);

#[derive(Debug, Default)]
struct NestedNotes {
    has_asked: AtomicBool,
    is_final: AtomicBool,
}

impl NestedEffects {
    /// Notes that a call was asked for, made or not.
    pub(super) fn asked(&self) {
        self.0.has_asked.store(true, Ordering::Relaxed);
    }

    /// Notes a call of a tool that says this of itself.
    pub(super) fn note(&self, tool: Annotations) {
        if !tool.may_be_repeated() {
            self.0.is_final.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a call was asked for.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.has_asked.load(Ordering::Relaxed)
    }

    fn may_be_repeated(&self) -> bool {
        !self.0.is_final.load(Ordering::Relaxed)
    }
}

/// The attempts of one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: ToolRetryPolicy,
    /// The end of the call's time. Absent: there is none.
    until: Option<Instant>,
    /// Whether the call is one that is tried again here.
    is_tried: bool,
    may_be_repeated: bool,
    nested: NestedEffects,
    failed: u32,
    waited: Duration,
    /// The wait before the next attempt.
    wait: Duration,
    /// Of the attempts that failed.
    spent: ToolUsage,
    printed: Vec<String>,
}

impl Attempts {
    /// Of `call`, a call of `bound`, whose time begins now; `nested` is told of the calls that it makes.
    pub fn new(
        policy: ToolRetryPolicy,
        call: &ToolCall,
        bound: &Bound,
        nested: NestedEffects,
    ) -> Self {
        // Runs within a run try again by themselves, and a client makes its calls itself.
        let is_tried = matches!(bound.runner, Runner::Module(_) | Runner::Activity(_));
        Self {
            policy,
            until: Instant::now().checked_add(call.timeout),
            is_tried,
            may_be_repeated: bound.tool.annotations.may_be_repeated(),
            nested,
            failed: 0,
            waited: Duration::ZERO,
            wait: Duration::ZERO,
            spent: ToolUsage::default(),
            printed: Vec::new(),
        }
    }

    /// What follows from the result of an attempt: the result of the call, or a further attempt, which is to be
    /// told and then [waited](Self::wait) for.
    pub fn judge(
        &mut self,
        call: &ToolCall,
        result: ToolResult,
        budget: &dyn CallBudget,
    ) -> ControlFlow<ToolResult, ToolRetry> {
        let failure = result.outcome.as_ref().err();
        let for_now = failure.filter(|failure| failure.class == ErrorClass::Retryable);
        let never_began = result.usage.never_began;
        let Some(failure) = for_now.filter(|_| self.has_another(never_began)) else {
            return ControlFlow::Break(self.whole(result));
        };
        if !budget.take_again() {
            return ControlFlow::Break(self.whole(result));
        }
        self.failed += 1;
        self.waited += self.wait;
        let retry = ToolRetry {
            id: call.id.clone(),
            tool: call.tool.clone(),
            attempt: self.failed,
            wait_ms: u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX),
            error: failure.kind.clone(),
        };
        self.add(result.usage);
        self.keep_denials_once(&result.printed);
        self.printed.extend(result.printed);
        ControlFlow::Continue(retry)
    }

    /// Waits until the next attempt, and gives it what is left of the call's time.
    pub async fn wait(&self, call: &mut ToolCall) {
        tokio::time::sleep(self.wait).await;
        if let Some(until) = self.until {
            call.timeout = until.saturating_duration_since(Instant::now());
        }
    }

    /// Whether there may be a further attempt, after [`Self::wait`].
    fn has_another(&mut self, never_began: bool) -> bool {
        // Those of its attempts that began were judged by what the tool says of itself.
        let is_safe = never_began || (self.may_be_repeated && self.nested.may_be_repeated());
        if !self.is_tried || !is_safe || self.failed.saturating_add(1) >= self.policy.attempts {
            return false;
        }
        self.wait = Backoff::new(self.policy.backoff, self.policy.max_backoff)
            .jittered(self.failed + 1, fastrand::f64())
            .max(MIN_BACKOFF);
        let is_in_time = self.until.is_none_or(|until| {
            let next = Instant::now().checked_add(self.wait);
            next.is_some_and(|next| next < until)
        });
        is_in_time && self.waited.saturating_add(self.wait) <= self.policy.total_wait
    }

    /// Every attempt is denied the same.
    fn keep_denials_once(&mut self, later: &[String]) {
        self.printed
            .retain(|line| !(is_denial(line) && later.contains(line)));
    }

    fn add(&mut self, usage: ToolUsage) {
        let spent = &mut self.spent;
        spent.duration_us = spent.duration_us.saturating_add(usage.duration_us);
        spent.fuel = spent.fuel.saturating_add(usage.fuel);
        spent.memory_bytes = spent.memory_bytes.max(usage.memory_bytes);
        spent.tokens = spent.tokens.saturating_add(usage.tokens);
        spent.cost_nano = spent.cost_nano.plus(usage.cost_nano);
        spent.unpriced = spent.unpriced.saturating_add(usage.unpriced);
        spent.calls = spent.calls.saturating_add(usage.calls);
    }

    /// The result with what the attempts before it took and printed.
    fn whole(&mut self, mut result: ToolResult) -> ToolResult {
        result.usage.never_began = false;
        if self.failed == 0 {
            return result;
        }
        self.add(result.usage);
        self.keep_denials_once(&result.printed);
        result.usage = ToolUsage {
            calls: self.spent.calls.saturating_add(self.failed),
            retries: self.failed,
            ..self.spent
        };
        result
            .printed
            .splice(0..0, std::mem::take(&mut self.printed));
        if let Err(failure) = &mut result.outcome {
            let attempts = self.failed.saturating_add(1);
            failure.message = format!("{} (tried {attempts} times)", failure.message);
        }
        result
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
