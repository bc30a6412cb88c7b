//! The calls that run: those of the step, and those in the background, without whose results the run goes
//! on.

use super::Work;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_protocol::solution::Call;

/// The calls of one run that are under way.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    /// Of the step and in the background.
    count: usize,
    /// By id.
    background: BTreeMap<String, Background>,
    /// The ids of those that called what may not be called twice.
    effects: BTreeSet<String>,
    /// The ids of those that called what may have changed something.
    changes: BTreeSet<String>,
    /// The ids of those that continue as jobs, as a replayed record tells.
    jobs: BTreeSet<String>,
}

/// A call in the background.
#[derive(Debug)]
pub(super) struct Background {
    pub call: Call,
    pub work: Work,
}

impl RunningCalls {
    /// Whether another one may begin, where `most` may run at the same time.
    pub fn has_room(&self, most: usize) -> bool {
        self.count < most.max(1)
    }

    pub fn begin(&mut self) {
        self.count += 1;
    }

    pub fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// The process that ran them ended, and so many were begun again.
    pub fn restart(&mut self, count: usize) {
        self.count = count;
    }

    /// The run goes on without the result of a call that was begun.
    pub fn detach(&mut self, call: Call, work: Work) {
        let id = call.id.clone();
        self.background.insert(id, Background { call, work });
    }

    /// A call in the background that is over.
    pub fn take(&mut self, id: &str) -> Option<Background> {
        self.background.remove(id)
    }

    /// A call made another one, of a tool that may not be repeated.
    pub fn had_effects(&mut self, id: &str) {
        self.effects.insert(id.to_owned());
    }

    /// A call made another one, which may have changed something.
    pub fn had_changes(&mut self, id: &str) {
        self.changes.insert(id.to_owned());
    }

    /// True if a call that the call `id` made may have changed something. Forgets it, because that call is over.
    pub fn take_changes(&mut self, id: &str) -> bool {
        self.changes.remove(id)
    }

    /// True if a call that runs may change something while others end: one in the background, or one that made such a call.
    pub fn may_change(&self) -> bool {
        let mut background = self.background.values();
        !self.changes.is_empty() || background.any(|one| !one.work.bound.tool.annotations.read_only)
    }

    /// Whether the calls that the call `id` made may be repeated.
    pub fn may_be_repeated(&self, id: &str) -> bool {
        !self.effects.contains(id)
    }

    /// A call continues as a job.
    pub fn became_job(&mut self, id: &str) {
        self.jobs.insert(id.to_owned());
    }

    /// True if the call `id` continues as a job.
    pub fn has_job(&self, id: &str) -> bool {
        self.jobs.contains(id)
    }

    pub fn background(&self) -> impl Iterator<Item = &Background> {
        self.background.values()
    }

    pub fn has_background(&self) -> bool {
        !self.background.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::ToolCheck;
    use crate::guard::pii::GivenPlaceholders;
    use crate::run::Budgets;
    use crate::toolbox::ToolCall;
    use serde_json::json;
    use std::sync::Arc;
    use toolhold_protocol::bound::{Bound, Runner};
    use toolhold_protocol::tool::Tool;

    fn work(id: &str) -> (Call, Work) {
        let tool = Tool::new("t");
        let call = Call {
            id: id.into(),
            tool: "t".into(),
            ..Call::default()
        };
        let work = Work {
            call: ToolCall::new(id, "t", json!({})),
            step: 1,
            masked: GivenPlaceholders::default(),
            check: Arc::new(ToolCheck::new(&tool).unwrap()),
            bound: Bound {
                tool: tool.into(),
                runner: Runner::Activity("t".into()),
            },
            left: Budgets::default(),
            steps_left: 1,
            again: false,
        };
        (call, work)
    }

    #[test]
    fn there_is_room_for_so_many_and_for_one_at_least() {
        let mut running = RunningCalls::default();
        assert!(running.has_room(0));
        running.begin();
        assert!(!running.has_room(0) && running.has_room(2));
        running.begin();
        assert!(!running.has_room(2));
        running.end();
        assert!(running.has_room(2));
        running.restart(2);
        assert!(!running.has_room(2));
    }

    #[test]
    fn a_call_in_the_background_is_over_once() {
        let mut running = RunningCalls::default();
        for id in ["call_b", "call_a"] {
            let (call, work) = work(id);
            running.detach(call, work);
        }
        let ids: Vec<&str> = running
            .background()
            .map(|one| one.call.id.as_str())
            .collect();
        assert_eq!(
            ids,
            ["call_a", "call_b"],
            "in an order that does not change"
        );
        assert_eq!(running.take("call_a").unwrap().work.call.id, "call_a");
        assert!(running.take("call_a").is_none() && running.has_background());
        running.take("call_b");
        assert!(!running.has_background());
    }
}
