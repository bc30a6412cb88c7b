//! What comes of asking the candidates of a fallback, for those who choose whom to ask first.

use futures_util::future::BoxFuture;
use std::fmt::Debug;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::fallback::Stage;

/// Told what came of each attempt of a candidate.
pub trait CandidateOutcomes: Send + Sync + Debug {
    /// An attempt of `candidate` is over. `cost`: of its reply, if that is known.
    fn attempted<'a>(
        &'a self,
        candidate: &'a str,
        worked: bool,
        cost: Option<Amount>,
    ) -> BoxFuture<'a, ()>;
}

/// The attempt of a candidate that a run's events are about.
#[derive(Debug, Default)]
pub(super) struct CurrentAttempt {
    cost: Option<Amount>,
}

impl CurrentAttempt {
    /// Takes the run's next event: the candidate and whether it managed what it was asked for, if this ends an attempt.
    pub fn take<'e>(&mut self, event: &'e EventKind) -> Option<(&'e str, bool, Option<Amount>)> {
        match event {
            EventKind::Tokens { cost_nano, .. } => {
                self.cost = *cost_nano;
                None
            }
            EventKind::Fallback { stage, .. } => {
                let cost = self.cost.take();
                match stage {
                    Stage::Failed { candidate, .. } => Some((candidate, false, cost)),
                    Stage::Succeeded { candidate } => Some((candidate, true, cost)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
