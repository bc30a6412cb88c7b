//! Which calls of a run wait for a person, from its events.

use toolhold_agent::EventKind;
use toolhold_agent::run::approval::Pending;
use toolhold_agent::run::sub_run;
use uuid::Uuid;

/// Calls that wait, each with the runs that it is in, the outermost first.
#[derive(Debug, Default)]
pub struct Open {
    calls: Vec<(Vec<Uuid>, Pending)>,
}

/// What an event changed.
#[derive(Debug)]
pub enum Moved {
    Waits(Uuid, Box<Pending>),
    /// The call of the run within does not wait any longer.
    Settled(Uuid, String),
}

impl Open {
    /// Takes note of an event of `run`.
    pub fn note(&mut self, run: Uuid, event: &EventKind) -> Vec<Moved> {
        let before: Vec<_> = self.calls.iter().map(key).collect();
        let asked = self.take(vec![run], event);
        let mut moved: Vec<_> = before
            .into_iter()
            .filter(|known| self.calls.iter().all(|call| key(call) != *known))
            .map(|(within, call)| Moved::Settled(within, call))
            .collect();
        let last = self.calls.last().filter(|_| asked);
        moved.extend(last.map(|(runs, pending)| {
            Moved::Waits(
                runs.last().copied().unwrap_or(run),
                Box::new(pending.clone()),
            )
        }));
        moved
    }

    /// Returns whether a call waits that did not.
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
            // Whatever the sub-agent of this call waited for.
            EventKind::ToolResult { id, .. } => {
                let mut inner = runs;
                inner.extend(inner.last().map(|run| sub_run(*run, id)));
                self.end(&inner);
            }
            EventKind::Done { .. } => self.end(&runs),
            // `Resumed` settles nothing: what waited waits again, and may be decided before it is asked again.
            _ => {}
        }
        false
    }

    fn end(&mut self, runs: &[Uuid]) {
        self.calls.retain(|(of, _)| !of.starts_with(runs));
    }
}

fn key((runs, pending): &(Vec<Uuid>, Pending)) -> (Uuid, String) {
    let within = runs.last().copied().unwrap_or_default();
    (within, pending.call.id.clone())
}
