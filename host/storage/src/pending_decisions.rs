//! Follows a run's events to know which of its calls wait for a person's decision.

use toolhold_protocol::decision::Pending;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::event::sub_run;
use uuid::Uuid;

/// The calls that wait. Each has the runs that it is nested in, outermost first.
#[derive(Debug, Clone, Default)]
pub struct PendingDecisions {
    calls: Vec<(Vec<Uuid>, Pending)>,
}

/// A change that an event made.
#[derive(Debug)]
pub enum DecisionChange {
    /// A call of this run or sub-run waits.
    Waits(Uuid, Box<Pending>),
    /// A call of this run or sub-run no longer waits.
    Settled(Uuid, String),
}

impl PendingDecisions {
    /// Applies the next event of `run`.
    pub fn note(&mut self, run: Uuid, event: &EventKind) -> Vec<DecisionChange> {
        let before: Vec<_> = self.calls.iter().map(key).collect();
        let asked = self.take(vec![run], event);
        let mut moved: Vec<_> = before
            .into_iter()
            .filter(|known| self.calls.iter().all(|call| key(call) != *known))
            .map(|(within, call)| DecisionChange::Settled(within, call))
            .collect();
        let last = self.calls.last().filter(|_| asked);
        moved.extend(last.map(|(runs, pending)| {
            DecisionChange::Waits(
                runs.last().copied().unwrap_or(run),
                Box::new(pending.clone()),
            )
        }));
        moved
    }

    /// Applies an event of the innermost of `runs`. Returns whether a call began to wait.
    fn take(&mut self, runs: Vec<Uuid>, event: &EventKind) -> bool {
        match event {
            EventKind::Sub { call, what } => {
                let mut inner = runs;
                inner.extend(inner.last().map(|run| sub_run(*run, call)));
                return self.take(inner, what);
            }
            EventKind::Approval { pending, .. } => {
                self.calls
                    .retain(|(of, known)| *of != runs || known.call.id != pending.call.id);
                self.calls.push((runs, pending.clone()));
                return true;
            }
            EventKind::Decided { id, .. } => {
                self.calls
                    .retain(|(of, pending)| *of != runs || pending.call.id != *id);
            }
            // Calls of the sub-agent that this call started wait no longer.
            EventKind::ToolResult { id, .. } => {
                let mut inner = runs;
                inner.extend(inner.last().map(|run| sub_run(*run, id)));
                self.end(&inner);
            }
            EventKind::Done { .. } => self.end(&runs),
            // `Resumed` changes nothing: a call that waited will wait again, and may be decided before it is asked again.
            _ => {}
        }
        false
    }

    /// The innermost of `runs` ended, and everything inside it.
    fn end(&mut self, runs: &[Uuid]) {
        self.calls.retain(|(of, _)| !of.starts_with(runs));
    }
}

fn key((runs, pending): &(Vec<Uuid>, Pending)) -> (Uuid, String) {
    let within = runs.last().copied().unwrap_or_default();
    (within, pending.call.id.clone())
}
