//! What comes of asking the candidates of a fallback, for those who choose whom to ask first.

use std::fmt::Debug;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::fallback::Stage;

/// Told what came of the attempts of candidates, after the run's record. It must not wait: the run does.
pub trait CandidateOutcomes: Send + Sync + Debug {
    /// An attempt is over, and some candidate managed what was asked for: where none does, what was asked may be what
    /// nothing satisfies, which says nothing of the candidates.
    fn attempted(&self, attempt: &CandidateAttempt);
}

/// An attempt of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateAttempt {
    pub candidate: String,
    pub worked: bool,
    /// Of its reply, if that is known.
    pub cost: Option<Amount>,
}

/// The attempts of the fallback that a run's events are about.
#[derive(Debug, Default)]
pub(super) struct FallbackAttempts {
    cost: Option<Amount>,
    failed: Vec<CandidateAttempt>,
}

impl FallbackAttempts {
    /// Takes the run's next event: all attempts of the fallback, if it ends one in which a candidate succeeded.
    pub fn take(&mut self, event: &EventKind) -> Vec<CandidateAttempt> {
        match event {
            EventKind::Tokens { cost_nano, .. } => self.cost = *cost_nano,
            EventKind::Fallback { stage, .. } => {
                let cost = self.cost.take();
                let attempt = |candidate: &String, worked| CandidateAttempt {
                    candidate: candidate.clone(),
                    worked,
                    cost,
                };
                match stage {
                    Stage::Failed { candidate, .. } => self.failed.push(attempt(candidate, false)),
                    Stage::Succeeded { candidate } => {
                        let mut all = std::mem::take(&mut self.failed);
                        all.push(attempt(candidate, true));
                        return all;
                    }
                    Stage::Begun { .. } | Stage::Exhausted { .. } => self.failed.clear(),
                    Stage::Skipped { .. } | Stage::Asked { .. } => {}
                }
            }
            _ => {}
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_only_if_some_candidate_succeeded() {
        let mut attempts = FallbackAttempts::default();
        let mut told = |stage: Stage| {
            let event = EventKind::Fallback {
                step: 1,
                tool: None,
                instance: None,
                stage,
            };
            let told = attempts.take(&event).into_iter();
            told.map(|attempt| (attempt.candidate, attempt.worked))
                .collect::<Vec<_>>()
        };
        let failed = |candidate: &str| Stage::Failed {
            candidate: candidate.into(),
            attempt: 1,
            reason: String::new(),
        };
        assert_eq!(told(failed("one")), []);
        assert_eq!(told(failed("two")), []);
        let first_error = String::new();
        assert_eq!(told(Stage::Exhausted { first_error }), []);
        assert_eq!(told(failed("one")), []);
        let candidate = "two".to_owned();
        assert_eq!(
            told(Stage::Succeeded { candidate }),
            [("one".to_owned(), false), ("two".to_owned(), true)]
        );
    }
}
