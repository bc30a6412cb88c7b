//! The budget that calls count in.

use std::fmt::Debug;
use std::sync::Arc;
use toolhold_protocol::failure::ToolFailure;

/// Held while a call is made.
pub type CallPermit = Box<dyn Send + Sync>;

/// Why there is no room for a call.
#[derive(Debug)]
pub enum NoBudget {
    /// It is refused, and that is recorded.
    Refused(ToolFailure),
    /// There is no room now; the call is handled as if it had not been requested.
    Busy(String),
}

/// The shared budget of one caller's calls.
pub trait CallBudget: Send + Sync + Debug {
    /// Takes one call.
    ///
    /// # Errors
    /// Why it is not made.
    fn take(&self) -> Result<CallPermit, NoBudget>;

    /// Counts a further attempt of a call that has its permit; `false`: there is no budget for it. By default only
    /// calls count, and not their attempts.
    fn take_again(&self) -> bool {
        true
    }

    /// The budget for calls nested in a call.
    fn within(&self) -> Arc<dyn CallBudget>;
}

/// No budget: only the limits of each module apply (rate, concurrency, time).
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl CallBudget for Unlimited {
    fn take(&self) -> Result<CallPermit, NoBudget> {
        Ok(Box::new(()))
    }

    fn within(&self) -> Arc<dyn CallBudget> {
        Arc::new(Self)
    }
}
