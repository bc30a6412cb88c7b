//! What runs the calls of a run, and those that they make: its toolbox, activities, and runs inside of it.

use super::{CallEventSender, Driver};
use crate::run::Budgets;
use crate::run::budget_tracker::BudgetTracker;
use crate::run::replay::Replayed;
use crate::run::sub_agent::{self, Delegated, SubAgentLimits};
use crate::toolbox::{ResolvedModule, ToolCall, ToolRunner, ToolSource};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Execution, Tool};

/// What runs one call of a run, and the calls nested in it.
///
/// It is the toolbox of the nested calls: the run's own, and behind it the activities and the saved Requests that
/// the run offers. A module names these as its grant does, by their own names, and not by the names that the
/// context gives to them: its author chooses those freely.
#[derive(Debug)]
pub(super) struct RunTools {
    pub driver: Arc<Driver>,
    pub offered: BoundTools,
    pub request: Arc<RunRequest>,
    pub deadline: Instant,
    pub budget: Arc<BudgetTracker>,
    pub events: CallEventSender,
    /// The id of the run's call.
    pub call: String,
    /// Budgets left for a sub-agent.
    pub left: Budgets,
    /// The Requests that the run may still make.
    pub steps_left: u32,
}

impl RunTools {
    /// Runs a call; `begun` is the sub-agent that had answered it before the process ended.
    pub async fn run(
        &self,
        call: &ToolCall,
        tool: &Tool,
        runner: &Runner,
        begun: Option<Replayed>,
    ) -> ToolResult {
        match runner {
            Runner::Module(_) => self.driver.toolbox.runner.call(call).await,
            Runner::Activity(name) => match self.driver.activities.named(name) {
                Some(activity) => activity.call(call).await,
                None => ToolResult::failed(ToolFailure::correctable(
                    "activity",
                    format!("there is no activity named {name:?} any more"),
                )),
            },
            Runner::Client => ToolResult::failed(ToolFailure::correctable(
                "activity",
                "the client makes this call itself, after the run has ended",
            )),
            Runner::Request(_) | Runner::CleanRoom | Runner::Advisor | Runner::Model => {
                let time = self.deadline.saturating_duration_since(Instant::now());
                let delegated = Delegated {
                    call,
                    within: within(&self.call, &call.id),
                    runner,
                    tool,
                    left: SubAgentLimits {
                        // The time of a nested call is what its caller has left.
                        time: if call.is_nested {
                            time.min(call.timeout)
                        } else {
                            time
                        },
                        steps: self.steps_left,
                        budgets: self.left,
                        budget: self.budget.clone(),
                    },
                };
                let (driver, events) = (Driver::clone(&self.driver), self.events.clone());
                Box::pin(sub_agent::run(
                    driver,
                    delegated,
                    begun,
                    &self.request,
                    events,
                ))
                .await
            }
        }
    }

    fn find(&self, name: &str) -> Option<&Bound> {
        let mut offered = self.offered.iter();
        offered.find(|bound| own_name(bound) == Some(name))
    }
}

impl ToolSource for RunTools {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let own = self.offered.iter().filter_map(|bound| {
            let name = own_name(bound)?;
            if bound.tool.name == name {
                return Some(bound.tool.clone());
            }
            Some(Arc::new(Tool {
                name: name.to_owned(),
                ..Tool::clone(&bound.tool)
            }))
        });
        self.driver
            .toolbox
            .source
            .tools()
            .into_iter()
            .chain(own)
            .collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.bound(name).map(|bound| bound.tool)
    }

    fn bound(&self, name: &str) -> Option<Bound> {
        let own = self.driver.toolbox.source.bound(name);
        own.or_else(|| self.find(name).cloned())
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        self.driver.toolbox.source.module(name)
    }

    fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
        self.driver.toolbox.source.take_fetch(name)
    }

    fn result_depends_on(&self, call: &ToolCall) -> Option<Value> {
        self.driver.toolbox.source.result_depends_on(call)
    }
}

impl ToolRunner for RunTools {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            match self.bound(&call.tool) {
                Some(Bound { tool, runner }) => self.run(call, &tool, &runner, None).await,
                None => self.driver.toolbox.runner.call(call).await,
            }
        })
    }

    fn idle(&self) -> Box<dyn Send> {
        self.driver.toolbox.runner.idle()
    }
}

/// Runs one call by the runner that its run bound to the tool, which may have another name in the toolbox.
#[derive(Debug)]
pub(super) struct BoundRunner {
    pub tools: Arc<RunTools>,
    pub bound: Bound,
}

impl ToolRunner for BoundRunner {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let Bound { tool, runner } = &self.bound;
        Box::pin(self.tools.run(call, tool, runner, None))
    }

    fn idle(&self) -> Box<dyn Send> {
        self.tools.idle()
    }
}

/// The name by which a grant means what runs a tool, if modules may call it.
fn own_name(bound: &Bound) -> Option<&str> {
    match (&bound.runner, &bound.tool.execution) {
        (Runner::Activity(name), _) | (Runner::Request(_), Execution::Module(name)) => Some(name),
        _ => None,
    }
}

/// The ids of the calls that the call `id` is nested in, from the run's own call `outermost` on. Each begins with that
/// of its caller ([`crate::calls::NestedCaller`]).
fn within(outermost: &str, id: &str) -> Vec<String> {
    let nested = id.strip_prefix(outermost).unwrap_or_default();
    let ends = nested
        .match_indices('.')
        .map(|(at, _)| outermost.len() + at);
    ends.filter_map(|end| id.get(..end).map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_call_names_its_callers() {
        assert!(within("call_a", "call_a").is_empty());
        assert_eq!(within("call_a", "call_a.1"), ["call_a"]);
        assert_eq!(within("call_a", "call_a.1.12"), ["call_a", "call_a.1"]);
    }
}
