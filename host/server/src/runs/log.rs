//! Lines of the log about a run: its begin, and how it ended (`docs/operations.md`, "The log").

use toolhold_protocol::event::{Event, EventKind, StopReason};
use uuid::Uuid;

/// A run of this server, for its lines of the log.
#[derive(Debug)]
pub struct RunLog {
    run: Uuid,
    owner: String,
    agent: String,
}

impl RunLog {
    /// Logs that the run begins, or is resumed.
    pub fn begins(run: Uuid, owner: &str, agent: &str, is_resumed: bool) -> Self {
        let log = Self {
            run,
            owner: owner.to_owned(),
            agent: agent.to_owned(),
        };
        let (key, agent) = (log.key(), agent);
        tracing::debug!(%run, key, agent, is_resumed, "a run begins");
        log
    }

    fn key(&self) -> Option<&str> {
        (!self.owner.is_empty()).then_some(self.owner.as_str())
    }

    /// Logs that the run stops where it is.
    pub fn is_parked(&self) {
        let (run, key, agent) = (self.run, self.key(), self.agent.as_str());
        tracing::info!(%run, key, agent, "a run was stopped; it goes on when this server is back");
    }

    /// Takes the run's next event.
    pub fn take(&self, event: &Event) {
        let EventKind::Done {
            reason,
            error,
            steps,
            calls,
            tokens,
            duration_ms,
            ..
        } = &event.kind
        else {
            return;
        };
        let (run, key, agent) = (self.run, self.key(), self.agent.as_str());
        let error = error.as_ref().map(|failure| failure.message.as_str());
        let name = reason.name();
        if is_answer(*reason) {
            tracing::debug!(
                %run, key, agent, reason = name, steps, calls, tokens, duration_ms, "a run ended"
            );
        } else {
            tracing::info!(
                %run, key, agent, reason = name, error, steps, calls, tokens, duration_ms,
                "a run ended without an answer"
            );
        }
    }
}

/// Whether a run that ended so has what its client asked for.
fn is_answer(reason: StopReason) -> bool {
    match reason {
        StopReason::Output | StopReason::Planned | StopReason::ToolCalls => true,
        StopReason::Incomplete
        | StopReason::MaxSteps
        | StopReason::TokenBudget
        | StopReason::MaxCost
        | StopReason::MaxToolCalls
        | StopReason::Timeout
        | StopReason::Cancelled
        | StopReason::Model
        | StopReason::Unusable
        | StopReason::Blocked => false,
    }
}
